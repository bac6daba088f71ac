//! What is done with names: looking up, making, linking, removing, renaming. Each change in the order that the
//! [crate] tells of.
//!
//! A call that fails has changed nothing. An inode whose last name goes while it is open stays until it is closed; on
//! the disk it then has no links, and a checker ends it.

use crate::Ino;
use crate::chunk::{MAX_NAME, empty_chunk, first_chunk};
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::inode::{Inode, Kind, MAX_PATH};
use crate::layout::POINTERS;
use crate::store::{SECTOR_BYTES, Sort, Store, When};
use crate::volume::{Node, Volume};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

const MAX_LINKS: u16 = 32767;

/// A name that can be made.
fn proper(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(FsError::Invalid);
    }
    if name.len() > MAX_NAME { Err(FsError::NameTooLong) } else { Ok(()) }
}

impl Volume {
    /// The inode of `name` in a directory; also of `.` and `..`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::NameTooLong`], [`FsError::Damaged`], the disk.
    pub fn lookup(&mut self, store: &mut dyn Store, dir: Ino, name: &[u8]) -> Result<Ino, FsError> {
        self.lookup_kind(store, dir, name).map(|(ino, _)| ino)
    }

    /// The inode of `name` in a directory, and what it is of. A symbolic link is found, not followed.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn lookup_kind(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        name: &[u8],
    ) -> Result<(Ino, Kind), FsError> {
        let found = match name {
            b"." | b".." => {
                let kind = self.node(store, dir)?.inode.kind;
                let found = match kind {
                    Some(Kind::Directory) if name == b"." => Ok(dir),
                    Some(Kind::Directory) => self.parent(store, dir),
                    _ => Err(FsError::NotDirectory),
                };
                found.map(|ino| (ino, Kind::Directory))
            }
            _ => self.find(store, dir, name),
        };
        self.let_go(store, dir)?;
        found
    }

    /// Makes a file or a directory. (A symbolic link needs a path: [`Volume::make_link`].)
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoSpace`], [`FsError::Invalid`]; as [`Volume::lookup`].
    pub fn make(&mut self, store: &mut dyn Store, dir: Ino, name: &[u8], kind: Kind) -> Result<Ino, FsError> {
        if kind == Kind::Link {
            return Err(FsError::Invalid);
        }
        let result = self.make_in(store, dir, name, kind, &[]);
        self.let_go(store, dir)?;
        result
    }

    /// Makes a symbolic link: a name that stands for a path, whatever is there.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NameTooLong`], [`FsError::Invalid`]: the path is empty, longer than 1,023
    /// bytes, or has a zero; as [`Volume::make`].
    pub fn make_link(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        name: &[u8],
        path: &[u8],
    ) -> Result<Ino, FsError> {
        match path.len() {
            0 => return Err(FsError::NotFound),
            len if len > MAX_PATH => return Err(FsError::NameTooLong),
            _ if path.contains(&0) => return Err(FsError::Invalid),
            _ => {}
        }
        let result = self.make_in(store, dir, name, Kind::Link, path);
        self.let_go(store, dir)?;
        result
    }

    /// The path of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`]: it is none. [`FsError::Damaged`], the disk.
    pub fn read_link(&mut self, store: &mut dyn Store, ino: Ino) -> Result<Vec<u8>, FsError> {
        let inode = self.node(store, ino)?.inode;
        if inode.kind != Some(Kind::Link) {
            self.let_go(store, ino)?;
            return Err(FsError::Invalid);
        }
        if !inode.is_path() {
            return Err(FsError::Damaged(format!("inode {} is a path of {} bytes", ino.0, inode.size)));
        }
        let mut path = vec![0; inode.size as usize];
        let mut done = 0;
        while done < path.len() {
            let piece = self.piece(store, ino, done as u64, path.len() - done)?;
            match piece.at {
                Some(from) => store.read(from, &mut path[done..][..piece.len_bytes])?,
                None => return Err(FsError::Damaged(format!("inode {} is a path with a hole", ino.0))),
            }
            done += piece.len_bytes;
        }
        self.let_go(store, ino)?;
        Ok(path)
    }

    fn make_in(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        name: &[u8],
        kind: Kind,
        path: &[u8],
    ) -> Result<Ino, FsError> {
        self.begin(store)?;
        self.absent(store, dir, name)?;
        let is_dir = kind == Kind::Directory;
        if is_dir && self.node(store, dir)?.inode.links >= MAX_LINKS {
            return Err(FsError::TooManyLinks);
        }
        let ino = self.take_inode(store, dir, is_dir)?;
        let made = match kind {
            Kind::Directory => self.make_dir(store, ino, dir),
            Kind::File => self.make_file(store, ino),
            Kind::Link => self.write_path(store, ino, path),
        };
        let entered = made.and_then(|()| self.enter(store, dir, name, ino, kind));
        if let Err(e) = entered {
            // Nothing names it yet.
            if self.nodes.contains_key(&ino) {
                self.end(store, ino)?;
            } else {
                self.give(store, &[], Some(ino))?;
            }
            if is_dir {
                self.change(store, dir, When::Now, |parent| parent.links = parent.links.saturating_sub(1))?;
            }
            return Err(e);
        }
        self.let_go(store, ino)?;
        Ok(ino)
    }

    fn make_file(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let inode = Inode { kind: Some(Kind::File), links: 1, ..Inode::FREE };
        let when = if self.defect.is(FsDefect::NameBeforeInode) { When::Later } else { When::Now };
        self.install(store, ino, inode, when)
    }

    /// The inode of a symbolic link. Its path is on the disk before the inode is, which is there before the name.
    fn write_path(&mut self, store: &mut dyn Store, ino: Ino, path: &[u8]) -> Result<(), FsError> {
        let near = ino.0 / self.geometry.group_inodes * self.geometry.group_fragments;
        let size = path.len() as u64;
        let mut inode = Inode { kind: Some(Kind::Link), links: 1, size, ..Inode::FREE };
        let when = if self.defect.is(FsDefect::PathWrittenLater) { When::Later } else { When::Now };
        let mut taken = Vec::new();
        for (i, part) in path.chunks(self.geometry.block_bytes as usize).enumerate() {
            let count = self.geometry.fragments_at(size, i as u64);
            let run = match self.take_run(store, near, count, false) {
                Ok(run) => run,
                Err(e) => {
                    self.give(store, &taken, None)?;
                    return Err(e);
                }
            };
            store.block(self.geometry.bytes_of(run));
            let mut bytes = part.to_vec();
            bytes.resize(part.len().next_multiple_of(SECTOR_BYTES), 0);
            self.write_contents(store, run, &bytes, Sort::File, when)?;
            inode.pointers[i] = run.first;
            inode.fragments += run.count;
            taken.push(run);
        }
        self.install(store, ino, inode, When::Now)
    }

    /// A directory of one block, with its own name and its parent's, which has a link more.
    fn make_dir(&mut self, store: &mut dyn Store, ino: Ino, parent: Ino) -> Result<(), FsError> {
        self.change(store, parent, When::Now, |inode| inode.links += 1)?;
        let near = ino.0 / self.geometry.group_inodes * self.geometry.group_fragments;
        let block = self.take_block(store, near)?;
        let chunks = self.geometry.block_bytes as usize / SECTOR_BYTES;
        let mut bytes: Vec<u8> = empty_chunk().repeat(chunks);
        bytes[..SECTOR_BYTES].copy_from_slice(&first_chunk(ino, parent));
        self.write_contents(store, block, &bytes, Sort::Directory, When::Now)?;
        let mut pointers = [0; POINTERS];
        pointers[0] = block.first;
        let size = u64::from(self.geometry.block_bytes);
        let fragments = block.count;
        let inode = Inode { kind: Some(Kind::Directory), links: 2, fragments, size, pointers };
        self.install(store, ino, inode, When::Now)
    }

    fn install(&mut self, store: &mut dyn Store, ino: Ino, inode: Inode, when: When) -> Result<(), FsError> {
        self.write_inode(store, ino, &inode, when)?;
        self.nodes.insert(ino, Node::new(inode));
        Ok(())
    }

    /// A name that can be made in a directory where it is not.
    fn absent(&mut self, store: &mut dyn Store, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        proper(name)?;
        let (kind, links) = {
            let inode = self.node(store, dir)?.inode;
            (inode.kind, inode.links)
        };
        if kind != Some(Kind::Directory) {
            return Err(FsError::NotDirectory);
        }
        // A directory that has no name gets none in it.
        if links == 0 {
            return Err(FsError::NotFound);
        }
        if name == b"." || name == b".." {
            return Err(FsError::Exists);
        }
        match self.find(store, dir, name) {
            Ok(_) => Err(FsError::Exists),
            Err(FsError::NotFound) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Gives a file, or a symbolic link, a name more.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::TooManyLinks`]; as [`Volume::make`].
    pub fn link(&mut self, store: &mut dyn Store, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        let result = self.link_in(store, ino, dir, name);
        self.let_go(store, ino)?;
        self.let_go(store, dir)?;
        result
    }

    fn link_in(&mut self, store: &mut dyn Store, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.begin(store)?;
        let inode = self.node(store, ino)?.inode;
        self.absent(store, dir, name)?;
        let kind = match inode.kind {
            Some(kind) if kind != Kind::Directory => kind,
            _ => return Err(FsError::IsDirectory),
        };
        if inode.links == 0 {
            return Err(FsError::NotFound);
        }
        if inode.links >= MAX_LINKS {
            return Err(FsError::TooManyLinks);
        }
        self.change(store, ino, When::Now, |inode| inode.links += 1)?;
        let entered = self.enter(store, dir, name, ino, kind);
        if entered.is_err() {
            self.change(store, ino, When::Now, |inode| inode.links -= 1)?;
        }
        entered
    }

    /// Takes a file's name away; with the last one the file goes, unless it is open.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`]; as [`Volume::lookup`].
    pub fn unlink(&mut self, store: &mut dyn Store, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        if name == b"." || name == b".." {
            return Err(FsError::IsDirectory);
        }
        self.begin(store)?;
        let result = self.find(store, dir, name).and_then(|(ino, kind)| {
            if kind == Kind::Directory {
                return Err(FsError::IsDirectory);
            }
            self.leave(store, dir, name)?;
            self.drop_link(store, ino)
        });
        self.let_go(store, dir)?;
        result
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    /// [`FsError::NotEmpty`], [`FsError::NotDirectory`], [`FsError::Invalid`] for `.`; as [`Volume::lookup`].
    pub fn rmdir(&mut self, store: &mut dyn Store, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        match name {
            b"." => return Err(FsError::Invalid),
            b".." => return Err(FsError::NotEmpty),
            _ => {}
        }
        self.begin(store)?;
        let result = self.find(store, dir, name).and_then(|(ino, kind)| {
            if kind != Kind::Directory {
                return Err(FsError::NotDirectory);
            }
            if !self.is_empty_dir(store, ino)? {
                self.let_go(store, ino)?;
                return Err(FsError::NotEmpty);
            }
            self.after_moves(ino);
            self.after_all_in(store, ino)?;
            self.leave(store, dir, name)?;
            self.drop_dir(store, ino, dir)
        });
        self.let_go(store, dir)?;
        result
    }

    /// A directory without names has lost its own.
    fn drop_dir(&mut self, store: &mut dyn Store, ino: Ino, parent: Ino) -> Result<(), FsError> {
        self.change(store, parent, When::Now, |inode| inode.links = inode.links.saturating_sub(1))?;
        self.change(store, ino, When::Now, |inode| inode.links = 0)?;
        if self.node(store, ino)?.opens == 0 { self.end(store, ino) } else { Ok(()) }
    }

    /// A file has lost a name.
    fn drop_link(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let node = self.node(store, ino)?;
        let (links, opens) = (node.inode.links.saturating_sub(1), node.opens);
        if links == 0 && (opens == 0 || self.defect.is(FsDefect::OpenFileFreed)) {
            return self.end(store, ino);
        }
        self.change(store, ino, When::Now, |inode| inode.links = links)?;
        self.let_go(store, ino)
    }

    /// Renames: what has the new name goes, and at every moment one of the names is there.
    ///
    /// # Errors
    /// [`FsError::Invalid`]: a directory would come to lie within itself. [`FsError::IsDirectory`],
    /// [`FsError::NotDirectory`], [`FsError::NotEmpty`]: what has the new name cannot make way. As [`Volume::make`].
    pub fn rename(
        &mut self,
        store: &mut dyn Store,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
    ) -> Result<(), FsError> {
        self.begin(store)?;
        let result = self.rename_in(store, from, to);
        self.let_go(store, from.0)?;
        self.let_go(store, to.0)?;
        result
    }

    fn rename_in(
        &mut self,
        store: &mut dyn Store,
        (from, old): (Ino, &[u8]),
        (to, new): (Ino, &[u8]),
    ) -> Result<(), FsError> {
        let dots = |name: &[u8]| name == b"." || name == b"..";
        if dots(old) || dots(new) {
            return Err(FsError::Busy);
        }
        for dir in [from, to] {
            if self.node(store, dir)?.inode.kind != Some(Kind::Directory) {
                return Err(FsError::NotDirectory);
            }
        }
        let (ino, kind) = self.find(store, from, old)?;
        proper(new)?;
        let is_dir = kind == Kind::Directory;
        let target = match self.find(store, to, new) {
            Ok(found) => Some(found),
            Err(FsError::NotFound) => None,
            Err(e) => return Err(e),
        };
        if self.node(store, to)?.inode.links == 0 {
            return Err(FsError::NotFound);
        }
        if is_dir {
            self.outside(store, ino, to)?;
        }
        if let Some((there, there_kind)) = target {
            if there == ino {
                return Ok(());
            }
            if there_kind == Kind::Directory
                && matches!(self.outside(store, there, from), Err(FsError::Invalid))
            {
                return Err(FsError::NotEmpty);
            }
            match (is_dir, there_kind == Kind::Directory) {
                (false, true) => return Err(FsError::IsDirectory),
                (true, false) => return Err(FsError::NotDirectory),
                (true, true) if !self.is_empty_dir(store, there)? => {
                    self.let_go(store, there)?;
                    return Err(FsError::NotEmpty);
                }
                _ => {}
            }
        }
        let moves = is_dir && from != to;
        // One that replaces another has that one's link of the parent.
        if moves && target.is_none() && self.node(store, to)?.inode.links >= MAX_LINKS {
            return Err(FsError::TooManyLinks);
        }
        if is_dir {
            self.after_moves(ino);
        }
        if let Some((there, Kind::Directory)) = target {
            self.after_moves(there);
            self.after_all_in(store, there)?;
        }
        if self.defect.is(FsDefect::OldNameFirst) {
            self.leave(store, from, old)?;
        }
        self.change(store, ino, When::Now, |inode| inode.links = inode.links.saturating_add(1))?;
        if moves {
            // A directory that replaces another has that one's link of the parent, later.
            self.change(store, to, When::Now, |inode| inode.links = inode.links.saturating_add(1))?;
        }
        let named = match target {
            Some(_) => self.reassign(store, to, new, ino, kind),
            None => self.enter(store, to, new, ino, kind),
        };
        if let Err(e) = named {
            if moves {
                self.change(store, to, When::Now, |inode| inode.links = inode.links.saturating_sub(1))?;
            }
            self.change(store, ino, When::Now, |inode| inode.links = inode.links.saturating_sub(1))?;
            self.let_go(store, ino)?;
            return Err(e);
        }
        if moves && !self.defect.is(FsDefect::ParentKept) {
            self.reassign(store, ino, b"..", to, Kind::Directory)?;
        }
        if !self.defect.is(FsDefect::OldNameFirst) {
            self.leave(store, from, old)?;
        }
        if is_dir {
            self.moved();
        }
        if moves {
            self.change(store, from, When::Now, |inode| inode.links = inode.links.saturating_sub(1))?;
        }
        self.change(store, ino, When::Now, |inode| inode.links = inode.links.saturating_sub(1))?;
        self.let_go(store, ino)?;
        match target {
            Some(_) if self.defect.is(FsDefect::ReplacedKept) => Ok(()),
            Some((there, Kind::Directory)) => self.drop_dir(store, there, to),
            Some((there, Kind::File | Kind::Link)) => self.drop_link(store, there),
            None => Ok(()),
        }
    }

    /// Refuses a directory `to` that is `ino` or lies within it.
    fn outside(&mut self, store: &mut dyn Store, ino: Ino, to: Ino) -> Result<(), FsError> {
        let mut at = to;
        // No way up is longer than there are inodes, unless it goes in a circle.
        for _ in 0..self.geometry.inodes() {
            if at == ino {
                return Err(FsError::Invalid);
            }
            if at == self.root() {
                return Ok(());
            }
            let up = self.parent(store, at)?;
            if at != to {
                self.let_go(store, at)?;
            }
            at = up;
        }
        Err(FsError::Damaged("directories lie within each other in a circle".into()))
    }
}
