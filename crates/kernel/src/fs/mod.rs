//! Descriptors and open files of every kind; files on the disk, and reading them by page transfer.

mod file;
mod file_transfer;
mod regular;
mod sendfile;
mod vnode;

pub use file::Fd;
pub(crate) use file::{File, FileOps, FileTable};
pub(crate) use vnode::{FileSystem, Regular};
