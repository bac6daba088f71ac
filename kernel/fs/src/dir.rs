//! Directories: finding, entering, reassigning and removing one name, each change as one write.
//!
//! The names of a directory that was looked into are kept in memory (FreeBSD's `dirhash`), and the entry is looked at
//! again when it is found.

use crate::Ino;
use crate::chunk::{MAX_NAME, Slot, empty_chunk, put_entry, room_for, room_in, room_in_chunk, slots};
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::inode::Kind;
use crate::layout::put_u32;
use crate::order::NameChange;
use crate::store::{SECTOR_BYTES as CHUNK, Sort, Store, When};
use crate::volume::{DirIndex, Volume};
use alloc::format;
use alloc::vec::Vec;

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// The name's bytes.
    pub name: Vec<u8>,
    /// What it is of.
    pub ino: Ino,
    /// A file, a directory or a symbolic link.
    pub kind: Kind,
}

impl Volume {
    /// Reads a chunk of a directory; and where it is on the disk.
    pub(crate) fn chunk(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        number: u32,
    ) -> Result<([u8; CHUNK], u64), FsError> {
        let byte = u64::from(number) * CHUNK as u64;
        let block_bytes = u64::from(self.geometry.block_bytes);
        let block = self.block_of(store, dir, byte / block_bytes)?;
        let block = block.ok_or_else(|| FsError::Damaged(format!("directory {} has a hole", dir.0)))?;
        let at = self.geometry.byte_of(block) + byte % block_bytes;
        let mut chunk = [0; CHUNK];
        store.read(at, &mut chunk)?;
        Ok((chunk, at))
    }

    fn slots_of(&self, dir: Ino, chunk: &[u8]) -> Result<Vec<Slot>, FsError> {
        slots(chunk).map_err(|why| FsError::Damaged(format!("directory {}: {why}", dir.0)))
    }

    /// Reads a directory's names into memory.
    fn load_dir(&mut self, store: &mut dyn Store, dir: Ino) -> Result<(), FsError> {
        if self.dirs.contains_key(&dir) {
            return Ok(());
        }
        let inode = self.node(store, dir)?.inode;
        if inode.kind != Some(Kind::Directory) {
            return Err(FsError::NotDirectory);
        }
        if !inode.size.is_multiple_of(CHUNK as u64) {
            return Err(FsError::Damaged(format!("directory {} is of {} bytes", dir.0, inode.size)));
        }
        let mut index = DirIndex::default();
        for number in 0..(inode.size / CHUNK as u64) as u32 {
            let (chunk, _) = self.chunk(store, dir, number)?;
            let slots = self.slots_of(dir, &chunk)?;
            for slot in slots.iter().filter(|slot| slot.ino != 0) {
                let name = slot.name(&chunk);
                if name != b"." && name != b".." {
                    index.names.insert(name.to_vec(), (number, Ino(slot.ino)));
                }
            }
            index.room.push(room_in(&slots));
        }
        self.dirs.insert(dir, index);
        Ok(())
    }

    /// The entry of `name` in a chunk that should have it.
    fn slot_of(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        number: u32,
        name: &[u8],
    ) -> Result<([u8; CHUNK], u64, Vec<Slot>, usize), FsError> {
        let (chunk, at) = self.chunk(store, dir, number)?;
        let slots = self.slots_of(dir, &chunk)?;
        let which = slots.iter().position(|slot| slot.ino != 0 && slot.name(&chunk) == name);
        let which = which.ok_or_else(|| FsError::Damaged(format!("directory {} has lost a name", dir.0)))?;
        Ok((chunk, at, slots, which))
    }

    /// Finds a name that is neither `.` nor `..`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::NameTooLong`], [`FsError::Damaged`], the disk.
    pub(crate) fn find(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        name: &[u8],
    ) -> Result<(Ino, Kind), FsError> {
        self.load_dir(store, dir)?;
        if name.len() > MAX_NAME {
            return Err(FsError::NameTooLong);
        }
        let &(number, _) = self.dirs[&dir].names.get(name).ok_or(FsError::NotFound)?;
        let (_, _, slots, which) = self.slot_of(store, dir, number, name)?;
        let slot = slots[which];
        let kind = Kind::of(slot.kind.into()).unwrap_or(Kind::File);
        if slot.ino >= self.geometry.inodes() {
            return Err(FsError::Damaged(format!("directory {} names inode {}", dir.0, slot.ino)));
        }
        Ok((Ino(slot.ino), kind))
    }

    /// Writes a new name, at once. There is none such.
    pub(crate) fn enter(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        name: &[u8],
        ino: Ino,
        kind: Kind,
    ) -> Result<(), FsError> {
        self.load_dir(store, dir)?;
        let needed = room_for(name.len());
        let mut from = 0;
        let (number, mut chunk, at, host) = loop {
            let rooms = self.dirs[&dir].room[from..].iter();
            let number = match rooms.clone().position(|&room| usize::from(room) >= needed) {
                Some(number) => (from + number) as u32,
                None => self.grow_dir(store, dir)?,
            };
            let (chunk, at) = self.chunk(store, dir, number)?;
            let slots = self.slots_of(dir, &chunk)?;
            let has_room = |slot: &&Slot| slot.len - slot.used() >= needed;
            let mut hosts = slots.iter().filter(has_room).peekable();
            if hosts.peek().is_none() {
                return Err(FsError::Damaged(format!("directory {} has lost room", dir.0)));
            }
            // A name that may have to be there once more keeps its place.
            match hosts.find(|slot| slot.ino != 0 || self.is_settled(store, at + slot.at as u64)) {
                Some(host) => break (number, chunk, at, *host),
                None => from = number as usize + 1,
            }
        };
        let (start, len) = (host.at + host.used(), host.len - host.used());
        if host.ino != 0 && !self.defect.is(FsDefect::EntryOverlaps) {
            let used = host.used() as u16;
            chunk[host.at + 4..host.at + 6].copy_from_slice(&used.to_le_bytes());
        }
        put_entry(&mut chunk, start, len, ino.0, kind.number(), name);
        let how = NameChange { dir, name, given_to: Some(ino), is_taken: false };
        self.write_name(store, (at, &chunk, start), &how)?;
        let room = room_in_chunk(&chunk);
        let index = self.dirs.get_mut(&dir).expect("loaded above");
        index.names.insert(name.to_vec(), (number, ino));
        index.room[number as usize] = room;
        Ok(())
    }

    /// A block more: its chunks are on the disk before the directory is longer. The first of the new chunks.
    fn grow_dir(&mut self, store: &mut dyn Store, dir: Ino) -> Result<u32, FsError> {
        let size = self.node(store, dir)?.inode.size;
        let block_bytes = u64::from(self.geometry.block_bytes);
        if !size.is_multiple_of(block_bytes) {
            return Err(FsError::Damaged(format!("directory {} ends within a block", dir.0)));
        }
        let (run, _) = self.take_block_of(store, dir, size / block_bytes, size + block_bytes, When::Now)?;
        let chunks = self.geometry.block_bytes as usize / CHUNK;
        self.write_contents(store, run, &empty_chunk().repeat(chunks), Sort::Directory, When::Now)?;
        self.change(store, dir, When::Now, |inode| inode.size = size + block_bytes)?;
        self.node(store, dir)?.room_bytes = size + block_bytes;
        let index = self.dirs.get_mut(&dir).expect("its caller has loaded it");
        let first = index.room.len() as u32;
        index.room.extend(core::iter::repeat_n(CHUNK as u16, chunks));
        Ok(first)
    }

    /// Lets a name be another inode's, at once: as one write.
    pub(crate) fn reassign(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        name: &[u8],
        ino: Ino,
        kind: Kind,
    ) -> Result<(), FsError> {
        self.load_dir(store, dir)?;
        let number =
            if name == b".." { 0 } else { self.dirs[&dir].names.get(name).ok_or(FsError::NotFound)?.0 };
        let (mut chunk, at, slots, which) = self.slot_of(store, dir, number, name)?;
        put_u32(&mut chunk, slots[which].at, ino.0);
        chunk[slots[which].at + 6] = kind.number();
        let given_to = (name != b"..").then_some(ino);
        let how = NameChange { dir, name, given_to, is_taken: true };
        self.write_name(store, (at, &chunk, slots[which].at), &how)?;
        if name != b".." {
            self.dirs.get_mut(&dir).expect("loaded").names.insert(name.to_vec(), (number, ino));
        }
        Ok(())
    }

    /// Takes a name away, at once.
    pub(crate) fn leave(&mut self, store: &mut dyn Store, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.load_dir(store, dir)?;
        let &(number, _) = self.dirs[&dir].names.get(name).ok_or(FsError::NotFound)?;
        let (mut chunk, at, slots, which) = self.slot_of(store, dir, number, name)?;
        let slot = slots[which];
        let how = NameChange { dir, name, given_to: None, is_taken: true };
        if self.order.is_some() {
            put_u32(&mut chunk, slot.at, 0);
            self.write_name(store, (at, &chunk, slot.at), &how)?;
        }
        match which.checked_sub(1) {
            // A name that may have to be there once more keeps its place.
            Some(_) if !self.is_settled(store, at + slot.at as u64) => {}
            // What it had is its forerunner's.
            Some(before) => {
                let len = ((slots[before].len + slot.len) as u16).to_le_bytes();
                let head = slots[before].at;
                chunk[head + 4..head + 6].copy_from_slice(&len);
                if self.order.is_some() {
                    store.write(at + head as u64 + 4, &len, When::Later)?;
                }
            }
            None => put_u32(&mut chunk, slot.at, 0),
        }
        if self.order.is_none() {
            self.write_name(store, (at, &chunk, slot.at), &how)?;
        }
        let room = room_in_chunk(&chunk);
        let index = self.dirs.get_mut(&dir).expect("loaded above");
        index.names.remove(name);
        index.room[number as usize] = room;
        Ok(())
    }

    /// The parent of a directory.
    pub(crate) fn parent(&mut self, store: &mut dyn Store, dir: Ino) -> Result<Ino, FsError> {
        let (chunk, _, slots, which) = self.slot_of(store, dir, 0, b"..")?;
        let _ = chunk;
        Ok(Ino(slots[which].ino))
    }

    /// True when a directory has no names.
    pub(crate) fn is_empty_dir(&mut self, store: &mut dyn Store, dir: Ino) -> Result<bool, FsError> {
        self.load_dir(store, dir)?;
        Ok(self.dirs[&dir].names.is_empty())
    }

    /// The names of a directory, without `.` and `..`, in order.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`], [`FsError::Damaged`], the disk.
    pub fn entries(&mut self, store: &mut dyn Store, dir: Ino) -> Result<Vec<Entry>, FsError> {
        self.load_dir(store, dir)?;
        let names: Vec<(Vec<u8>, Ino)> =
            self.dirs[&dir].names.iter().map(|(name, (_, ino))| (name.clone(), *ino)).collect();
        let mut entries = Vec::new();
        for (name, ino) in names {
            let kind = self.find(store, dir, &name)?.1;
            entries.push(Entry { name, ino, kind });
        }
        self.let_go(store, dir)?;
        Ok(entries)
    }
}
