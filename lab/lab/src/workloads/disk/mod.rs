//! Workloads on a memory disk.

pub(crate) mod dd;
pub(crate) mod file_calls;
pub(crate) mod postmark;
pub(crate) mod schemes;
