//! Devices: the sound device, its driver and its calls; memory disks, and the null device; the console.

mod audio;
mod audio_io;
mod devfs;
mod memory_disk;
mod screen;

pub(crate) use audio::Audio;
pub(crate) use audio_io::AudioFile;
pub(crate) use devfs::DevFs;
pub(crate) use memory_disk::MemoryDisk;
pub(crate) use screen::{Screen, acknowledge};
