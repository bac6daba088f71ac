//! Workloads on a memory disk.

pub(crate) mod dd;
