//! Free maps: which inodes and blocks are in use, in memory and on the disk.
//!
//! A set bit is in use. Every change is made in memory and in the group's header, which is written later: a power cut
//! leaves maps that the checker makes anew. What is behind the volume's last block is in use for ever, as are the
//! blocks that no file can have.

use crate::Ino;
use crate::error::FsError;
use crate::layout::{Geometry, ROOT};
use crate::store::{Store, When};
use alloc::vec;
use alloc::vec::Vec;

struct Group {
    inodes: Vec<u8>,
    blocks: Vec<u8>,
    free_inodes: u32,
    free_blocks: u32,
}

pub(crate) struct Maps {
    geometry: Geometry,
    groups: Vec<Group>,
    /// So many allocations succeed before one fails, in a test.
    #[cfg(feature = "verify")]
    pub(crate) fails_after: Option<u32>,
}

fn is_set(map: &[u8], bit: u32) -> bool {
    map[bit as usize / 8] & 1 << (bit % 8) != 0
}

fn set(map: &mut [u8], bit: u32, on: bool) {
    let mask = 1 << (bit % 8);
    if on {
        map[bit as usize / 8] |= mask;
    } else {
        map[bit as usize / 8] &= !mask;
    }
}

/// The first clear bit of `0..len` from `from` on, then from the beginning on.
fn first_clear(map: &[u8], len: u32, from: u32) -> Option<u32> {
    let find = |from: u32, to: u32| {
        let mut bit = from;
        while bit < to {
            if bit.is_multiple_of(8) && map[bit as usize / 8] == 0xff {
                bit += 8;
            } else if is_set(map, bit) {
                bit += 1;
            } else {
                return Some(bit);
            }
        }
        None
    };
    let from = from.min(len);
    find(from, len).or_else(|| find(0, from))
}

impl Maps {
    /// Maps of a volume in which nothing is in use but what no file can have.
    pub(crate) fn empty(geometry: Geometry) -> Maps {
        let groups = (0..geometry.groups()).map(|group| {
            let mut blocks = vec![0; geometry.block_map_bytes()];
            let there = geometry.blocks_of(group).len() as u32;
            let taken = (0..geometry.reserved_blocks()).chain(there..geometry.group_blocks);
            taken.for_each(|bit| set(&mut blocks, bit, true));
            let mut inodes = vec![0; geometry.inode_map_bytes()];
            let nobody = if group == 0 { ROOT } else { 0 };
            (0..nobody).for_each(|bit| set(&mut inodes, bit, true));
            Group {
                inodes,
                blocks,
                free_inodes: geometry.group_inodes - nobody,
                free_blocks: there - geometry.reserved_blocks(),
            }
        });
        Maps {
            geometry,
            groups: groups.collect(),
            #[cfg(feature = "verify")]
            fails_after: None,
        }
    }

    /// The maps on the disk.
    ///
    /// # Errors
    /// The disk.
    pub(crate) fn load(geometry: Geometry, store: &mut dyn Store) -> Result<Maps, FsError> {
        let mut maps = Maps::empty(geometry);
        for (number, group) in (0..).zip(&mut maps.groups) {
            let reserved = Maps::empty_blocks(&geometry, number);
            store.read(geometry.inode_map_at(number), &mut group.inodes)?;
            store.read(geometry.block_map_at(number), &mut group.blocks)?;
            // What no file can have is never free, whatever the disk says.
            group.blocks.iter_mut().zip(reserved).for_each(|(byte, taken)| *byte |= taken);
            if number == 0 {
                (0..=ROOT).for_each(|ino| set(&mut group.inodes, ino, true));
            }
            let clear = |map: &[u8], len| (0..len).filter(|&bit| !is_set(map, bit)).count() as u32;
            group.free_inodes = clear(&group.inodes, geometry.group_inodes);
            group.free_blocks = clear(&group.blocks, geometry.group_blocks);
        }
        Ok(maps)
    }

    fn empty_blocks(geometry: &Geometry, group: u32) -> Vec<u8> {
        let mut blocks = vec![0; geometry.block_map_bytes()];
        let there = geometry.blocks_of(group).len() as u32;
        let taken = (0..geometry.reserved_blocks()).chain(there..geometry.group_blocks);
        taken.for_each(|bit| set(&mut blocks, bit, true));
        blocks
    }

    /// Writes all maps.
    pub(crate) fn store(&self, store: &mut dyn Store) -> Result<(), FsError> {
        for (number, group) in (0..).zip(&self.groups) {
            store.write(self.geometry.inode_map_at(number), &group.inodes, When::Later)?;
            store.write(self.geometry.block_map_at(number), &group.blocks, When::Later)?;
        }
        Ok(())
    }

    pub(crate) fn free_blocks(&self) -> u32 {
        self.groups.iter().map(|group| group.free_blocks).sum()
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        self.groups.iter().map(|group| group.free_inodes).sum()
    }

    pub(crate) fn has_inode(&self, ino: Ino) -> bool {
        let (group, bit) = (ino.0 / self.geometry.group_inodes, ino.0 % self.geometry.group_inodes);
        is_set(&self.groups[group as usize].inodes, bit)
    }

    pub(crate) fn has_block(&self, block: u32) -> bool {
        let (group, bit) = (block / self.geometry.group_blocks, block % self.geometry.group_blocks);
        is_set(&self.groups[group as usize].blocks, bit)
    }

    /// Marks an inode, in memory only.
    pub(crate) fn mark_inode(&mut self, ino: Ino, on: bool) {
        let (group, bit) = (ino.0 / self.geometry.group_inodes, ino.0 % self.geometry.group_inodes);
        let group = &mut self.groups[group as usize];
        if is_set(&group.inodes, bit) != on {
            set(&mut group.inodes, bit, on);
            group.free_inodes = if on { group.free_inodes - 1 } else { group.free_inodes + 1 };
        }
    }

    /// Marks a block, likewise.
    pub(crate) fn mark_block(&mut self, block: u32, on: bool) {
        let (group, bit) = (block / self.geometry.group_blocks, block % self.geometry.group_blocks);
        let group = &mut self.groups[group as usize];
        if is_set(&group.blocks, bit) != on {
            set(&mut group.blocks, bit, on);
            group.free_blocks = if on { group.free_blocks - 1 } else { group.free_blocks + 1 };
        }
    }

    fn write_inode_bit(&self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let (group, bit) = (ino.0 / self.geometry.group_inodes, ino.0 % self.geometry.group_inodes);
        let byte = bit as usize / 8;
        let at = self.geometry.inode_map_at(group) + byte as u64;
        Ok(store.write(at, &self.groups[group as usize].inodes[byte..=byte], When::Later)?)
    }

    fn write_block_bit(&self, store: &mut dyn Store, block: u32) -> Result<(), FsError> {
        let (group, bit) = (block / self.geometry.group_blocks, block % self.geometry.group_blocks);
        let byte = bit as usize / 8;
        let at = self.geometry.block_map_at(group) + byte as u64;
        Ok(store.write(at, &self.groups[group as usize].blocks[byte..=byte], When::Later)?)
    }

    /// Fails where a test wants that.
    fn try_allocation(&mut self) -> Result<(), FsError> {
        #[cfg(feature = "verify")]
        if let Some(left) = &mut self.fails_after {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => {
                    self.fails_after = None;
                    return Err(FsError::NoSpace);
                }
            }
        }
        Ok(())
    }

    /// The groups, `first` first.
    fn order(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        let count = self.groups.len() as u32;
        (0..count).map(move |i| (first % count + i) % count)
    }

    /// Takes an inode: in the group of `near`, or, for a directory, in the group that has most.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], the disk.
    pub(crate) fn take_inode(
        &mut self,
        store: &mut dyn Store,
        near: Ino,
        directory: bool,
    ) -> Result<Ino, FsError> {
        self.try_allocation()?;
        let near = near.0 / self.geometry.group_inodes;
        let roomy = (0..self.groups.len()).rev().max_by_key(|&group| self.groups[group].free_inodes);
        let first = if directory { roomy.map_or(near, |group| group as u32) } else { near };
        let group = self.order(first).find(|&group| self.groups[group as usize].free_inodes > 0);
        let group = group.ok_or(FsError::NoSpace)?;
        let map = &self.groups[group as usize].inodes;
        let bit = first_clear(map, self.geometry.group_inodes, 0).ok_or(FsError::NoSpace)?;
        let ino = Ino(group * self.geometry.group_inodes + bit);
        self.mark_inode(ino, true);
        self.write_inode_bit(store, ino)?;
        Ok(ino)
    }

    /// Gives an inode back, to which nothing on the disk points.
    pub(crate) fn give_inode(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        self.mark_inode(ino, false);
        self.write_inode_bit(store, ino)
    }

    /// Takes a block, `near` if that is free.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], the disk.
    pub(crate) fn take_block(&mut self, store: &mut dyn Store, near: u32) -> Result<u32, FsError> {
        self.try_allocation()?;
        let size = self.geometry.group_blocks;
        let first = near / size;
        let group = self.order(first).find(|&group| self.groups[group as usize].free_blocks > 0);
        let group = group.ok_or(FsError::NoSpace)?;
        let from = if group == first { near % size } else { 0 };
        let map = &self.groups[group as usize].blocks;
        let block = group * size + first_clear(map, size, from).ok_or(FsError::NoSpace)?;
        self.mark_block(block, true);
        self.write_block_bit(store, block)?;
        Ok(block)
    }

    /// Gives a block back, to which nothing on the disk points.
    pub(crate) fn give_block(&mut self, store: &mut dyn Store, block: u32) -> Result<(), FsError> {
        self.mark_block(block, false);
        self.write_block_bit(store, block)
    }
}
