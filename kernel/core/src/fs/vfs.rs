//! Names: which file system a name belongs to, and what can be done with it there (`vfs`).
//!
//! # What it holds
//! The mount table, made at boot: the root is the file system in memory, below `/mnt` is the volume, below `/dev` are
//! the devices. A name is resolved here and nowhere else: to the file system with the longest mount point in front of
//! it, and the path behind that.
//!
//! # Locks
//! None: the table does not change. Calls of a file system may sleep.
//!
//! # What can fail
//! What a file system answers; and what is about two names of different file systems.

use super::cursor::{Create, Rights};
use super::file::File;
use crate::proc::Syscall;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, FileStat};
use pageferry_hal::Machine;

/// What is done about a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// The call is about what it leads to.
    Followed,
    /// The call is about the link.
    Taken,
}

/// How a file is opened by its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// What is made where there is nothing.
    pub create: Create,
    /// It is empty when it is open.
    pub truncate: bool,
    /// What is done about a link at the end of its path.
    pub links: Links,
}

/// What is done to a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// `mkdir`.
    MakeDirectory,
    /// `rmdir`.
    RemoveDirectory,
    /// `unlink`.
    Unlink,
}

/// A name in a directory, and whether it is a directory's.
pub type DirEntry = (String, bool);

/// What can be done with names of one file system; paths begin behind its mount point. Errors are those of the system
/// calls of the same name. The defaults are for a file system that lacks an operation.
///
/// # Locks
/// Calls may sleep: no spin lock is held before and after.
pub trait FileSystem<M: Machine> {
    /// Opens a file, or makes one. Directories are not opened.
    fn open(&self, call: &Syscall<'_, M>, path: &str, how: Opening, rights: Rights)
    -> Result<File<M>, Errno>;

    /// Makes a directory, takes a name or an empty directory away.
    fn change_name(&self, _call: &Syscall<'_, M>, _path: &str, _how: Change) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// What is known of what has a path.
    fn stat(&self, _call: &Syscall<'_, M>, _path: &str, _links: Links) -> Result<FileStat, Errno> {
        Err(Errno::NotSupported)
    }

    /// Gives a file a path more.
    fn link(&self, _call: &Syscall<'_, M>, _from: &str, _to: &str) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Makes a symbolic link `name` that leads to `path`.
    fn symlink(&self, _call: &Syscall<'_, M>, _path: &str, _name: &str) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Where a symbolic link leads.
    fn read_link(&self, _call: &Syscall<'_, M>, _name: &str) -> Result<Vec<u8>, Errno> {
        Err(Errno::NotSupported)
    }

    /// Renames; what has the new name goes.
    fn rename(&self, _call: &Syscall<'_, M>, _from: &str, _to: &str) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// The names in a directory, in order.
    fn list(&self, _call: &Syscall<'_, M>, _path: &str) -> Result<Vec<DirEntry>, Errno> {
        Err(Errno::NotSupported)
    }
}

/// A file system, and where its names are.
struct MountPoint<M: Machine> {
    /// With a slash in front and none behind; nothing for the root.
    at: &'static str,
    fs: Arc<dyn FileSystem<M>>,
}

/// Which file system a name belongs to: made at boot, and unchanged from then on.
pub struct MountTable<M: Machine> {
    points: Vec<MountPoint<M>>,
}

impl<M: Machine> MountTable<M> {
    /// A table with `root` only.
    pub fn new(root: Arc<dyn FileSystem<M>>) -> MountTable<M> {
        MountTable { points: alloc::vec![MountPoint { at: "", fs: root }] }
    }

    /// With `fs` below `at`, which lies in the root.
    pub fn with(mut self, at: &'static str, fs: Arc<dyn FileSystem<M>>) -> MountTable<M> {
        self.points.push(MountPoint { at, fs });
        self
    }

    /// The file system that a name belongs to, and its path there.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for no name.
    pub fn resolve<'a>(&self, name: &'a str) -> Result<(&dyn FileSystem<M>, &'a str), Errno> {
        let (point, path) = self.find(name)?;
        Ok((&*point.fs, path))
    }

    /// The one file system that two names belong to, and their paths there.
    ///
    /// # Errors
    /// [`Errno::CrossDevice`]; as [`MountTable::resolve`].
    pub fn resolve_both<'a>(
        &self,
        first: &'a str,
        second: &'a str,
    ) -> Result<(&dyn FileSystem<M>, &'a str, &'a str), Errno> {
        let ((one, path), (other, other_path)) = (self.find(first)?, self.find(second)?);
        if core::ptr::eq(one, other) { Ok((&*one.fs, path, other_path)) } else { Err(Errno::CrossDevice) }
    }

    fn find<'a>(&self, name: &'a str) -> Result<(&MountPoint<M>, &'a str), Errno> {
        if name.is_empty() {
            return Err(Errno::Invalid);
        }
        // Every process is at the root: `mnt`, `/mnt`, `//mnt` and `/./mnt` are one.
        let mut from_root = name.trim_start_matches('/');
        while let Some(rest) = from_root.strip_prefix("./") {
            from_root = rest.trim_start_matches('/');
        }
        let below = |point: &MountPoint<M>| path_below(from_root, point.at.trim_start_matches('/'));
        let found = self.points.iter().rev().find_map(|point| below(point).map(|path| (point, path)));
        Ok(found.unwrap_or((&self.points[0], name)))
    }
}

/// The path of a name behind a mount point, if it is below that.
pub fn path_below<'a>(name: &'a str, mount_point: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(mount_point)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}
