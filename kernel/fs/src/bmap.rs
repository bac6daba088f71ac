//! The blocks of a file: direct, behind an indirect block, behind two of them.
//!
//! A pointer read from the disk is used only if a file can have such a block. New indirect blocks are on the disk,
//! cleared, before anything points to them.

use crate::Ino;
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::layout::{DIRECT, Geometry};
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
        self.sound(u32::from_le_bytes(bytes))
    }

    /// The block of a file's block `index`, if it has one.
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
        let pointers = self.node(store, ino)?.inode.pointers;
        let block = match place_of(&self.geometry, index) {
            Place::Direct(i) => self.sound(pointers[i])?,
            Place::Indirect(i) => match self.sound(pointers[DIRECT])? {
                0 => 0,
                indirect => self.pointer(store, indirect, i)?,
            },
            Place::Double(i, j) => match self.sound(pointers[DIRECT + 1])? {
                0 => 0,
                double => match self.pointer(store, double, i)? {
                    0 => 0,
                    indirect => self.pointer(store, indirect, j)?,
                },
            },
        };
        Ok((block != 0).then_some(block))
    }

    /// The block of a file's block `index`, taken if it has none; true if it is new, and holds whatever was there.
    /// Pointers in indirect blocks are written at the time that is said; the inode is changed in memory.
    ///
    /// # Errors
    /// [`FsError::TooLarge`], [`FsError::NoSpace`], [`FsError::Damaged`], the disk.
    pub(crate) fn take_block_of(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
        when: When,
    ) -> Result<(u32, bool), FsError> {
        if index >= self.geometry.max_blocks() {
            return Err(FsError::TooLarge);
        }
        if let Some(block) = self.block_of(store, ino, index)? {
            return Ok((block, false));
        }
        let before = self.node(store, ino)?.inode;
        let taken = self.take_new_block_of(store, ino, index, when);
        let covered = before.size.div_ceil(u64::from(self.geometry.block_bytes));
        if taken == Err(FsError::NoSpace) && self.node(store, ino)?.inode != before && index >= covered {
            // An indirect block was to lead there. What the file got in front of it is about to be within its length.
            let goes_on = index > covered && self.block_of(store, ino, index - 1)?.is_some();
            self.cut(store, ino, if goes_on { index } else { covered }, before.size)?;
        }
        taken.map(|block| (block, true))
    }

    /// Takes a block from a file again that it has just got: a hole is there, as before.
    pub(crate) fn give_back_block(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
    ) -> Result<(), FsError> {
        let Some(block) = self.block_of(store, ino, index)? else { return Ok(()) };
        let roots = self.node(store, ino)?.inode.pointers;
        let (indirect, i) = match place_of(&self.geometry, index) {
            Place::Direct(i) => {
                self.change(store, ino, When::Now, |inode| {
                    inode.pointers[i] = 0;
                    inode.blocks = inode.blocks.saturating_sub(1);
                })?;
                return self.free(store, &[block], None);
            }
            Place::Indirect(i) => (roots[DIRECT], i),
            Place::Double(i, j) => (self.pointer(store, roots[DIRECT + 1], i)?, j),
        };
        let at = self.geometry.byte_of(indirect) + 4 * i;
        self.write_pointers(store, (at, &[0; 4]), None, When::Now)?;
        self.change(store, ino, When::Later, |inode| inode.blocks = inode.blocks.saturating_sub(1))?;
        self.free(store, &[block], None)
    }

    fn take_new_block_of(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
        when: When,
    ) -> Result<u32, FsError> {
        let near = match index.checked_sub(1) {
            Some(before) => self.block_of(store, ino, before)?.map(|block| block + 1),
            None => None,
        };
        let near = near.unwrap_or_else(|| {
            let group = ino.0 / self.geometry.group_inodes;
            group * self.geometry.group_blocks + self.geometry.reserved_blocks()
        });
        match place_of(&self.geometry, index) {
            Place::Direct(i) => {
                let block = self.take_block(store, near)?;
                self.set_pointer(store, ino, i, block)?;
                Ok(block)
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
                        self.put_pointer(store, double, i, new, when)?;
                        self.count_blocks(store, ino, 1)?;
                        new
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
    ) -> Result<u32, FsError> {
        let block = self.take_block(store, near)?;
        self.put_pointer(store, indirect, index, block, when)?;
        self.count_blocks(store, ino, 1)?;
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
        match self.sound(there)? {
            0 => {
                let new = self.indirect_block(store, near)?;
                self.set_pointer(store, ino, which, new)?;
                Ok(new)
            }
            there => Ok(there),
        }
    }

    /// A new indirect block, which is on the disk before anything points to it.
    fn indirect_block(&mut self, store: &mut dyn Store, near: u32) -> Result<u32, FsError> {
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
        block: u32,
    ) -> Result<(), FsError> {
        self.change(store, ino, When::Later, |inode| {
            inode.pointers[which] = block;
            inode.blocks = inode.blocks.saturating_add(1);
        })
    }

    fn count_blocks(&mut self, store: &mut dyn Store, ino: Ino, more: u32) -> Result<(), FsError> {
        self.change(store, ino, When::Later, |inode| inode.blocks = inode.blocks.saturating_add(more))
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
