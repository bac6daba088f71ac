//! The map of an address space: its entries, sorted and disjoint (UVM paper, 3.1).
//!
//! Belongs to a [`super::lock::MapLock`]: with a `&Map` the map is held shared, with a `&mut Map` exclusively. The map
//! knows nothing of page tables: callers change those. The entries are the nodes of the [`Tree`] that orders them: a
//! look-up reads the entries on the way, unless it finds the one that was found last. Looking up is in `lookup`,
//! changes are in `clip`. Nothing here fails.

use super::entry::Entry;
use super::tree::{Ranged, Tree};
use alloc::string::String;
use core::sync::atomic::AtomicU64;
use pageferry_hal::{Machine, Va, VaRange};

pub(crate) struct Map<M: Machine> {
    pub(super) bounds: VaRange,
    pub(super) entries: Tree<Entry<M>>,
    /// Where the entry lies that was found last, a look-up's first guess (UVM's hint); 0 for none.
    pub(super) hint: AtomicU64,
    /// Where the area for page transfer was made; what is left of it, the entries say.
    pub(crate) transfer_area: Option<VaRange>,
}

impl<M: Machine> Ranged for Entry<M> {
    fn range(&self) -> VaRange {
        self.range
    }
}

impl<M: Machine> Map<M> {
    /// An empty map of the addresses in `bounds`.
    pub(crate) fn new(bounds: VaRange) -> Map<M> {
        Map { bounds, entries: Tree::new(), hint: AtomicU64::new(0), transfer_area: None }
    }

    pub(crate) fn bounds(&self) -> VaRange {
        self.bounds
    }

    /// The entries in order, not accounted for.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry<M>> {
        self.entries.iter_from(self.bounds.start())
    }

    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry<M>> {
        self.entries.iter_mut_from(self.bounds.start())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Tests the tree of the entries.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn check_tree(&self) -> Result<(), String> {
        self.entries.check()
    }

    /// The entry that holds `va`, not accounted for.
    pub(crate) fn entry_at(&self, va: Va) -> Option<&Entry<M>> {
        self.entries.find(va, |_| ())
    }

    /// The same, not accounted for: the caller has looked the range up, and has its entries at hand.
    pub(crate) fn overlapping(&self, range: VaRange) -> impl Iterator<Item = &Entry<M>> {
        self.entries.iter_from(range.start()).take_while(move |e| e.range.overlaps(&range))
    }

    /// The entry that has `va` inside, not at its start.
    pub(super) fn entry_cut_by(&self, va: Va) -> Option<&Entry<M>> {
        self.entry_at(va).filter(|entry| entry.range.start() < va)
    }

    /// The entries within `range`, which is clipped.
    pub(crate) fn within_mut(&mut self, range: VaRange) -> impl Iterator<Item = &mut Entry<M>> {
        let overlapping =
            self.entries.iter_mut_from(range.start()).take_while(move |e| e.range.overlaps(&range));
        overlapping
            .inspect(move |e| assert!(range.covers(&e.range), "{:?} is not clipped to {range:?}", e.range))
    }
}
