//! Descriptors and open files of every kind; files on the disk, and reading them by page transfer; a mounted volume.

pub(crate) mod buffer_cache;
mod buffers;
mod cursor;
mod file;
mod file_transfer;
mod memfs;
mod mount;
mod ops;
mod regular;
mod vfs;
mod vnode;
mod volume_file;
pub(crate) mod volume_work;

pub(crate) use cursor::{Create, Cursor, Rights};
pub(crate) use file::{File, FileTable};
pub(crate) use memfs::MemFs;
pub(crate) use mount::{Mount, Volumes};
pub(crate) use ops::{FileOps, FilePart, MapRequest, SocketOps, VnodeOps};
pub(crate) use vfs::{Change, DirEntry, FileSystem, Links, MountTable, Opening};
pub(crate) use volume_file::{map_private, show_first_page};
pub(crate) use volume_work::{MOUNT_POINT, dir_entries, file_stat};
