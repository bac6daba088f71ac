//! Names: which file system a name belongs to, and what can be done with it there (`vfs`).
//!
//! # What it holds
//! The mount table, made at boot: the root is the file system in memory, below `/mnt` is the volume, below `/dev` are
//! the devices. A name is resolved here and nowhere else: to the file system whose mount point it begins with, and the
//! path behind that.
//!
//! # From one file system to another
//! A file system looks a whole path up by itself, because it may be a server's process, which is asked once for each
//! call. Where a path leads off it, it does nothing and answers [`Errno::CrossDevice`]: by a symbolic link that begins
//! at the root, by `..` from its own root, or by the name of a directory that another is mounted on. Then it is
//! [asked](FileSystem::way_off) where to, and the call is made anew there. Most names lead nowhere else, and cost no
//! more for that.
//!
//! # Locks
//! None: the table does not change. Calls of a file system may sleep.
//!
//! # What can fail
//! What a file system answers; what is about two names of different file systems; and a name that leads through too
//! many symbolic links ([`Errno::Loop`]).

use super::cursor::{Create, Rights};
use super::file::File;
use crate::proc::Syscall;
use alloc::borrow::Cow;
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

/// Symbolic links that one name leads through, at most, in all file systems together (`MAXSYMLINKS` of FreeBSD).
pub(super) const MAX_LINKS: usize = 32;

/// A name in one file system, on its way through several (`struct nameidata`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup<'a> {
    /// The path, from behind the mount point.
    pub path: &'a str,
    /// Symbolic links that the name has led through before it came here (`ni_loopcnt`).
    pub followed: usize,
    /// Names in this file system's root that others are mounted on.
    pub covered: &'a [&'static str],
}

/// Where a path leads that leads off a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WayOff {
    /// What is left of it, from the root of all; with or without a slash in front.
    pub path: String,
    /// Symbolic links that the name has led through so far.
    pub followed: usize,
}

/// What can be done with names of one file system; paths begin behind its mount point. Errors are those of the system
/// calls of the same name, and [`Errno::CrossDevice`]: nothing was done, and [`FileSystem::way_off`] says where the
/// path leads. The defaults are for a file system that lacks an operation.
///
/// # Locks
/// Calls may sleep: no spin lock is held before and after.
pub trait FileSystem<M: Machine> {
    /// Opens a file, or makes one. Directories are not opened.
    fn open(
        &self,
        call: &Syscall<'_, M>,
        at: Lookup<'_>,
        how: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno>;

    /// Where a path leads off this file system; nothing if it does not. The last name is looked at only if it is to be
    /// followed; then something must be there.
    ///
    /// # Errors
    /// What a look-up fails for.
    fn way_off(
        &self,
        _call: &Syscall<'_, M>,
        _at: Lookup<'_>,
        _links: Links,
    ) -> Result<Option<WayOff>, Errno> {
        Ok(None)
    }

    /// Makes a directory, takes a name or an empty directory away.
    fn change_name(&self, _call: &Syscall<'_, M>, _at: Lookup<'_>, _how: Change) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// What is known of what has a path.
    fn stat(&self, _call: &Syscall<'_, M>, _at: Lookup<'_>, _links: Links) -> Result<FileStat, Errno> {
        Err(Errno::NotSupported)
    }

    /// Gives a file a path more.
    fn link(&self, _call: &Syscall<'_, M>, _from: Lookup<'_>, _to: Lookup<'_>) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Makes a symbolic link at `at` that leads to `path`.
    fn symlink(&self, _call: &Syscall<'_, M>, _path: &str, _at: Lookup<'_>) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Where a symbolic link leads.
    fn read_link(&self, _call: &Syscall<'_, M>, _at: Lookup<'_>) -> Result<Vec<u8>, Errno> {
        Err(Errno::NotSupported)
    }

    /// Renames; what has the new name goes.
    fn rename(&self, _call: &Syscall<'_, M>, _from: Lookup<'_>, _to: Lookup<'_>) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// The names in a directory, in order. Directories that others are mounted on are none of them.
    fn list(&self, _call: &Syscall<'_, M>, _at: Lookup<'_>) -> Result<Vec<DirEntry>, Errno> {
        Err(Errno::NotSupported)
    }
}

/// A file system, and where its names are.
struct MountPoint<M: Machine> {
    /// A name in the root; nothing for the root itself.
    at: &'static str,
    fs: Arc<dyn FileSystem<M>>,
}

/// Which file system a name belongs to: made at boot, and unchanged from then on.
pub struct MountTable<M: Machine> {
    points: Vec<MountPoint<M>>,
    /// All mount points but the root.
    covered: Vec<&'static str>,
}

impl<M: Machine> MountTable<M> {
    /// A table with `root` only.
    pub fn new(root: Arc<dyn FileSystem<M>>) -> MountTable<M> {
        MountTable { points: alloc::vec![MountPoint { at: "", fs: root }], covered: Vec::new() }
    }

    /// With `fs` below `at`, a slash and a name in the root.
    pub fn with(mut self, at: &'static str, fs: Arc<dyn FileSystem<M>>) -> MountTable<M> {
        let at = at.trim_start_matches('/');
        self.points.push(MountPoint { at, fs });
        self.covered.push(at);
        self
    }

    /// Does `work` with the file system that a name belongs to, and the path there; again with another, where the path
    /// leads off. `links` says what is done about a symbolic link at its end.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for no name; [`Errno::Loop`]; those of `work`.
    pub fn resolve<R>(
        &self,
        call: &Syscall<'_, M>,
        name: &str,
        links: Links,
        mut work: impl FnMut(&dyn FileSystem<M>, Lookup<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut name = Name::new(name);
        loop {
            let (point, at) = self.find(&name)?;
            match work(&*point.fs, at) {
                Err(Errno::CrossDevice) => {}
                result => return result,
            }
            match point.fs.way_off(call, at, links) {
                Ok(Some(way)) => name = way.into(),
                // Others have changed names meanwhile.
                Ok(None) | Err(Errno::NoFile) => name = name.again()?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Does `work` with the one file system that two names belong to, and their paths there. `links` says what is done
    /// about a symbolic link at the end of the first; one at the end of the second is taken.
    ///
    /// # Errors
    /// [`Errno::CrossDevice`]: they belong to two. As [`MountTable::resolve`].
    pub fn resolve_both<R>(
        &self,
        call: &Syscall<'_, M>,
        (first, links): (&str, Links),
        second: &str,
        mut work: impl FnMut(&dyn FileSystem<M>, Lookup<'_>, Lookup<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let (mut first, mut second) = (Name::new(first), Name::new(second));
        loop {
            let ((one, at), (other, other_at)) = (self.find(&first)?, self.find(&second)?);
            let same = core::ptr::eq(one, other);
            if same {
                match work(&*one.fs, at, other_at) {
                    Err(Errno::CrossDevice) => {}
                    result => return result,
                }
            }
            if let Some(way) = one.fs.way_off(call, at, links)? {
                first = way.into();
            } else if let Some(way) = other.fs.way_off(call, other_at, Links::Taken)? {
                second = way.into();
            } else if same {
                // Others have changed names meanwhile.
                first = first.again()?;
            } else {
                return Err(Errno::CrossDevice);
            }
        }
    }

    /// The file system that a name belongs to by the names that it begins with, and its path there.
    fn find<'a>(&'a self, name: &'a Name<'_>) -> Result<(&'a MountPoint<M>, Lookup<'a>), Errno> {
        let Name { path, followed } = name;
        if path.is_empty() {
            return Err(Errno::Invalid);
        }
        let at = |path| Lookup { path, followed: *followed, covered: &[] };
        let mut path: &str = path;
        loop {
            // Every process is at the root, and above it is nothing: `mnt`, `/mnt`, `//mnt`, `/./mnt` and `/../mnt` are
            // one.
            let mut from_root = behind_dots(path);
            while let Some(rest) = path_below(from_root, "..") {
                from_root = behind_dots(rest);
            }
            let below = |point: &MountPoint<M>| path_below(from_root, point.at);
            let point = self.points[1..].iter().find_map(|point| below(point).map(|path| (point, path)));
            let Some((point, behind)) = point else {
                return Ok((&self.points[0], Lookup { covered: &self.covered, ..at(path) }));
            };
            match path_below(behind_dots(behind), "..") {
                Some(rest) => path = rest,
                None => return Ok((point, at(behind))),
            }
        }
    }
}

/// A name on its way: what is left of it, and how many symbolic links it has led through.
struct Name<'a> {
    path: Cow<'a, str>,
    followed: usize,
}

impl<'a> Name<'a> {
    fn new(name: &'a str) -> Name<'a> {
        Name { path: name.into(), followed: 0 }
    }

    /// To be looked up once more, which counts as a link: so that it ends.
    fn again(self) -> Result<Name<'a>, Errno> {
        let followed = self.followed + 1;
        if followed > MAX_LINKS { Err(Errno::Loop) } else { Ok(Name { followed, ..self }) }
    }
}

impl From<WayOff> for Name<'_> {
    fn from(WayOff { path, followed }: WayOff) -> Self {
        // No name is left: the root.
        Name { path: if path.is_empty() { "/".into() } else { path.into() }, followed }
    }
}

/// A path without the slashes and the names `.` that it begins with.
fn behind_dots(mut path: &str) -> &str {
    loop {
        path = path.trim_start_matches('/');
        match path_below(path, ".") {
            Some(rest) => path = rest,
            None => return path,
        }
    }
}

/// The path of a name behind a mount point, if it is below that.
pub fn path_below<'a>(name: &'a str, mount_point: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(mount_point)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}
