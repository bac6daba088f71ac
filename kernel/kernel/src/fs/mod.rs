//! Descriptors and open files of every kind; files on the disk, and reading them by page transfer; a mounted volume.

mod buffers;
mod cursor;
mod file;
mod file_transfer;
mod mount;
mod ops;
mod regular;
mod vnode;
mod volume_file;
pub(crate) mod volume_work;

pub(crate) use cursor::{Create, Cursor, Rights};
pub(crate) use file::{File, FileTable};
pub(crate) use mount::{Mount, Volumes, on_volume};
pub(crate) use ops::{FileOps, FilePart, MapRequest, SocketOps, VnodeOps};
pub(crate) use vnode::FileSystem;
pub(crate) use volume_file::{map_private, show_first_page};
pub(crate) use volume_work::{Change, Links, Opening};
