//! Reverse mappings: from a frame to all user mappings of it (the `pv` lists of the BSD pmaps).
//!
//! One table for the machine, under one lock of class `ReverseMap`. A mapping is in the list of its frame exactly while
//! its entry is valid; both change under this lock. Each entry has a modelled address, and walking a list touches it.
//! The head of a list belongs to the frame's page structure and is accounted for there.
//!
//! The table also keeps what the entries of removed mappings said about a frame (referenced, modified), and the
//! registry of address spaces, so that a list entry can be a name and an address.

use crate::asid::FreeNumbers;
use crate::config::PmapError;
use crate::pmap::Shared;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Access, Attr, Machine, Pfn, SpaceId, StructVa, Va};

const NONE: u32 = u32::MAX;

/// What is known of a frame through its mappings.
pub(crate) const NOTED: Attr = Attr::REFERENCED.union(Attr::MODIFIED);

/// One user mapping of a frame, and the next one.
struct Entry {
    va: Va,
    space: SpaceId,
    next: u32,
}

/// What is known of one frame.
#[derive(Clone)]
struct Head {
    /// The oldest mapping; address spaces are mostly taken down in the order in which they were filled.
    first: u32,
    last: u32,
    /// What mappings that are gone said: [`NOTED`].
    saved: Attr,
}

const EMPTY: Head = Head { first: NONE, last: NONE, saved: Attr::empty() };

/// The table. See the [module](self).
pub(crate) struct PvTable<M: Machine> {
    /// By frame, up to the last one of which something was ever known.
    heads: Vec<Head>,
    /// How many frames there are.
    frames: usize,
    entries: Vec<Entry>,
    /// First of the free entries, linked like a list.
    free: u32,
    capacity: usize,
    at: StructVa,
    entry_bytes: usize,
    pub(crate) spaces: BTreeMap<SpaceId, Arc<Shared<M>>>,
    last_id: u32,
    /// Tags of address spaces, where a space has the same on all CPUs.
    pub(crate) numbers: FreeNumbers,
}

impl<M: Machine> PvTable<M> {
    pub(crate) fn new(
        frames: usize,
        at: StructVa,
        entry_bytes: usize,
        capacity: usize,
        numbers: FreeNumbers,
    ) -> PvTable<M> {
        assert!(capacity < NONE as usize, "{capacity} reverse mappings cannot be numbered");
        PvTable {
            heads: Vec::with_capacity(frames),
            frames,
            entries: Vec::new(),
            free: NONE,
            capacity,
            at,
            entry_bytes,
            spaces: BTreeMap::new(),
            last_id: SpaceId::KERNEL.0,
            numbers,
        }
    }

    fn head(&self, frame: Pfn) -> &Head {
        assert!(frame.index() < self.frames, "the machine has no {frame:?}");
        self.heads.get(frame.index()).unwrap_or(&EMPTY)
    }

    fn head_mut(&mut self, frame: Pfn) -> &mut Head {
        assert!(frame.index() < self.frames, "the machine has no {frame:?}");
        if frame.index() >= self.heads.len() {
            // There was room for all of them from the start.
            self.heads.resize(frame.index() + 1, EMPTY);
        }
        &mut self.heads[frame.index()]
    }

    /// The frames that are mapped, and how often.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (Pfn, usize)> {
        let mapped = (0..self.heads.len() as u32).map(Pfn).filter(|&frame| self.head(frame).first != NONE);
        mapped.map(|frame| (frame, self.indices(frame).count()))
    }

    pub(crate) fn new_id(&mut self) -> SpaceId {
        self.last_id = self.last_id.checked_add(1).expect("four billion address spaces were made");
        SpaceId(self.last_id)
    }

    /// Adds the mapping of `frame` at `va` of `space`.
    ///
    /// # Errors
    /// [`PmapError::NoReverseEntry`].
    pub(crate) fn insert(&mut self, m: &M, frame: Pfn, space: SpaceId, va: Va) -> Result<(), PmapError> {
        let entry = Entry { va, space, next: NONE };
        let index = if self.free != NONE {
            let index = self.free;
            self.free = core::mem::replace(&mut self.entries[index as usize], entry).next;
            index
        } else if self.entries.len() < self.capacity {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            return Err(PmapError::NoReverseEntry { capacity: self.capacity });
        };
        let head = self.head_mut(frame);
        match core::mem::replace(&mut head.last, index) {
            NONE => head.first = index,
            last => {
                self.entries[last as usize].next = index;
                self.touch(m, last, Access::Write);
            }
        }
        self.touch(m, index, Access::Write);
        Ok(())
    }

    /// Takes the mapping of `frame` at `va` of `space` out.
    ///
    /// # Panics
    /// When there is none: page tables and reverse mappings disagree.
    pub(crate) fn remove(&mut self, m: &M, frame: Pfn, space: SpaceId, va: Va) {
        let mut before = NONE;
        let mut index = self.head(frame).first;
        while index != NONE {
            self.touch(m, index, Access::Read);
            let entry = &self.entries[index as usize];
            if entry.space == space && entry.va == va {
                break;
            }
            before = index;
            index = entry.next;
        }
        assert!(index != NONE, "{frame:?} at {va:?} of {space:?} is mapped, but not in its list");
        let next = core::mem::replace(&mut self.entries[index as usize].next, self.free);
        self.free = index;
        let head = &mut self.heads[frame.index()];
        match before {
            NONE => head.first = next,
            _ => self.entries[before as usize].next = next,
        }
        if next == NONE {
            head.last = before;
        }
        self.touch(m, index, Access::Write);
    }

    /// The mappings of `frame`, oldest first.
    pub(crate) fn mappings(&self, frame: Pfn) -> impl Iterator<Item = (SpaceId, Va)> {
        self.indices(frame).map(|i| (self.entries[i as usize].space, self.entries[i as usize].va))
    }

    /// Accounts for walking the whole list of `frame`.
    pub(crate) fn touch_list(&self, m: &M, frame: Pfn) {
        self.indices(frame).for_each(|i| self.touch(m, i, Access::Read));
    }

    /// Keeps what a mapping of `frame` that goes, or is written anew, has noted.
    pub(crate) fn save(&mut self, frame: Pfn, lost: Attr) {
        self.head_mut(frame).saved |= lost & NOTED;
    }

    /// What is kept of `frame`.
    pub(crate) fn saved(&self, frame: Pfn) -> Attr {
        self.head(frame).saved
    }

    /// Forgets what is kept of `frame`.
    pub(crate) fn forget(&mut self, frame: Pfn, noted: Attr) {
        self.head_mut(frame).saved.remove(noted);
    }

    fn indices(&self, frame: Pfn) -> impl Iterator<Item = u32> {
        let mut next = self.head(frame).first;
        core::iter::from_fn(move || {
            let index = (next != NONE).then_some(next)?;
            next = self.entries[index as usize].next;
            Some(index)
        })
    }

    fn touch(&self, m: &M, index: u32, access: Access) {
        m.touch(self.at.element(index as usize, self.entry_bytes), self.entry_bytes, access);
    }
}
