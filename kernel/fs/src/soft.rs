//! Soft updates, the part of the store: changes that wait in its buffers, and what each of them waits for.
//!
//! # The model
//! A change is some bytes of one sector, with what they were before it, or the contents of a block that was just
//! taken. Each change is *after* some older ones: those must be on the disk before it is, or come there in the same
//! sector. A sector is written whenever the store likes to. What in it must not be there yet is rolled back for the
//! time of the write, and done again behind it ([`SoftUpdates::roll_back`], [`SoftUpdates::written`]); the sector then
//! still waits. So sectors may need each other in a circle, changes never: a change is after older ones only, and the
//! oldest of all can be written at any time. That is why a flush ends.
//!
//! A change that lies over an older one of the same sector needs it, but where it covers that: then the older one
//! need not ever be seen on the disk. What the older one is after, the younger one is then, too, if that *lasts*: a
//! name that went must not be gone early by what came to its place; but a name that came and went needs its inode no
//! more. Two states of an inode become one where nothing is in between that the later one is after. And changes that
//! come to what the disk has are none at all: a file that is made and removed before anything was written is never
//! written.
//!
//! The contents of a new block are not rolled back, as nothing on the disk points there: they are there when each
//! sector of the block was written since. What is in blocks that are given back is forgotten with its changes.
//!
//! # Who owns it
//! A store that can do this owns one of these, and asks it at each write. What is after what, the volume says
//! (`ordering`). One rule is the store's: a sector with changes waits to be written until they are all on the disk.
//!
//! # What can fail
//! Nothing here. Where the disk fails, changes stay as they were.

use crate::defect::FsDefect;
use crate::sector::SECTOR_BYTES;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_defects::Planted;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// A change. A greater one is younger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChangeId(u64);

/// Swaps bytes of a buffer with others: those that are at this byte of the disk.
pub type Swap<'a> = &'a mut dyn FnMut(u64, &mut [u8]);

struct Change {
    /// The bytes of the disk that it is of.
    bytes: Range<u64>,
    what: What,
    after: Vec<ChangeId>,
    /// What covers it is after the same.
    lasts: bool,
}

enum What {
    /// Bytes of a sector: here is what the buffer does not have, the older ones but while they are rolled back.
    Bytes(Vec<u8>),
    /// The contents of a block: a bit for each sector that was not written yet.
    Contents(u128),
}

/// What is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChangeOf {
    /// An inode, or pointers.
    Metadata,
    /// An entry of a directory, which has an inode now.
    NameGiven,
    /// One that has another inode than before.
    NameMoved,
    /// One that has none any more.
    NameTaken,
}

impl ChangeOf {
    /// What it is after, all that covers it is after, too.
    fn lasts(self) -> bool {
        matches!(self, ChangeOf::NameMoved | ChangeOf::NameTaken)
    }

    /// Where it makes the bytes what they are on the disk, there is nothing to wait for. (An inode that has a name on
    /// the disk may have had it there by another name: the rest of an entry is no change.)
    fn may_be_none(self) -> bool {
        matches!(self, ChangeOf::Metadata | ChangeOf::NameTaken)
    }
}

impl Change {
    fn overlaps(&self, bytes: &Range<u64>) -> bool {
        matches!(self.what, What::Bytes(_)) && self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

fn covers(outer: &Range<u64>, inner: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn sectors(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / SECTOR..bytes.end.div_ceil(SECTOR)
}

/// Changes that wait in the buffers of a store. See the [module](self).
#[derive(Default)]
pub struct SoftUpdates {
    changes: BTreeMap<ChangeId, Change>,
    /// The changes of each sector, oldest first.
    by_sector: BTreeMap<u64, Vec<ChangeId>>,
    next: u64,
    /// What is rolled back, in the order in which that was done; and what is on the disk when the write has been.
    rolled_back: Vec<ChangeId>,
    settling: Vec<ChangeId>,
    /// Sectors that are being written, of which some may have been contents.
    writing: Vec<u64>,
    /// How many changes have got to the disk, or needed not.
    settled: u64,
    /// How often a change was rolled back.
    rollbacks: u64,
    defect: Planted<FsDefect>,
}

impl SoftUpdates {
    /// Plants a defect.
    #[cfg(feature = "verify")]
    pub fn plant(&mut self, defect: FsDefect) {
        self.defect = defect.into();
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Changes that wait.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// How many changes have got to the disk, or needed not.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// How often a change was rolled back for the time of a write.
    pub fn rollbacks(&self) -> u64 {
        self.rollbacks
    }

    /// This change is not on the disk.
    pub fn waits(&self, id: ChangeId) -> bool {
        self.changes.contains_key(&id)
    }

    /// The bytes that a change is of, if it waits.
    pub fn bytes_of(&self, id: ChangeId) -> Option<Range<u64>> {
        self.changes.get(&id).map(|change| change.bytes.clone())
    }

    /// The changes that wait in some bytes' sectors, oldest first.
    pub fn within(&self, bytes: Range<u64>) -> Vec<ChangeId> {
        let found = self.by_sector.range(sectors(&bytes)).flat_map(|(_, ids)| ids);
        let touched = found.filter(|id| {
            let there = &self.changes[id].bytes;
            there.start < bytes.end && bytes.start < there.end
        });
        touched.copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// These bytes of a sector are as they are now whenever it is written.
    pub(crate) fn is_always_written(&self, bytes: Range<u64>) -> bool {
        let ids = self.by_sector.get(&(bytes.start / SECTOR)).map_or(&[][..], Vec::as_slice);
        let last = ids.iter().rev().map(|id| &self.changes[id]).find(|change| change.overlaps(&bytes));
        last.is_none_or(|change| {
            covers(&change.bytes, &bytes) && !change.after.iter().any(|id| self.waits(*id))
        })
    }

    /// These and all that they are after, oldest first: in this order each can be written.
    pub fn with_older(&self, ids: Vec<ChangeId>) -> Vec<ChangeId> {
        let (mut all, mut next) = (BTreeSet::new(), ids);
        while let Some(id) = next.pop() {
            let Some(change) = self.changes.get(&id) else { continue };
            if all.insert(id) {
                next.extend(&change.after);
                // What lies below it in its sector goes before it, too.
                if let What::Bytes(_) = change.what {
                    let below = self.by_sector[&(change.bytes.start / SECTOR)].iter();
                    next.extend(below.filter(|b| **b < id && self.changes[b].overlaps(&change.bytes)));
                }
            }
        }
        all.into_iter().collect()
    }

    fn add(&mut self, change: Change) -> ChangeId {
        let id = ChangeId(self.next);
        self.next += 1;
        for sector in sectors(&change.bytes) {
            self.by_sector.entry(sector).or_default().push(id);
        }
        self.changes.insert(id, change);
        id
    }

    fn settle(&mut self, id: ChangeId) {
        let Some(change) = self.changes.remove(&id) else { return };
        self.settled += 1;
        for sector in sectors(&change.bytes) {
            if let Some(ids) = self.by_sector.get_mut(&sector) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.by_sector.remove(&sector);
                }
            }
        }
    }

    /// Fragments were taken whose contents come now; nothing is known of what is there on the disk.
    ///
    /// # Panics
    /// If it has more than 128 sectors.
    pub(crate) fn add_contents(&mut self, block: Range<u64>) -> ChangeId {
        let count = sectors(&block).count();
        assert!(count <= 128, "a block is at most 64 KB");
        let left = u128::MAX >> (128 - count);
        self.add(Change { bytes: block, what: What::Contents(left), after: Vec::new(), lasts: false })
    }

    /// The contents that are not all on the disk, of what lies in some bytes.
    pub(crate) fn contents_of(&self, bytes: Range<u64>) -> Vec<ChangeId> {
        let ids = self.within(bytes).into_iter();
        ids.filter(|id| matches!(self.changes[id].what, What::Contents(_))).collect()
    }

    /// The bytes at `at`, within a sector, which are `old` in the buffer, are about to be `new`. The change to wait
    /// for, if there is one.
    pub(crate) fn add_bytes(
        &mut self,
        at: u64,
        (old, new): (&[u8], &[u8]),
        after: &[ChangeId],
        of: ChangeOf,
    ) -> Option<ChangeId> {
        let bytes = at..at + new.len() as u64;
        let ids = self.by_sector.get(&(at / SECTOR)).map_or(&[][..], Vec::as_slice);
        let below: Vec<ChangeId> =
            ids.iter().copied().filter(|id| self.changes[id].overlaps(&bytes)).collect();
        // What it covers goes with it.
        let is_covered = |id: &ChangeId| covers(&bytes, &self.changes[id].bytes);
        let covered = below.iter().all(is_covered);
        let needed = |id: &ChangeId| self.waits(*id) && !(below.contains(id) && is_covered(id));
        let inherits = |id: &&ChangeId| is_covered(id) && (self.changes[id].lasts || after.contains(id));
        let inherited = below.iter().filter(inherits).flat_map(|id| &self.changes[id].after);
        let all = after.iter().chain(inherited).copied().filter(needed);
        let after: Vec<ChangeId> = all.collect::<BTreeSet<_>>().into_iter().collect();
        if after.is_empty() && covered && of.may_be_none() {
            let mut disk = old.to_vec();
            for id in below.iter().rev() {
                let change = &self.changes[id];
                if let What::Bytes(other) = &change.what {
                    disk[(change.bytes.start - at) as usize..][..other.len()].copy_from_slice(other);
                }
            }
            if disk == new {
                below.into_iter().for_each(|id| self.settle(id));
                return None;
            }
        }
        // Beneath a new name there is room, and not the name before it: those stay two.
        if of == ChangeOf::Metadata
            && let Some(last) = below.last()
            && self.changes[last].bytes == bytes
            && after.iter().all(|id| id < last)
        {
            let one = self.changes.get_mut(last).expect("it is of this sector");
            one.after.extend(after.into_iter().filter(|id| !one.after.contains(id)).collect::<Vec<_>>());
            return Some(*last);
        }
        Some(self.add(Change { bytes, what: What::Bytes(old.to_vec()), after, lasts: of.lasts() }))
    }

    /// These sectors, all of which wait, are about to be written: rolls back what must not be on the disk yet.
    pub fn roll_back(&mut self, which: impl Iterator<Item = u64>, swap: Swap<'_>) {
        for sector in which {
            let Some(ids) = self.by_sector.get(&sector) else { continue };
            self.writing.push(sector);
            let mut ready: BTreeSet<ChangeId> = BTreeSet::new();
            for (i, id) in ids.iter().enumerate() {
                let change = &self.changes[id];
                let What::Bytes(_) = change.what else { continue };
                let below = || ids[..i].iter().filter(|b| self.changes[b].overlaps(&change.bytes));
                let is_covered = |id: &ChangeId| covers(&change.bytes, &self.changes[id].bytes);
                let is_ready = change.after.iter().all(|id| !self.waits(*id) || ready.contains(id))
                    && below().all(|id| ready.contains(id) || is_covered(id));
                if is_ready {
                    ready.extend(below().copied().collect::<Vec<_>>());
                    ready.insert(*id);
                }
            }
            let bytes = |id: &&ChangeId| matches!(self.changes[id].what, What::Bytes(_));
            let early = ids.iter().rev().filter(|id| !ready.contains(id)).filter(bytes).copied();
            self.rolled_back.extend(early);
            self.settling.extend(ready);
        }
        self.rollbacks += self.rolled_back.len() as u64;
        if self.defect.is(FsDefect::UndoForgotten) {
            self.settling.append(&mut self.rolled_back);
        }
        self.swap_rolled_back(swap);
    }

    fn swap_rolled_back(&mut self, swap: Swap<'_>) {
        for id in &self.rolled_back {
            if let Some(Change { bytes, what: What::Bytes(other), .. }) = self.changes.get_mut(id) {
                swap(bytes.start, other);
            }
        }
    }

    /// They were written, or could not be: does again what was rolled back. The sectors that still wait.
    pub fn written(&mut self, was_written: bool, swap: Swap<'_>) -> Vec<u64> {
        self.rolled_back.reverse();
        if !self.defect.is(FsDefect::RedoForgotten) {
            self.swap_rolled_back(swap);
        }
        let settling = core::mem::take(&mut self.settling);
        let writing = core::mem::take(&mut self.writing);
        let rolled_back = core::mem::take(&mut self.rolled_back);
        if was_written {
            settling.into_iter().for_each(|id| self.settle(id));
            writing.into_iter().for_each(|sector| self.contents_written(sector));
        }
        let mut waiting: Vec<u64> =
            rolled_back.iter().filter_map(|id| Some(self.changes.get(id)?.bytes.start / SECTOR)).collect();
        waiting.dedup();
        waiting
    }

    fn contents_written(&mut self, sector: u64) {
        let ids = self.by_sector.get(&sector).cloned().unwrap_or_default();
        for id in ids {
            let Some(Change { bytes, what: What::Contents(left), .. }) = self.changes.get_mut(&id) else {
                continue;
            };
            *left &= !(1 << (sector - bytes.start / SECTOR));
            if *left == 0 {
                self.settle(id);
            }
        }
    }

    /// These bytes, whole sectors, mean nothing any more.
    pub fn forget(&mut self, bytes: Range<u64>) {
        for id in self.within(bytes) {
            self.settle(id);
        }
    }
}
