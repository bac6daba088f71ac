//! Reverse mappings: from a frame to all user mappings of it (the `pv` lists of the BSD pmaps).
//!
//! One table for the machine, under one lock of class `ReverseMap`. A mapping is in the list of its frame exactly while
//! its entry is valid; both change under this lock. Each entry has a modelled address, and walking a list touches it.
//! The head of a list belongs to the frame's page structure and is accounted for there.
//!
//! The table also keeps what the entries of removed mappings said about a frame (referenced, modified), and the
//! registry of address spaces, so that a list entry can be a name and an address.

use crate::error::PmapError;
use crate::tables::cached::Cached;
use crate::tables::space::Shared;
use crate::tlb::asid::FreeNumbers;
use alloc::sync::Arc;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_hal::{Access, Attr, IndexList, Links, Machine, Pfn, SpaceId, StructVa, Va};

/// What is known of a frame through its mappings.
pub(crate) const NOTED: Attr = Attr::REFERENCED.union(Attr::MODIFIED);

/// One user mapping of a frame.
#[derive(PartialEq, Eq)]
struct Entry {
    va: Va,
    space: SpaceId,
}

/// What is known of one frame.
#[derive(Clone)]
struct Head {
    /// Oldest first: address spaces are mostly taken down in the order in which they were filled.
    mappings: IndexList,
    /// What mappings that are gone said: [`NOTED`].
    saved: Attr,
    /// What the cache may have of it, where pages have colours.
    cached: Cached,
}

const EMPTY: Head = Head { mappings: IndexList::new(), saved: Attr::empty(), cached: Cached::NOWHERE };

/// The table. See the [module](self).
pub(crate) struct PvTable<M: Machine> {
    /// By frame, up to the last one of which something was ever known.
    heads: Vec<Head>,
    /// How many frames there are.
    frames: usize,
    entries: Vec<Entry>,
    /// Of each entry: it is on the list of its frame, or free.
    links: Vec<Links>,
    /// What was freed last is taken first.
    free: IndexList,
    capacity: usize,
    at: StructVa,
    entry_bytes: usize,
    pub(crate) spaces: LiteMap<SpaceId, Arc<Shared<M>>>,
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
        assert!(capacity < u32::MAX as usize, "{capacity} reverse mappings cannot be numbered");
        PvTable {
            heads: Vec::with_capacity(frames),
            frames,
            entries: Vec::new(),
            links: Vec::new(),
            free: IndexList::new(),
            capacity,
            at,
            entry_bytes,
            spaces: LiteMap::new(),
            last_id: SpaceId::KERNEL.0,
            numbers,
        }
    }

    fn head(&self, frame: Pfn) -> &Head {
        assert!(frame.index() < self.frames, "the machine has no {frame:?}");
        self.heads.get(frame.index()).unwrap_or(&EMPTY)
    }

    /// Gives `frame` a head, if it has none yet.
    fn cover(&mut self, frame: Pfn) {
        assert!(frame.index() < self.frames, "the machine has no {frame:?}");
        if frame.index() >= self.heads.len() {
            // There was room for all of them from the start.
            self.heads.resize(frame.index() + 1, EMPTY);
        }
    }

    fn head_mut(&mut self, frame: Pfn) -> &mut Head {
        self.cover(frame);
        &mut self.heads[frame.index()]
    }

    /// The frames that are mapped, and how often.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (Pfn, usize)> {
        let counts = self.heads.iter().map(|head| head.mappings.len());
        (0..).map(Pfn).zip(counts).filter(|&(_, count)| count > 0)
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
        let entry = Entry { va, space };
        let index = if let Some(index) = self.free.pop_front(&mut self.links) {
            self.entries[index as usize] = entry;
            index
        } else if self.entries.len() < self.capacity {
            self.entries.push(entry);
            self.links.push(Links::UNLINKED);
            (self.entries.len() - 1) as u32
        } else {
            return Err(PmapError::NoReverseEntry { capacity: self.capacity });
        };
        self.cover(frame);
        if let Some(last) = self.heads[frame.index()].mappings.push_back(&mut self.links, index) {
            self.touch(m, last, Access::Write);
        }
        self.touch(m, index, Access::Write);
        Ok(())
    }

    /// Takes the mapping of `frame` at `va` of `space` out.
    ///
    /// # Panics
    /// When there is none: page tables and reverse mappings disagree.
    pub(crate) fn remove(&mut self, m: &M, frame: Pfn, space: SpaceId, va: Va) {
        let wanted = Entry { va, space };
        let found = self.indices(frame).find(|&index| {
            self.touch(m, index, Access::Read);
            self.entries[index as usize] == wanted
        });
        let index = found
            .unwrap_or_else(|| panic!("{frame:?} at {va:?} of {space:?} is mapped, but not in its list"));
        self.heads[frame.index()].mappings.remove(&mut self.links, index);
        self.free.push_front(&mut self.links, index);
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

    /// What the cache may have of `frame`.
    pub(crate) fn cached(&self, frame: Pfn) -> Cached {
        self.head(frame).cached
    }

    pub(crate) fn set_cached(&mut self, frame: Pfn, cached: Cached) {
        self.head_mut(frame).cached = cached;
    }

    /// A registered address space.
    ///
    /// # Panics
    /// When there is none of this name.
    pub(crate) fn space(&self, space: SpaceId) -> Arc<Shared<M>> {
        self.spaces.get(&space).expect("a listed mapping belongs to a registered address space").clone()
    }

    fn indices(&self, frame: Pfn) -> impl Iterator<Item = u32> {
        self.head(frame).mappings.iter(&self.links)
    }

    fn touch(&self, m: &M, index: u32, access: Access) {
        m.touch(self.at.element(index as usize, self.entry_bytes), self.entry_bytes, access);
    }
}
