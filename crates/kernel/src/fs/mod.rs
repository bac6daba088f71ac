//! Descriptors and open files of every kind; files on the disk, and reading them by page transfer; a mounted volume.

mod buffers;
mod cursor;
mod file;
mod file_transfer;
mod mount;
mod regular;
mod sendfile;
mod vnode;
mod volume_file;
mod volume_work;

pub(crate) use cursor::{Create, Cursor, Rights};
pub use file::Fd;
pub(crate) use file::{File, FileOps, FileTable};
pub(crate) use mount::{Mount, on_volume};
pub(crate) use vnode::{FileSystem, Regular};
pub(crate) use volume_file::VolumeFile;
pub(crate) use volume_work::Change;
