//! Free maps: which inodes and fragments are in use, in memory and on the disk.
//!
//! A set bit is in use. Every change is made in memory and in the group's header, which is written later: a power cut
//! leaves maps that the checker makes anew. What is behind the volume's last fragment is in use for ever, as are the
//! fragments that no file can have.
//!
//! A run of fragments for the end of a file comes from the smallest run of free ones that has room for it, in any block
//! that is not free as a whole; only if there is none is a whole block cut up (`ffs_alloccg`, by `cg_frsum`). How many
//! free runs of each length a group has is counted as bits change.

use crate::Ino;
use crate::error::FsError;
use crate::layout::{Geometry, MAX_PER_BLOCK, ROOT, Run};
use crate::store::{Store, When};
use alloc::vec;
use alloc::vec::Vec;

struct Group {
    inodes: Vec<u8>,
    fragments: Vec<u8>,
    free_inodes: u32,
    free_fragments: u32,
    /// Runs of free fragments that are as long as this, each within a block.
    free_runs: [u32; MAX_PER_BLOCK as usize + 1],
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

/// The runs of clear bits among the first `len` of a block's.
fn clear_runs(bits: u8, len: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut from = 0;
    core::iter::from_fn(move || {
        let first = (from..len).find(|bit| bits & 1 << bit == 0)?;
        let end = (first..len).find(|bit| bits & 1 << bit != 0).unwrap_or(len);
        from = end;
        Some((first, end - first))
    })
}

impl Group {
    /// With maps that are all clear or all as on the disk, and counted anew.
    fn counted(geometry: &Geometry, inodes: Vec<u8>, fragments: Vec<u8>) -> Group {
        let clear = |map: &[u8], len| (0..len).filter(|&bit| !is_set(map, bit)).count() as u32;
        let mut group = Group {
            free_inodes: clear(&inodes, geometry.group_inodes),
            free_fragments: clear(&fragments, geometry.group_fragments),
            inodes,
            fragments,
            free_runs: [0; MAX_PER_BLOCK as usize + 1],
        };
        let per = geometry.per_block();
        for block in (0..geometry.group_fragments).step_by(per as usize) {
            for (_, len) in clear_runs(group.block(block, per), per) {
                group.free_runs[len as usize] += 1;
            }
        }
        group
    }

    /// The bits of the block that a fragment is in; those of others are cut off, or set.
    fn block(&self, bit: u32, per: u32) -> u8 {
        let first = bit / per * per;
        self.fragments[first as usize / 8] >> (first % 8)
    }

    /// Marks fragments of one block, of which some may be marked already.
    fn mark(&mut self, run: Run, on: bool, per: u32) {
        for (_, len) in clear_runs(self.block(run.first, per), per) {
            self.free_runs[len as usize] -= 1;
            self.free_fragments -= len;
        }
        (run.first..run.first + run.count).for_each(|bit| set(&mut self.fragments, bit, on));
        for (_, len) in clear_runs(self.block(run.first, per), per) {
            self.free_runs[len as usize] += 1;
            self.free_fragments += len;
        }
    }

    /// The first free run of exactly this length from a fragment on, then from the group's beginning on.
    fn find(&self, len: u32, from: u32, size: u32, per: u32) -> Option<u32> {
        if self.free_runs[len as usize] == 0 {
            return None;
        }
        let find = |from: u32, to: u32| {
            let mut block = from;
            while block < to {
                if block.is_multiple_of(8) && self.fragments[block as usize / 8] == 0xff {
                    block += 8.max(per);
                    continue;
                }
                let mut runs = clear_runs(self.block(block, per), per);
                if let Some((first, _)) = runs.find(|(_, there)| *there == len) {
                    return Some(block + first);
                }
                block += per;
            }
            None
        };
        let from = from.next_multiple_of(per).min(size);
        find(from, size).or_else(|| find(0, from))
    }
}

impl Maps {
    /// Maps of a volume in which nothing is in use but what no file can have.
    pub(crate) fn empty(geometry: Geometry) -> Maps {
        let groups = (0..geometry.groups()).map(|group| {
            let mut inodes = vec![0; geometry.inode_map_bytes()];
            let nobody = if group == 0 { ROOT } else { 0 };
            (0..nobody).for_each(|bit| set(&mut inodes, bit, true));
            Group::counted(&geometry, inodes, Maps::reserved(&geometry, group))
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
            let reserved = Maps::reserved(&geometry, number);
            let (mut inodes, mut fragments) = (group.inodes.clone(), group.fragments.clone());
            store.read(geometry.inode_map_at(number), &mut inodes)?;
            store.read(geometry.fragment_map_at(number), &mut fragments)?;
            // What no file can have is never free, whatever the disk says.
            fragments.iter_mut().zip(reserved).for_each(|(byte, taken)| *byte |= taken);
            if number == 0 {
                (0..=ROOT).for_each(|ino| set(&mut inodes, ino, true));
            }
            *group = Group::counted(&geometry, inodes, fragments);
        }
        Ok(maps)
    }

    /// A group's map in which is in use what no file can have.
    fn reserved(geometry: &Geometry, group: u32) -> Vec<u8> {
        let mut fragments = vec![0; geometry.fragment_map_bytes()];
        let there = geometry.fragments_of(group).len() as u32;
        let taken = (0..geometry.reserved_fragments()).chain(there..geometry.group_fragments);
        taken.for_each(|bit| set(&mut fragments, bit, true));
        fragments
    }

    /// Writes all maps.
    pub(crate) fn store(&self, store: &mut dyn Store) -> Result<(), FsError> {
        for (number, group) in (0..).zip(&self.groups) {
            store.write(self.geometry.inode_map_at(number), &group.inodes, When::Later)?;
            store.write(self.geometry.fragment_map_at(number), &group.fragments, When::Later)?;
        }
        Ok(())
    }

    pub(crate) fn free_fragments(&self) -> u32 {
        self.groups.iter().map(|group| group.free_fragments).sum()
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        self.groups.iter().map(|group| group.free_inodes).sum()
    }

    pub(crate) fn has_inode(&self, ino: Ino) -> bool {
        let (group, bit) = (ino.0 / self.geometry.group_inodes, ino.0 % self.geometry.group_inodes);
        is_set(&self.groups[group as usize].inodes, bit)
    }

    pub(crate) fn has_fragment(&self, fragment: u32) -> bool {
        let (group, bit) = self.place_of(fragment);
        is_set(&self.groups[group].fragments, bit)
    }

    /// All of a run is free.
    pub(crate) fn is_free(&self, run: Run) -> bool {
        (run.first..run.first + run.count).all(|fragment| !self.has_fragment(fragment))
    }

    /// The group that a fragment is in, and where there.
    fn place_of(&self, fragment: u32) -> (usize, u32) {
        let size = self.geometry.group_fragments;
        ((fragment / size) as usize, fragment % size)
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

    /// Marks fragments, likewise.
    pub(crate) fn mark_run(&mut self, run: Run, on: bool) {
        let (group, first) = self.place_of(run.first);
        self.groups[group].mark(Run { first, ..run }, on, self.geometry.per_block());
    }

    fn write_inode_bit(&self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let (group, bit) = (ino.0 / self.geometry.group_inodes, ino.0 % self.geometry.group_inodes);
        let byte = bit as usize / 8;
        let at = self.geometry.inode_map_at(group) + byte as u64;
        Ok(store.write(at, &self.groups[group as usize].inodes[byte..=byte], When::Later)?)
    }

    /// Writes the bits of a run: they are in one byte, as those of a block are.
    fn write_run(&self, store: &mut dyn Store, run: Run) -> Result<(), FsError> {
        let (group, bit) = self.place_of(run.first);
        let byte = bit as usize / 8;
        let at = self.geometry.fragment_map_at(group as u32) + byte as u64;
        Ok(store.write(at, &self.groups[group].fragments[byte..=byte], When::Later)?)
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

    /// Takes fragments that are neighbours in a block, `near` if those are free: a whole block where it is to be
    /// `roomy`, of which the rest is given back for them to grow into.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], the disk.
    pub(crate) fn take_run(
        &mut self,
        store: &mut dyn Store,
        near: u32,
        count: u32,
        roomy: bool,
    ) -> Result<Run, FsError> {
        self.try_allocation()?;
        let (size, per) = (self.geometry.group_fragments, self.geometry.per_block());
        let first = near / size;
        let find = |lengths: core::ops::RangeInclusive<u32>| {
            self.order(first).find_map(|number| {
                let from = if number == first { near % size } else { 0 };
                let group = &self.groups[number as usize];
                let bit = lengths.clone().find_map(|len| group.find(len, from, size, per))?;
                Some(number * size + bit)
            })
        };
        let whole = if roomy { find(per..=per) } else { None };
        let first = whole.or_else(|| find(count..=per)).ok_or(FsError::NoSpace)?;
        let run = Run { first, count };
        self.mark_run(run, true);
        self.write_run(store, run)?;
        Ok(run)
    }

    /// Lets a run have `count` fragments where it is, if those behind it in its block are free.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] where a test wants that; the disk.
    pub(crate) fn extend(&mut self, store: &mut dyn Store, run: Run, count: u32) -> Result<bool, FsError> {
        let more = Run { first: run.first + run.count, count: count - run.count };
        if run.first % self.geometry.per_block() + count > self.geometry.per_block() || !self.is_free(more) {
            return Ok(false);
        }
        self.try_allocation()?;
        self.mark_run(more, true);
        self.write_run(store, more)?;
        Ok(true)
    }

    /// Gives fragments back, to which nothing on the disk points.
    pub(crate) fn give_run(&mut self, store: &mut dyn Store, run: Run) -> Result<(), FsError> {
        self.mark_run(run, false);
        self.write_run(store, run)
    }
}
