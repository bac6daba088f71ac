//! The file system in memory: directories, names and inodes in kernel memory, the bytes of files on the modelled disk.
//!
//! # What it holds
//! Every path, in order, with the file or the directory that has it. A path is kept whole, so a directory is the run of
//! paths behind its own. There are no symbolic links here. Files, and the blocks of the disk, are in [`Inodes`].
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
use super::vfs::{Change, DirEntry, FileSystem, Links, Opening};
use super::vnode::Regular;
use crate::proc::Syscall;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, FileStat};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{LockClass, Machine, SpinLock, StructArena, StructVa};
use pageferry_vm::Vm;

/// The longest name (`NAME_MAX`), and the longest path (`PATH_MAX`).
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
    Directory(StructVa),
}

enum Node<M: Machine> {
    File(Arc<Inode<M>>),
    Directory(StructVa),
}

impl<M: Machine> MemFs<M> {
    /// An empty root over the blocks of the disk that are not the swap area, for at least so many `files`.
    pub fn new(vm: &Vm<M>, files: usize, arena: &mut StructArena) -> Result<MemFs<M>, ArenaFull> {
        let inodes = Arc::new(Inodes::new(vm, files, arena)?);
        let names = Names { nodes: BTreeMap::new() };
        Ok(MemFs { inodes, names: vm.machine().new_lock(LockClass::PROCESS, names) })
    }

    /// The inode of a path, opened once more; or a new one.
    fn inode(&self, vm: &Vm<M>, path: &str, create: Create) -> Result<Arc<Inode<M>>, Errno> {
        self.inodes.sweep(vm, None);
        let found = self.names.lock().opened(path, create)?;
        match found {
            Some(inode) => Ok(inode),
            None => self.create(vm, path, create),
        }
    }

    fn create(&self, vm: &Vm<M>, path: &str, how: Create) -> Result<Arc<Inode<M>>, Errno> {
        let inode = self.inodes.create(vm)?;
        let mut names = self.names.lock();
        // Other threads have changed names meanwhile, perhaps.
        let found = names.opened(path, how).and_then(|found| match found {
            Some(other) => Ok(Some(other)),
            None => {
                let path = names.locate(path)?.path();
                names.nodes.insert(path, Node::File(inode.clone()));
                Ok(None)
            }
        });
        if matches!(found, Ok(None)) {
            return Ok(inode);
        }
        drop(names);
        self.inodes.discard(vm, &inode);
        found.map(|other| other.expect("matched above"))
    }

    /// Ends what has lost its last name.
    fn end(&self, vm: &Vm<M>, ended: Ended<M>) {
        let inode = match ended {
            Ended::File(inode) => Some(inode),
            Ended::Directory(at) => {
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
            Node::Directory(_) => None,
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
            Some(Node::File(_)) => Err(Errno::NotDirectory),
            None => Err(Errno::NoFile),
        }
    }

    /// The directory of a path, which is there, and the last name, which need not be.
    ///
    /// # Errors
    /// [`Errno::NameTooLong`]; [`Errno::NoFile`], [`Errno::NotDirectory`]: no such directory.
    fn locate<'a>(&self, path: &'a str) -> Result<Located<'a>, Errno> {
        if path.len() > MAX_PATH_BYTES {
            return Err(Errno::NameTooLong);
        }
        let mut found = Located { directory: String::new(), name: "." };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            found.directory = found.path();
            self.directory(&found.directory)?;
            if name.len() > MAX_NAME_BYTES {
                return Err(Errno::NameTooLong);
            }
            found.name = name;
        }
        Ok(found)
    }

    /// What has a path.
    ///
    /// # Errors
    /// [`Errno::NoFile`]; those of [`Names::locate`].
    fn find(&self, path: &str) -> Result<Found<'_, M>, Errno> {
        let path = self.locate(path)?.path();
        match self.nodes.get(&path) {
            Some(Node::File(inode)) => Ok(Found::File(inode)),
            None if !path.is_empty() => Err(Errno::NoFile),
            _ => Ok(Found::Directory(path)),
        }
    }

    /// The inode of a path, opened once more; nothing if it is to be made.
    fn opened(&self, path: &str, create: Create) -> Result<Option<Arc<Inode<M>>>, Errno> {
        match self.find(path) {
            Err(Errno::NoFile) if create != Create::No => self.locate(path).map(|_| None),
            Ok(_) if create == Create::New => Err(Errno::Exists),
            Ok(Found::Directory(_)) => Err(Errno::IsDirectory),
            Ok(Found::File(inode)) => {
                inode.opened();
                Ok(Some(inode.clone()))
            }
            Err(e) => Err(e),
        }
    }

    /// The path of a name that can be made.
    ///
    /// # Errors
    /// [`Errno::Exists`]; those of [`Names::locate`].
    fn absent(&self, path: &str) -> Result<String, Errno> {
        let located = self.locate(path)?;
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

    /// Takes a file's name away.
    fn forget(&mut self, path: &str) -> Ended<M> {
        match self.nodes.remove(path) {
            Some(Node::File(inode)) if inode.unnamed() => Ended::File(inode),
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
            Some(Node::Directory(at)) => Ok(Ended::Directory(at)),
            _ => Ok(Ended::Nothing),
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<Ended<M>, Errno> {
        let (from, to) = (self.locate(from)?, self.locate(to)?);
        if from.is_dots() || to.is_dots() {
            return Err(Errno::Busy);
        }
        let (from, to) = (from.path(), to.path());
        let moves_directory = match self.nodes.get(&from) {
            None => return Err(Errno::NoFile),
            Some(Node::Directory(_)) => true,
            Some(Node::File(_)) => false,
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
            (Some(Node::File(_)), Some(Node::Directory(_))) => return Err(Errno::IsDirectory),
            (_, Some(Node::Directory(_))) => self.remove_directory(&to)?,
            (Some(Node::Directory(_)), Some(Node::File(_))) => return Err(Errno::NotDirectory),
            (_, Some(Node::File(_))) => self.forget(&to),
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
struct Located<'a> {
    directory: String,
    name: &'a str,
}

impl Located<'_> {
    /// It is the directory itself, or the one that has it.
    fn is_dots(&self) -> bool {
        self.name == "." || self.name == ".."
    }

    /// The path of what has the name.
    fn path(&self) -> String {
        match self.name {
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
}

impl<M: Machine> FileSystem<M> for MemFs<M> {
    fn open(
        &self,
        call: &Syscall<'_, M>,
        path: &str,
        how: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno> {
        let vm = &call.core.vm;
        let inode = self.inode(vm, path, how.create)?;
        let file = Regular::new(vm.machine(), self.inodes.clone(), inode, rights);
        if how.truncate
            && let Err(e) = file.set_size(call, 0)
        {
            file.close(vm);
            return Err(e);
        }
        Ok(File::vnode(file, rights))
    }

    fn change_name(&self, call: &Syscall<'_, M>, path: &str, how: Change) -> Result<(), Errno> {
        let ended = match how {
            Change::MakeDirectory => {
                let at = self.inodes.alloc()?;
                let mut names = self.names.lock();
                match names.absent(path) {
                    Ok(path) => {
                        names.nodes.insert(path, Node::Directory(at));
                        Ended::Nothing
                    }
                    Err(e) => {
                        drop(names);
                        self.inodes.free(at);
                        return Err(e);
                    }
                }
            }
            Change::RemoveDirectory => {
                let mut names = self.names.lock();
                let located = names.locate(path)?;
                match located.name {
                    "." => return Err(Errno::Invalid),
                    ".." => return Err(Errno::NotEmpty),
                    _ => names.remove_directory(&located.path())?,
                }
            }
            Change::Unlink => {
                let mut names = self.names.lock();
                if let Found::Directory(_) = names.find(path)? {
                    return Err(Errno::IsDirectory);
                }
                let path = names.locate(path)?.path();
                names.forget(&path)
            }
        };
        self.end(&call.core.vm, ended);
        Ok(())
    }

    fn stat(&self, _call: &Syscall<'_, M>, path: &str, _links: Links) -> Result<FileStat, Errno> {
        let names = self.names.lock();
        Ok(match names.find(path)? {
            Found::File(inode) => FileStat {
                is_directory: false,
                is_link: false,
                size_bytes: inode.size_bytes(),
                links: inode.links(),
            },
            // Its own name and its parent's, and those that its directories have for it.
            Found::Directory(path) => {
                let below = names.names(&path).filter(|(_, node)| matches!(node, Node::Directory(_)));
                let links = 2 + below.count() as u16;
                FileStat { is_directory: true, is_link: false, size_bytes: 0, links }
            }
        })
    }

    fn link(&self, _call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        let mut names = self.names.lock();
        let inode = match names.find(from)? {
            Found::File(inode) => Some(inode.clone()),
            Found::Directory(_) => None,
        };
        let to = names.absent(to)?;
        let inode = inode.ok_or(Errno::IsDirectory)?;
        inode.named();
        names.nodes.insert(to, Node::File(inode));
        Ok(())
    }

    fn rename(&self, call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        let replaced = self.names.lock().rename(from, to)?;
        self.end(&call.core.vm, replaced);
        Ok(())
    }

    fn list(&self, _call: &Syscall<'_, M>, path: &str) -> Result<Vec<DirEntry>, Errno> {
        let names = self.names.lock();
        let Found::Directory(path) = names.find(path)? else { return Err(Errno::NotDirectory) };
        let entry = |(name, node): (&str, &Node<M>)| (name.to_string(), matches!(node, Node::Directory(_)));
        Ok(names.names(&path).map(entry).collect())
    }
}
