//! The blocks of a file: direct, behind an indirect block, behind two of them.
//!
//! A pointer read from the disk is used only if a file can have such a block. New indirect blocks are on the disk,
//! cleared, before anything points to them.
//!
//! The last block has as many fragments as the file needs. Where it is to have more, it gets those behind it, or moves
//! to a block with room to grow ([`Volume::reach`], after `ffs_realloccg`); what it moves from is free when nothing on
//! the disk points there any more. Without soft updates the inode may be on the disk before the bytes that have moved,
//! as in FFS: what was synced before is safe again when it is synced once more.

use crate::Ino;
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::layout::{DIRECT, Geometry, Run};
use crate::store::{Sort, Store, When};
use crate::volume::Volume;
use alloc::vec;

/// Where the pointer to a block of a file is: in the inode, or one or two indirect blocks from there.
enum Place {
    Direct(usize),
    Indirect(u64),
    Double(u64, u64),
}

/// The way to block `index` of a file, which a file can have.
fn place_of(geometry: &Geometry, index: u64) -> Place {
    let (direct, per) = (DIRECT as u64, geometry.pointers());
    match index {
        _ if index < direct => Place::Direct(index as usize),
        _ if index < direct + per => Place::Indirect(index - direct),
        _ => Place::Double((index - direct - per) / per, (index - direct - per) % per),
    }
}

impl Volume {
    /// A pointer in an indirect block.
    pub(crate) fn pointer(&self, store: &mut dyn Store, block: u32, index: u64) -> Result<u32, FsError> {
        let mut bytes = [0; 4];
        store.read(self.geometry.byte_of(block) + 4 * index, &mut bytes)?;
        self.sound_block(u32::from_le_bytes(bytes))
    }

    /// The first fragment of a file's block `index`, if it has one.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub(crate) fn block_of(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
    ) -> Result<Option<u32>, FsError> {
        if index >= self.geometry.max_blocks() {
            return Ok(None);
        }
        let node = self.node(store, ino)?;
        let (inode, room, pointers) = (node.inode, node.room_bytes, node.inode.pointers);
        let block = match place_of(&self.geometry, index) {
            Place::Direct(i) => self.run_of(&inode, room, i)?.map_or(0, |run| run.first),
            Place::Indirect(i) => match self.sound_block(pointers[DIRECT])? {
                0 => 0,
                indirect => self.pointer(store, indirect, i)?,
            },
            Place::Double(i, j) => match self.sound_block(pointers[DIRECT + 1])? {
                0 => 0,
                double => match self.pointer(store, double, i)? {
                    0 => 0,
                    indirect => self.pointer(store, indirect, j)?,
                },
            },
        };
        Ok((block != 0).then_some(block))
    }

    /// The fragments of block `index` of a file that is to have bytes up to `end`, taken if it has none; true if they
    /// are new, and hold whatever was there. Pointers in indirect blocks are written at the time that is said; the
    /// inode is changed in memory.
    ///
    /// # Errors
    /// [`FsError::TooLarge`], [`FsError::NoSpace`], [`FsError::Damaged`], the disk.
    pub(crate) fn take_block_of(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
        end: u64,
        when: When,
    ) -> Result<(Run, bool), FsError> {
        if index >= self.geometry.max_blocks() {
            return Err(FsError::TooLarge);
        }
        let node = self.node(store, ino)?;
        let (before, room) = (node.inode, node.room_bytes.max(end));
        let count = self.geometry.fragments_at(room, index);
        if let Some(first) = self.block_of(store, ino, index)? {
            return Ok((Run { first, count }, false));
        }
        let taken = self.take_new_block_of(store, ino, index, count, when);
        let block_bytes = u64::from(self.geometry.block_bytes);
        let covered = before.size.div_ceil(block_bytes);
        if taken == Err(FsError::NoSpace) && self.node(store, ino)?.inode != before && index >= covered {
            // An indirect block was to lead there. What the file got in front of it is about to be within its length.
            let goes_on = index > covered && self.block_of(store, ino, index - 1)?.is_some();
            self.cut(store, ino, if goes_on { index * block_bytes } else { before.size }, before.size)?;
        }
        taken.map(|run| (run, true))
    }

    /// Lets the block that a file ends in have the fragments that it has when the file is so long. They are clear.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::Damaged`], the disk.
    pub(crate) fn reach(&mut self, store: &mut dyn Store, ino: Ino, end: u64) -> Result<(), FsError> {
        let node = self.node(store, ino)?;
        let (inode, room) = (node.inode, node.room_bytes);
        let block_bytes = u64::from(self.geometry.block_bytes);
        let last = room.saturating_sub(1) / block_bytes;
        if end <= room || room == 0 || last >= DIRECT as u64 {
            return Ok(());
        }
        let Some(run) = self.run_of(&inode, room, last as usize)? else { return Ok(()) };
        let reached = end.min((last + 1) * block_bytes);
        let count = self.geometry.fragments_at(reached, last);
        if count > run.count {
            self.widen(store, ino, last as usize, run, count)?;
        }
        self.node(store, ino)?.room_bytes = reached;
        Ok(())
    }

    /// Gives a direct block `count` fragments, where it is or elsewhere. The new ones are clear.
    fn widen(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        which: usize,
        run: Run,
        count: u32,
    ) -> Result<(), FsError> {
        if self.maps.extend(store, run, count)? {
            let more = Run { count, ..run }.behind(run.count);
            self.expect_contents(store, more);
            store.block(self.geometry.bytes_of(Run { count, ..run }));
            let zeros = vec![0; self.geometry.len_of(more)];
            if !self.defect.is(FsDefect::WidenedNotCleared)
                && let Err(e) = store.write(self.geometry.byte_of(more.first), &zeros, When::Later)
            {
                self.give(store, &[more], None)?;
                return Err(e.into());
            }
            return self.count_fragments(store, ino, more.count);
        }
        let near = self.near(store, ino, which as u64)?;
        let new = self.take_run(store, near, count, true)?;
        let mut bytes = vec![0; self.geometry.len_of(new)];
        let (from, to) = (self.geometry.bytes_of(run), self.geometry.byte_of(new.first));
        store.block(from.clone());
        store.block(self.geometry.bytes_of(new));
        let moved = store.read(from.start, &mut bytes[..self.geometry.len_of(run)]);
        let moved = moved.and_then(|()| match self.defect.is(FsDefect::MovedWithoutBytes) {
            true => Ok(()),
            false => store.write(to, &bytes, When::Later),
        });
        if let Err(e) = moved {
            self.give(store, &[new], None)?;
            return Err(e.into());
        }
        // What is given back must be after that; without soft updates it waits for the inode's turn.
        let when = if self.order.is_some() { When::Now } else { When::Later };
        self.change(store, ino, when, |inode| {
            inode.pointers[which] = new.first;
            inode.fragments = inode.fragments.saturating_add(count - run.count);
        })?;
        self.vacate(store, ino, run)
    }

    /// Takes a block from a file again that it has just got: a hole is there, as before.
    pub(crate) fn give_back_block(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
    ) -> Result<(), FsError> {
        let Some(first) = self.block_of(store, ino, index)? else { return Ok(()) };
        let node = self.node(store, ino)?;
        let (roots, room) = (node.inode.pointers, node.room_bytes);
        let run = Run { first, count: self.geometry.fragments_at(room, index) };
        let (indirect, i) = match place_of(&self.geometry, index) {
            Place::Direct(i) => {
                self.change(store, ino, When::Now, |inode| {
                    inode.pointers[i] = 0;
                    inode.fragments = inode.fragments.saturating_sub(run.count);
                })?;
                return self.free(store, &[run], None);
            }
            Place::Indirect(i) => (roots[DIRECT], i),
            Place::Double(i, j) => (self.pointer(store, roots[DIRECT + 1], i)?, j),
        };
        let at = self.geometry.byte_of(indirect) + 4 * i;
        self.write_pointers(store, (at, &[0; 4]), None, When::Now)?;
        self.change(store, ino, When::Later, |inode| {
            inode.fragments = inode.fragments.saturating_sub(run.count);
        })?;
        self.free(store, &[run], None)
    }

    /// Where block `index` of a file had best be.
    fn near(&mut self, store: &mut dyn Store, ino: Ino, index: u64) -> Result<u32, FsError> {
        let before = match index.checked_sub(1) {
            Some(before) => self.block_of(store, ino, before)?,
            None => None,
        };
        Ok(before.map_or_else(
            || {
                let group = ino.0 / self.geometry.group_inodes;
                group * self.geometry.group_fragments + self.geometry.reserved_fragments()
            },
            |before| before + self.geometry.per_block(),
        ))
    }

    fn take_new_block_of(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
        count: u32,
        when: When,
    ) -> Result<Run, FsError> {
        let near = self.near(store, ino, index)?;
        match place_of(&self.geometry, index) {
            Place::Direct(i) => {
                let run = self.take_run(store, near, count, false)?;
                self.set_pointer(store, ino, i, run)?;
                Ok(run)
            }
            Place::Indirect(i) => {
                let indirect = self.root_pointer(store, ino, DIRECT, near)?;
                self.leaf(store, ino, indirect, i, near, when)
            }
            Place::Double(i, j) => {
                let double = self.root_pointer(store, ino, DIRECT + 1, near)?;
                let indirect = match self.pointer(store, double, i)? {
                    0 => {
                        let new = self.indirect_block(store, near)?;
                        self.put_pointer(store, double, i, new.first, when)?;
                        self.count_fragments(store, ino, new.count)?;
                        new.first
                    }
                    there => there,
                };
                self.leaf(store, ino, indirect, j, near, when)
            }
        }
    }

    fn leaf(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        indirect: u32,
        index: u64,
        near: u32,
        when: When,
    ) -> Result<Run, FsError> {
        let block = self.take_block(store, near)?;
        self.put_pointer(store, indirect, index, block.first, when)?;
        self.count_fragments(store, ino, block.count)?;
        Ok(block)
    }

    /// The block behind pointer `which` of the inode, an indirect one, taken if there is none.
    fn root_pointer(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        which: usize,
        near: u32,
    ) -> Result<u32, FsError> {
        let there = self.node(store, ino)?.inode.pointers[which];
        match self.sound_block(there)? {
            0 => {
                let new = self.indirect_block(store, near)?;
                self.set_pointer(store, ino, which, new)?;
                Ok(new.first)
            }
            there => Ok(there),
        }
    }

    /// A new indirect block, which is on the disk before anything points to it.
    fn indirect_block(&mut self, store: &mut dyn Store, near: u32) -> Result<Run, FsError> {
        let block = self.take_block(store, near)?;
        let when = if self.defect.is(FsDefect::IndirectWrittenLater) { When::Later } else { When::Now };
        if !self.defect.is(FsDefect::IndirectNotCleared) {
            let zeros = vec![0; self.geometry.block_bytes as usize];
            self.write_contents(store, block, &zeros, Sort::Metadata, when)?;
        }
        Ok(block)
    }

    fn set_pointer(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        which: usize,
        run: Run,
    ) -> Result<(), FsError> {
        self.change(store, ino, When::Later, |inode| {
            inode.pointers[which] = run.first;
            inode.fragments = inode.fragments.saturating_add(run.count);
        })
    }

    fn count_fragments(&mut self, store: &mut dyn Store, ino: Ino, more: u32) -> Result<(), FsError> {
        self.change(store, ino, When::Later, |inode| inode.fragments = inode.fragments.saturating_add(more))
    }

    fn put_pointer(
        &mut self,
        store: &mut dyn Store,
        indirect: u32,
        index: u64,
        block: u32,
        when: When,
    ) -> Result<(), FsError> {
        let at = self.geometry.byte_of(indirect) + 4 * index;
        self.write_pointers(store, (at, &block.to_le_bytes()), Some(block), when)
    }
}
