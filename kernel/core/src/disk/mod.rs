//! The memory disk, and the devices below `/dev`.

mod devfs;
mod memory_disk;

pub use devfs::DevFs;
pub use memory_disk::MemoryDisk;
