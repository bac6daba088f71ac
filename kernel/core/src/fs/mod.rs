//! Descriptors and open files of every kind; files on the disk, and reading them by page transfer; a mounted volume.

pub mod buffer_cache;
mod buffers;
mod cursor;
mod file;
mod file_transfer;
mod inode;
mod inodes;
mod memfs;
mod mount;
mod mounted;
mod object_io;
mod ops;
mod regular;
mod vfs;
mod vnode;
mod volume_file;
mod volume_pager;
mod volume_pages;
pub mod volume_work;

pub use cursor::{Create, Cursor, Rights};
pub use file::{File, FileTable};
pub use memfs::MemFs;
pub use mount::{Mount, Volumes};
pub use mounted::MountedVolume;
pub use ops::{FileOps, FilePart, MapRequest, NewSocket, SocketOps, VnodeOps};
pub use vfs::{Change, DirEntry, FileSystem, Links, Lookup, MountTable, Opening, WayOff};
pub use volume_file::{map_private, show_first_page};
pub use volume_work::{MOUNT_POINT, dir_entries, file_stat};
