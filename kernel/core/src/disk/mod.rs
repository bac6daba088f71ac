//! The memory disk, the way of a request to it and back, and the devices below `/dev`.

mod devfs;
mod device_file;
mod geom;
mod memory_disk;
mod physio;

pub use devfs::DevFs;
pub use geom::Geom;
pub use memory_disk::MemoryDisk;
