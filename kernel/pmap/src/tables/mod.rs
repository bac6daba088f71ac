//! What memory holds: page tables, the hash table, reverse mappings, the kernel's fixed mappings. Nothing here knows of
//! CPUs or of what they have loaded but the tags of a space.

pub(crate) mod area;
pub(crate) mod bootstrap;
pub(crate) mod cached;
pub(crate) mod fixed;
pub(crate) mod pv;
pub(crate) mod radix;
pub(crate) mod second;
pub(crate) mod space;
pub(crate) mod sysmap;
