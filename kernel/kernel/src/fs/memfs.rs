//! The file system in memory: directories, names and inodes in kernel memory, the bytes of files on the modelled disk.
//!
//! # What it holds
//! Every path, in order, with the file or the directory that has it; the blocks of the disk that no file has; and
//! inodes that wait for their last mapping. A path is kept whole, so a directory is the run of paths behind its own.
//! There are no symbolic links here.
//!
//! An inode lives as long as it has a name or is open, its object as long as anything maps it; the blocks are free when
//! both are gone. A file has blocks for all of its pages from the moment in which it grows, so only growing can find
//! the disk full.
//!
//! # Locks
//! One of class `Process` over the paths and the free blocks, held for a look-up only. What is done with bytes is under
//! the inode's own lock ([`super::vnode`]).
//!
//! # What can fail
//! Making a file or a directory, for want of memory or of an inode; and what Unix has names to fail for.

use super::cursor::{Create, Cursor, Rights};
use super::file::File;
use super::vfs::{Change, DirEntry, FileSystem, Links, Opening};
use super::vnode::{Inode, Regular};
use crate::proc::Syscall;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::{Errno, FileStat};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{LockClass, Machine, SpinLock, StructArena, StructVa, Zone};
use pageferry_vm::Vm;

/// Files and directories at a time, unless more are asked for, and bytes of an inode in memory.
const MAX_INODES: usize = 256;
const INODE_BYTES: usize = 256;
/// The longest name (`NAME_MAX`), and the longest path (`PATH_MAX`).
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 1023;

/// See the [module](self).
pub(crate) struct MemFs<M: Machine> {
    state: M::Lock<State<M>>,
}

struct State<M: Machine> {
    /// By path from the root, without a slash in front: `a/b`. The root has none.
    nodes: BTreeMap<String, Node<M>>,
    /// Inodes without name and opener whose objects are still mapped.
    leaving: Vec<Arc<Inode<M>>>,
    /// Blocks that no file has had, and those that some have given back.
    fresh_blocks: Range<u64>,
    freed_blocks: BTreeSet<u64>,
    structures: Zone,
}

enum Node<M: Machine> {
    File(Arc<Inode<M>>),
    Directory(StructVa),
}

impl<M: Machine> MemFs<M> {
    /// An empty root over the blocks of the disk that are not the swap area, for at least so many `files`.
    pub(crate) fn new(vm: &Vm<M>, files: usize, arena: &mut StructArena) -> Result<MemFs<M>, ArenaFull> {
        let state = State {
            nodes: BTreeMap::new(),
            leaving: Vec::new(),
            fresh_blocks: vm.file_blocks(),
            freed_blocks: BTreeSet::new(),
            structures: arena.zone("inodes", files.max(MAX_INODES), INODE_BYTES)?,
        };
        Ok(MemFs { state: vm.machine().new_lock(LockClass::PROCESS, state) })
    }

    /// The inode of a path, opened once more; or a new one.
    fn inode(&self, vm: &Vm<M>, path: &str, create: Create) -> Result<Arc<Inode<M>>, Errno> {
        self.sweep(vm);
        let found = self.state.lock().opened(path, create)?;
        match found {
            Some(inode) => Ok(inode),
            None => self.create(vm, path, create),
        }
    }

    fn create(&self, vm: &Vm<M>, path: &str, how: Create) -> Result<Arc<Inode<M>>, Errno> {
        let at = self.state.lock().structures.alloc().ok_or(Errno::NoSpace)?;
        let object = match vm.file_object(Vec::new()) {
            Ok(object) => object,
            Err(e) => {
                self.state.lock().structures.free(at);
                return Err(e.into());
            }
        };
        let inode = Arc::new(Inode::new(vm.machine(), at, object));
        let mut state = self.state.lock();
        // Other threads have changed names meanwhile, perhaps.
        let found = state.opened(path, how).and_then(|found| match found {
            Some(other) => Ok(Some(other)),
            None => {
                let path = state.locate(path)?.path();
                state.nodes.insert(path, Node::File(inode.clone()));
                Ok(None)
            }
        });
        if matches!(found, Ok(None)) {
            return Ok(inode);
        }
        state.structures.free(at);
        drop(state);
        vm.release_object(inode.object.clone());
        found.map(|other| other.expect("matched above"))
    }

    /// An opener is gone.
    pub(super) fn close(&self, vm: &Vm<M>, inode: Arc<Inode<M>>) {
        {
            let mut state = self.state.lock();
            if inode.closed() {
                state.leaving.push(inode);
            }
        }
        self.sweep(vm);
    }

    /// Ends the inodes without a name, an opener and a mapping.
    fn sweep(&self, vm: &Vm<M>) {
        let mut state = self.state.lock();
        for inode in core::mem::take(&mut state.leaving) {
            match vm.end_file(&inode.object) {
                Some(blocks) => {
                    state.freed_blocks.extend(blocks);
                    state.structures.free(inode.at());
                }
                None => state.leaving.push(inode),
            }
        }
    }

    /// `count` free blocks, the lowest there are.
    pub(super) fn take_blocks(&self, count: usize) -> Result<Vec<u64>, Errno> {
        let mut state = self.state.lock();
        if state.free_blocks() < count {
            return Err(Errno::NoSpace);
        }
        let block = |s: &mut State<M>| s.freed_blocks.pop_first().or_else(|| s.fresh_blocks.next());
        Ok((0..count).map(|_| block(&mut state).expect("counted above")).collect())
    }

    pub(super) fn give_blocks(&self, blocks: Vec<u64>) {
        self.state.lock().freed_blocks.extend(blocks);
    }

    /// Blocks that no file has.
    pub(crate) fn free_blocks(&self) -> usize {
        self.state.lock().free_blocks()
    }

    /// Frames that hold pages of files.
    pub(crate) fn resident_pages(&self, vm: &Vm<M>) -> usize {
        self.sweep(vm);
        let state = self.state.lock();
        let named = state.nodes.values().filter_map(|node| match node {
            Node::File(inode) => Some(inode),
            Node::Directory(_) => None,
        });
        // A file with several names is there once.
        let mut files: Vec<&Arc<Inode<M>>> = named.chain(&state.leaving).collect();
        files.sort_by_key(|inode| inode.at().0);
        files.dedup_by_key(|inode| inode.at().0);
        files.iter().map(|inode| inode.object.resident_pages()).sum()
    }
}

impl<M: Machine> State<M> {
    fn free_blocks(&self) -> usize {
        (self.fresh_blocks.end - self.fresh_blocks.start) as usize + self.freed_blocks.len()
    }

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
    /// [`Errno::NoFile`]; those of [`State::locate`].
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
    /// [`Errno::Exists`]; those of [`State::locate`].
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
    fn forget(&mut self, path: &str) {
        if let Some(Node::File(inode)) = self.nodes.remove(path)
            && inode.unnamed()
        {
            self.leaving.push(inode);
        }
    }

    /// Takes the directory at `path` away.
    fn remove_directory(&mut self, path: &str) -> Result<(), Errno> {
        self.directory(path)?;
        if self.names(path).next().is_some() {
            return Err(Errno::NotEmpty);
        }
        if let Some(Node::Directory(at)) = self.nodes.remove(path) {
            self.structures.free(at);
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
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
        match (self.nodes.get(&from), self.nodes.get(&to)) {
            // Two names of one file, or the name itself: nothing is done.
            _ if from == to => return Ok(()),
            (Some(Node::File(own)), Some(Node::File(other))) if Arc::ptr_eq(own, other) => return Ok(()),
            (_, Some(Node::Directory(_))) if is_below(&from, &to) => return Err(Errno::NotEmpty),
            (Some(Node::File(_)), Some(Node::Directory(_))) => return Err(Errno::IsDirectory),
            (_, Some(Node::Directory(_))) => self.remove_directory(&to)?,
            (Some(Node::Directory(_)), Some(Node::File(_))) => return Err(Errno::NotDirectory),
            (_, Some(Node::File(_))) => self.forget(&to),
            (_, None) => {}
        }
        let behind = self.nodes.range(from.clone()..).map(|(path, _)| path);
        let behind = behind.take_while(|path| path.starts_with(&from));
        let moved: Vec<String> =
            behind.filter(|path| **path == from || is_below(path, &from)).cloned().collect();
        for path in moved {
            if let Some(node) = self.nodes.remove(&path) {
                self.nodes.insert(to.clone() + &path[from.len()..], node);
            }
        }
        Ok(())
    }
}

/// A path that lies below a directory.
fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// A name in a directory; see [`State::locate`].
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
        let vm = &call.kernel.vm;
        let inode = self.inode(vm, path, how.create)?;
        if how.truncate
            && let Err(e) = inode.set_size(call, 0)
        {
            self.close(vm, inode);
            return Err(e);
        }
        Ok(File::vnode(Regular { inode, cursor: Cursor::new(vm.machine(), rights) }, rights))
    }

    fn change_name(&self, call: &Syscall<'_, M>, path: &str, how: Change) -> Result<(), Errno> {
        {
            let mut state = self.state.lock();
            match how {
                Change::MakeDirectory => {
                    let path = state.absent(path)?;
                    let at = state.structures.alloc().ok_or(Errno::NoSpace)?;
                    state.nodes.insert(path, Node::Directory(at));
                }
                Change::RemoveDirectory => {
                    let located = state.locate(path)?;
                    match located.name {
                        "." => return Err(Errno::Invalid),
                        ".." => return Err(Errno::NotEmpty),
                        _ => state.remove_directory(&located.path())?,
                    }
                }
                Change::Unlink => {
                    if let Found::Directory(_) = state.find(path)? {
                        return Err(Errno::IsDirectory);
                    }
                    let path = state.locate(path)?.path();
                    state.forget(&path);
                }
            }
        }
        self.sweep(&call.kernel.vm);
        Ok(())
    }

    fn stat(&self, _call: &Syscall<'_, M>, path: &str, _links: Links) -> Result<FileStat, Errno> {
        let state = self.state.lock();
        Ok(match state.find(path)? {
            Found::File(inode) => FileStat {
                is_directory: false,
                is_link: false,
                size_bytes: inode.size_bytes(),
                links: inode.links(),
            },
            // Its own name and its parent's, and those that its directories have for it.
            Found::Directory(path) => {
                let below = state.names(&path).filter(|(_, node)| matches!(node, Node::Directory(_)));
                let links = 2 + below.count() as u16;
                FileStat { is_directory: true, is_link: false, size_bytes: 0, links }
            }
        })
    }

    fn link(&self, _call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let inode = match state.find(from)? {
            Found::File(inode) => Some(inode.clone()),
            Found::Directory(_) => None,
        };
        let to = state.absent(to)?;
        let inode = inode.ok_or(Errno::IsDirectory)?;
        inode.named();
        state.nodes.insert(to, Node::File(inode));
        Ok(())
    }

    fn rename(&self, call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        self.state.lock().rename(from, to)?;
        self.sweep(&call.kernel.vm);
        Ok(())
    }

    fn list(&self, _call: &Syscall<'_, M>, path: &str) -> Result<Vec<DirEntry>, Errno> {
        let state = self.state.lock();
        let Found::Directory(path) = state.find(path)? else { return Err(Errno::NotDirectory) };
        let entry = |(name, node): (&str, &Node<M>)| (name.to_string(), matches!(node, Node::Directory(_)));
        Ok(state.names(&path).map(entry).collect())
    }
}
