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
pub(crate) mod volume_work;

pub(crate) use cursor::{Create, Cursor, Rights, either};
pub(crate) use file::{File, FileOps, FileTable};
pub(crate) use mount::{Mount, Volumes, on_volume};
pub(crate) use vnode::{FileSystem, Regular};
pub(crate) use volume_file::{Wanted, map_private, show_first_page};
pub(crate) use volume_work::{Change, Links, Opening};
