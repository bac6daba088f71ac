//! The file system in memory: directories, names and inodes in kernel memory, the bytes of files on the modelled disk.
//!
//! # What it holds
//! Every path, in order, with the file, the directory or the symbolic link that has it. A path is kept whole, so a
//! directory is the run of paths behind its own. Files, and the blocks of the disk, are in [`Inodes`].
//!
//! # Locks
//! One of class `Process` over the paths, held for a look-up only; that of the inodes is not taken under it. What is
//! done with bytes is under the inode's own lock ([`super::inode`]).
//!
//! # What can fail
//! Making a file or a directory, for want of memory or of an inode; and what Unix has names to fail for.

use super::cursor::{Create, Rights};
use super::file::File;
use super::inode::Inode;
use super::inodes::Inodes;
use super::vfs::{Change, DirEntry, FileSystem, Links, Lookup, MAX_LINKS, Opening, WayOff};
use super::vnode::Regular;
use crate::proc::Syscall;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, FileStat};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{LockClass, Machine, SpinLock, StructArena, StructVa};
use pageferry_vm::Vm;

/// The longest name (`NAME_MAX`), and the longest path (`PATH_MAX`), also of a symbolic link.
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 1023;

/// The file system in memory: names in kernel memory, the bytes of files on the modelled disk.
pub struct MemFs<M: Machine> {
    inodes: Arc<Inodes<M>>,
    names: M::Lock<Names<M>>,
}

struct Names<M: Machine> {
    /// By path from the root, without a slash in front: `a/b`. The root has none.
    nodes: BTreeMap<String, Node<M>>,
}

/// What has lost its last name, and is to be given back when the lock of the names is released.
#[must_use = "what has no name any more must be ended"]
enum Ended<M: Machine> {
    Nothing,
    /// It has no opener either.
    File(Arc<Inode<M>>),
    /// The structure of a directory or of a symbolic link.
    Structure(StructVa),
}

enum Node<M: Machine> {
    File(Arc<Inode<M>>),
    Directory(StructVa),
    /// A symbolic link, and where it leads.
    Link(StructVa, String),
}

impl<M: Machine> MemFs<M> {
    /// An empty root over the blocks of the disk that are not the swap area, for at least so many `files`.
    pub fn new(vm: &Vm<M>, files: usize, arena: &mut StructArena) -> Result<MemFs<M>, ArenaFull> {
        let inodes = Arc::new(Inodes::new(vm, files, arena)?);
        let names = Names { nodes: BTreeMap::new() };
        Ok(MemFs { inodes, names: vm.machine().new_lock(LockClass::PROCESS, names) })
    }

    /// The inode of a path, opened once more; or a new one.
    fn inode(
        &self,
        vm: &Vm<M>,
        at: Lookup<'_>,
        create: Create,
        links: Links,
    ) -> Result<Arc<Inode<M>>, Errno> {
        self.inodes.sweep(vm, None);
        let found = self.names.lock().opened(at, create, links)?;
        match found {
            Opened::File(inode) => Ok(inode),
            Opened::Absent(_) => self.create(vm, at, create, links),
        }
    }

    fn create(&self, vm: &Vm<M>, at: Lookup<'_>, how: Create, links: Links) -> Result<Arc<Inode<M>>, Errno> {
        let inode = self.inodes.create(vm)?;
        let mut names = self.names.lock();
        // Other threads have changed names meanwhile, perhaps.
        let other = match names.opened(at, how, links) {
            Ok(Opened::Absent(path)) => {
                names.nodes.insert(path, Node::File(inode.clone()));
                return Ok(inode);
            }
            Ok(Opened::File(other)) => Ok(other),
            Err(e) => Err(e),
        };
        drop(names);
        self.inodes.discard(vm, &inode);
        other
    }

    /// Makes a directory or a symbolic link; `node` says which, in a structure of its own.
    fn make(
        &self,
        at: Lookup<'_>,
        node: impl FnOnce(StructVa) -> Result<Node<M>, Errno>,
    ) -> Result<(), Errno> {
        let structure = self.inodes.alloc()?;
        let mut names = self.names.lock();
        let made = names.locate(at).and_then(|located| {
            let node = node(structure)?;
            Ok((names.absent(located)?, node))
        });
        match made {
            Ok((path, node)) => {
                names.nodes.insert(path, node);
                Ok(())
            }
            Err(e) => {
                drop(names);
                self.inodes.free(structure);
                Err(e)
            }
        }
    }

    /// Ends what has lost its last name.
    fn end(&self, vm: &Vm<M>, ended: Ended<M>) {
        let inode = match ended {
            Ended::File(inode) => Some(inode),
            Ended::Structure(at) => {
                self.inodes.free(at);
                None
            }
            Ended::Nothing => None,
        };
        self.inodes.sweep(vm, inode);
    }

    /// Blocks that no file has.
    pub fn free_blocks(&self) -> usize {
        self.inodes.free_blocks()
    }

    /// Frames that hold pages of files.
    pub fn resident_pages(&self, vm: &Vm<M>) -> usize {
        self.inodes.sweep(vm, None);
        let names = self.names.lock();
        let named = names.nodes.values().filter_map(|node| match node {
            Node::File(inode) => Some(inode),
            Node::Directory(_) | Node::Link(..) => None,
        });
        // A file with several names is there once.
        let mut files: Vec<&Arc<Inode<M>>> = named.collect();
        files.sort_by_key(|inode| inode.at().0);
        files.dedup_by_key(|inode| inode.at().0);
        let named_pages: usize = files.iter().map(|inode| inode.object.resident_pages()).sum();
        drop(names);
        named_pages + self.inodes.leaving_pages()
    }
}

impl<M: Machine> Names<M> {
    /// Tests that a path is a directory's.
    fn directory(&self, path: &str) -> Result<(), Errno> {
        match self.nodes.get(path) {
            _ if path.is_empty() => Ok(()),
            Some(Node::Directory(_)) => Ok(()),
            Some(Node::File(_) | Node::Link(..)) => Err(Errno::NotDirectory),
            None => Err(Errno::NoFile),
        }
    }

    /// The directory of a path, which is there, and the last name, which need not be, and may be a link's.
    ///
    /// # Errors
    /// Those of [`Names::walk`].
    fn locate(&self, at: Lookup<'_>) -> Result<Located, Errno> {
        self.walk(at, Links::Taken, &mut None)
    }

    /// The same, and what is to be done about a symbolic link that has the last name. Where the path leads off, `off`
    /// says where to.
    ///
    /// # Errors
    /// [`Errno::NameTooLong`]; [`Errno::NoFile`], [`Errno::NotDirectory`]: no such directory. [`Errno::Loop`].
    /// [`Errno::CrossDevice`]: it leads off.
    fn walk(&self, at: Lookup<'_>, links: Links, off: &mut Option<WayOff>) -> Result<Located, Errno> {
        if at.path.len() > MAX_PATH_BYTES {
            return Err(Errno::NameTooLong);
        }
        let (mut rest, mut followed): (Cow<'_, str>, usize) = (at.path.into(), at.followed);
        let mut from = 0;
        let mut found = Located { directory: String::new(), name: ".".into() };
        loop {
            // What has been found, and the name behind it, if there is one.
            let path = found.path();
            from += rest[from..].len() - rest[from..].trim_start_matches('/').len();
            let left = &rest[from..];
            if at.covered.contains(&path.as_str()) {
                *off = Some(WayOff { path: path + "/" + left, followed });
                return Err(Errno::CrossDevice);
            }
            if let Some(Node::Link(_, target)) = self.nodes.get(&path)
                && (links == Links::Followed || !left.is_empty())
            {
                followed += 1;
                if followed > MAX_LINKS {
                    return Err(Errno::Loop);
                }
                if target.starts_with('/') {
                    found.directory.clear();
                }
                found.name = ".".into();
                rest = (target.clone() + "/" + left).into();
                from = 0;
                continue;
            }
            if left.is_empty() {
                return Ok(found);
            }
            self.directory(&path)?;
            let name = &left[..left.find('/').unwrap_or(left.len())];
            if name.len() > MAX_NAME_BYTES {
                return Err(Errno::NameTooLong);
            }
            found = Located { directory: path, name: name.into() };
            from += name.len();
        }
    }

    /// What has a path.
    ///
    /// # Errors
    /// [`Errno::NoFile`]; those of [`Names::walk`].
    fn find(&self, at: Lookup<'_>, links: Links) -> Result<Found<'_, M>, Errno> {
        let path = self.walk(at, links, &mut None)?.path();
        match self.nodes.get(&path) {
            Some(Node::File(inode)) => Ok(Found::File(inode)),
            Some(Node::Link(_, target)) => Ok(Found::Link(target)),
            None if !path.is_empty() => Err(Errno::NoFile),
            _ => Ok(Found::Directory(path)),
        }
    }

    /// The inode of a path, opened once more; or the path where it is to be made.
    fn opened(&self, at: Lookup<'_>, create: Create, links: Links) -> Result<Opened<M>, Errno> {
        // A file that must be new is not made where a link leads.
        let links = if create == Create::New { Links::Taken } else { links };
        let path = self.walk(at, links, &mut None)?.path();
        match self.nodes.get(&path) {
            None if !path.is_empty() => match create {
                Create::No => Err(Errno::NoFile),
                Create::IfMissing | Create::New => Ok(Opened::Absent(path)),
            },
            _ if create == Create::New => Err(Errno::Exists),
            None | Some(Node::Directory(_)) => Err(Errno::IsDirectory),
            Some(Node::Link(..)) => Err(Errno::Loop),
            Some(Node::File(inode)) => {
                inode.opened();
                Ok(Opened::File(inode.clone()))
            }
        }
    }

    /// The path of a name that can be made.
    ///
    /// # Errors
    /// [`Errno::Exists`].
    fn absent(&self, located: Located) -> Result<String, Errno> {
        let path = located.path();
        if located.is_dots() || self.nodes.contains_key(&path) { Err(Errno::Exists) } else { Ok(path) }
    }

    /// The names in a directory.
    fn names<'a>(&'a self, directory: &str) -> impl Iterator<Item = (&'a str, &'a Node<M>)> {
        let mut first = directory.to_string();
        if !first.is_empty() {
            first.push('/');
        }
        let len = first.len();
        let prefix = first.clone();
        self.nodes
            .range(first..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .filter(move |(path, _)| !path[len..].contains('/'))
            .map(move |(path, node)| (&path[len..], node))
    }

    /// Takes the name of a file or of a symbolic link away.
    fn forget(&mut self, path: &str) -> Ended<M> {
        match self.nodes.remove(path) {
            Some(Node::File(inode)) if inode.unnamed() => Ended::File(inode),
            Some(Node::Link(at, _)) => Ended::Structure(at),
            _ => Ended::Nothing,
        }
    }

    /// Takes the directory at `path` away.
    fn remove_directory(&mut self, path: &str) -> Result<Ended<M>, Errno> {
        self.directory(path)?;
        if self.names(path).next().is_some() {
            return Err(Errno::NotEmpty);
        }
        match self.nodes.remove(path) {
            Some(Node::Directory(at)) => Ok(Ended::Structure(at)),
            _ => Ok(Ended::Nothing),
        }
    }

    fn rename(&mut self, from: Lookup<'_>, to: Lookup<'_>) -> Result<Ended<M>, Errno> {
        let (from, to) = (self.locate(from)?, self.locate(to)?);
        if from.is_dots() || to.is_dots() {
            return Err(Errno::Busy);
        }
        let (from, to) = (from.path(), to.path());
        let moves_directory = match self.nodes.get(&from) {
            None => return Err(Errno::NoFile),
            Some(Node::Directory(_)) => true,
            Some(Node::File(_) | Node::Link(..)) => false,
        };
        if moves_directory && is_below(&to, &from) {
            return Err(Errno::Invalid);
        }
        let replaced = match (self.nodes.get(&from), self.nodes.get(&to)) {
            // Two names of one file, or the name itself: nothing is done.
            _ if from == to => return Ok(Ended::Nothing),
            (Some(Node::File(own)), Some(Node::File(other))) if Arc::ptr_eq(own, other) => {
                return Ok(Ended::Nothing);
            }
            (_, Some(Node::Directory(_))) if is_below(&from, &to) => return Err(Errno::NotEmpty),
            (_, Some(Node::Directory(_))) if !moves_directory => return Err(Errno::IsDirectory),
            (_, Some(Node::Directory(_))) => self.remove_directory(&to)?,
            (_, Some(_)) if moves_directory => return Err(Errno::NotDirectory),
            (_, Some(_)) => self.forget(&to),
            (_, None) => Ended::Nothing,
        };
        let behind = self.nodes.range(from.clone()..).map(|(path, _)| path);
        let behind = behind.take_while(|path| path.starts_with(&from));
        let moved: Vec<String> =
            behind.filter(|path| **path == from || is_below(path, &from)).cloned().collect();
        for path in moved {
            if let Some(node) = self.nodes.remove(&path) {
                self.nodes.insert(to.clone() + &path[from.len()..], node);
            }
        }
        Ok(replaced)
    }
}

/// A path that lies below a directory.
fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// A name in a directory; see [`Names::locate`].
struct Located {
    directory: String,
    name: String,
}

impl Located {
    /// It is the directory itself, or the one that has it.
    fn is_dots(&self) -> bool {
        self.name == "." || self.name == ".."
    }

    /// The path of what has the name.
    fn path(&self) -> String {
        match self.name.as_str() {
            "." => self.directory.clone(),
            ".." => self.directory[..self.directory.rfind('/').unwrap_or(0)].to_string(),
            name if self.directory.is_empty() => name.to_string(),
            name => self.directory.clone() + "/" + name,
        }
    }
}

/// What has a path.
enum Found<'a, M: Machine> {
    File(&'a Arc<Inode<M>>),
    /// By its path.
    Directory(String),
    /// A symbolic link, by where it leads.
    Link(&'a str),
}

/// What a path that is to be opened has come to; see [`Names::opened`].
enum Opened<M: Machine> {
    File(Arc<Inode<M>>),
    /// Nothing is there; by its path.
    Absent(String),
}

/// Tests what a symbolic link is to lead to.
fn proper_target(path: &str) -> Result<(), Errno> {
    match path.len() {
        0 => Err(Errno::NoFile),
        len if len > MAX_PATH_BYTES => Err(Errno::NameTooLong),
        _ if path.contains('\0') => Err(Errno::Invalid),
        _ => Ok(()),
    }
}

impl<M: Machine> FileSystem<M> for MemFs<M> {
    fn open(
        &self,
        call: &Syscall<'_, M>,
        at: Lookup<'_>,
        how: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno> {
        let vm = &call.core.vm;
        let inode = self.inode(vm, at, how.create, how.links)?;
        let file = Regular::new(vm.machine(), self.inodes.clone(), inode, rights);
        if how.truncate
            && let Err(e) = file.set_size(call, 0)
        {
            file.close(vm);
            return Err(e);
        }
        Ok(File::vnode(file, rights))
    }

    fn way_off(&self, _call: &Syscall<'_, M>, at: Lookup<'_>, links: Links) -> Result<Option<WayOff>, Errno> {
        let names = self.names.lock();
        let mut off = None;
        match names.walk(at, links, &mut off) {
            Err(Errno::CrossDevice) => Ok(off),
            Ok(_) if links == Links::Followed => names.find(at, links).map(|_| None),
            located => located.map(|_| None),
        }
    }

    fn change_name(&self, call: &Syscall<'_, M>, at: Lookup<'_>, how: Change) -> Result<(), Errno> {
        let ended = match how {
            Change::MakeDirectory => {
                self.make(at, |structure| Ok(Node::Directory(structure)))?;
                Ended::Nothing
            }
            Change::RemoveDirectory => {
                let mut names = self.names.lock();
                let located = names.locate(at)?;
                match located.name.as_str() {
                    "." => return Err(Errno::Invalid),
                    ".." => return Err(Errno::NotEmpty),
                    _ => names.remove_directory(&located.path())?,
                }
            }
            Change::Unlink => {
                let mut names = self.names.lock();
                if let Found::Directory(_) = names.find(at, Links::Taken)? {
                    return Err(Errno::IsDirectory);
                }
                let path = names.locate(at)?.path();
                names.forget(&path)
            }
        };
        self.end(&call.core.vm, ended);
        Ok(())
    }

    fn stat(&self, _call: &Syscall<'_, M>, at: Lookup<'_>, links: Links) -> Result<FileStat, Errno> {
        let names = self.names.lock();
        let (is_directory, is_link, size_bytes, links) = match names.find(at, links)? {
            Found::File(inode) => (false, false, inode.size_bytes(), inode.links()),
            Found::Link(target) => (false, true, target.len() as u64, 1),
            // Its own name and its parent's, and those that its directories have for it.
            Found::Directory(path) => {
                let below = names.names(&path).filter(|(_, node)| matches!(node, Node::Directory(_)));
                (true, false, 0, 2 + below.count() as u16)
            }
        };
        Ok(FileStat { is_directory, is_link, size_bytes, links })
    }

    fn symlink(&self, _call: &Syscall<'_, M>, path: &str, at: Lookup<'_>) -> Result<(), Errno> {
        self.make(at, |structure| {
            proper_target(path)?;
            Ok(Node::Link(structure, path.to_string()))
        })
    }

    fn read_link(&self, _call: &Syscall<'_, M>, at: Lookup<'_>) -> Result<Vec<u8>, Errno> {
        match self.names.lock().find(at, Links::Taken)? {
            Found::Link(target) => Ok(target.as_bytes().to_vec()),
            Found::File(_) | Found::Directory(_) => Err(Errno::Invalid),
        }
    }

    fn link(&self, _call: &Syscall<'_, M>, from: Lookup<'_>, to: Lookup<'_>) -> Result<(), Errno> {
        let mut names = self.names.lock();
        let inode = match names.find(from, Links::Followed)? {
            Found::File(inode) => Some(inode.clone()),
            Found::Directory(_) | Found::Link(_) => None,
        };
        let to = names.absent(names.locate(to)?)?;
        let inode = inode.ok_or(Errno::IsDirectory)?;
        inode.named();
        names.nodes.insert(to, Node::File(inode));
        Ok(())
    }

    fn rename(&self, call: &Syscall<'_, M>, from: Lookup<'_>, to: Lookup<'_>) -> Result<(), Errno> {
        let replaced = self.names.lock().rename(from, to)?;
        self.end(&call.core.vm, replaced);
        Ok(())
    }

    fn list(&self, _call: &Syscall<'_, M>, at: Lookup<'_>) -> Result<Vec<DirEntry>, Errno> {
        let names = self.names.lock();
        let Found::Directory(path) = names.find(at, Links::Followed)? else {
            return Err(Errno::NotDirectory);
        };
        let entry = |(name, node): (&str, &Node<M>)| (name.to_string(), matches!(node, Node::Directory(_)));
        Ok(names.names(&path).map(entry).collect())
    }
}
