//! The map of an address space: its entries, sorted and disjoint (UVM paper, 3.1).
//!
//! Belongs to a [`super::lock::MapLock`]: whoever has a `&Map` holds the map shared, a `&mut Map` exclusively. The
//! map knows nothing of page tables: callers change those. The entries are the nodes of the [`Tree`] that orders them: who
//! looks something up reads the entries on the way, unless it is the one that was found last. Clipping can fail for want
//! of structures, and then nothing is changed; taking entries out of a clipped range and putting entries in cannot.

use super::entry::Entry;
use super::tree::{Ranged, Tree};
use crate::config::Kind;
use crate::error::VmError;
use crate::vm::Vm;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use pageferry_hal::{Access, Machine, PAGE_SIZE, StructVa, Va, VaRange};

pub(crate) struct Map<M: Machine> {
    bounds: VaRange,
    entries: Tree<Entry<M>>,
    /// Where the entry lies that was found last, a look-up's first guess (UVM's hint); 0 for none.
    hint: AtomicU64,
    /// Where the area for page transfer was made; what is left of it, the entries say.
    pub(crate) transfer_area: Option<VaRange>,
}

/// What a way down the tree reads of a node: its range, its children, its gaps.
const NODE_BYTES: usize = 32;

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

    /// The entry that holds `va`. Accounts for the way there: the entry that was found last, and if it is not that one, the
    /// entries on the way down the tree.
    fn seek(&self, vm: &Vm<M>, va: Va) -> Option<&Entry<M>> {
        let hint = self.hint.load(Ordering::Relaxed);
        if hint != 0 {
            vm.machine().touch(StructVa(Va(hint)), NODE_BYTES, Access::Read);
        }
        let entry = self.entry_at(va);
        let at = entry.map(|entry| entry.at.0.0);
        if at != Some(hint) {
            self.entries.find(va, visit(vm, Access::Read));
            if let Some(at) = at {
                self.hint.store(at, Ordering::Relaxed);
            }
        }
        entry
    }

    /// The entry that holds `va`.
    pub(crate) fn look_up(&self, vm: &Vm<M>, va: Va) -> Option<&Entry<M>> {
        let entry = self.seek(vm, va)?;
        entry.touch(vm, Access::Read);
        Some(entry)
    }

    /// The same, to change anything but its range.
    pub(crate) fn look_up_mut(&mut self, vm: &Vm<M>, va: Va) -> Option<&mut Entry<M>> {
        self.seek(vm, va);
        let entry = self.entries.find_mut(va)?;
        entry.touch(vm, Access::Read);
        Some(entry)
    }

    /// Looks `range` up: the entries that share a page with it, in order.
    pub(crate) fn look_up_range(&self, vm: &Vm<M>, range: VaRange) -> impl Iterator<Item = &Entry<M>> {
        self.seek(vm, range.start());
        self.overlapping(range).inspect(|entry| entry.touch(vm, Access::Read))
    }

    /// The same, not accounted for: the caller has looked the range up, and has its entries at hand.
    pub(crate) fn overlapping(&self, range: VaRange) -> impl Iterator<Item = &Entry<M>> {
        self.entries.iter_from(range.start()).take_while(move |e| e.range.overlaps(&range))
    }

    /// Looks `range` up: true when every page of it is mapped.
    pub(crate) fn covers(&self, vm: &Vm<M>, range: VaRange) -> bool {
        let mapped: usize = self
            .look_up_range(vm, range)
            .filter_map(|e| e.range.intersect(&range))
            .map(|r| r.len_pages())
            .sum();
        mapped == range.len_pages()
    }

    /// The lowest free addresses for `len_pages` pages.
    pub(crate) fn find_space(&self, vm: &Vm<M>, len_pages: usize) -> Option<Va> {
        let len_bytes = len_pages.checked_mul(PAGE_SIZE)?;
        self.entries.lowest_gap(self.bounds, len_bytes, visit(vm, Access::Read))
    }

    /// The highest free addresses for `len_pages` pages.
    pub(crate) fn find_space_high(&self, vm: &Vm<M>, len_pages: usize) -> Option<Va> {
        let len_bytes = len_pages.checked_mul(PAGE_SIZE)?;
        let end = self.entries.highest_gap_end(self.bounds, len_bytes, visit(vm, Access::Read))?;
        Some(Va(end.0 - len_bytes as u64))
    }

    /// Puts an entry where nothing is mapped, joined with its neighbours if it continues them.
    pub(crate) fn insert(&mut self, vm: &Vm<M>, entry: Entry<M>) {
        let range = entry.range;
        self.insert_apart(vm, entry);
        self.join_at(vm, range.start());
        self.join_at(vm, range.end());
    }

    /// Puts an entry where nothing is mapped, and leaves it as it is.
    pub(crate) fn insert_apart(&mut self, vm: &Vm<M>, entry: Entry<M>) {
        let range = entry.range;
        assert!(self.bounds.covers(&range) && !range.is_empty(), "{range:?} is outside {:?}", self.bounds);
        assert!(self.overlapping(range).next().is_none(), "{range:?} is in use");
        vm.machine().execute(vm.paths().map_entry);
        entry.touch(vm, Access::Write);
        self.entries.insert(entry, visit(vm, Access::Write));
    }

    /// Lets entries begin and end at both ends of `range`.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]; nothing is clipped then.
    pub(crate) fn clip(&mut self, vm: &Vm<M>, range: VaRange) -> Result<(), VmError> {
        let mut cuts = Vec::with_capacity(2);
        for va in [range.start(), range.end()] {
            if self.entry_cut_by(va).is_none() {
                continue;
            }
            match vm.structures().alloc(Kind::Entry) {
                Ok(at) => cuts.push((va, at)),
                Err(e) => {
                    for (_, at) in cuts {
                        vm.structures().free(Kind::Entry, at);
                    }
                    return Err(e);
                }
            }
        }
        for (va, at) in cuts {
            let below = Va(va.0 - PAGE_SIZE as u64);
            let upper = self.entries.change(below, |entry| entry.split_off(vm, va, at)).expect("still there");
            self.entries.insert(upper, visit(vm, Access::Write));
        }
        Ok(())
    }

    /// The entry that has `va` inside, not at its start.
    fn entry_cut_by(&self, va: Va) -> Option<&Entry<M>> {
        self.entry_at(va).filter(|entry| entry.range.start() < va)
    }

    /// The entries within `range`, which is clipped.
    pub(crate) fn within_mut(&mut self, range: VaRange) -> impl Iterator<Item = &mut Entry<M>> {
        let overlapping =
            self.entries.iter_mut_from(range.start()).take_while(move |e| e.range.overlaps(&range));
        overlapping
            .inspect(move |e| assert!(range.covers(&e.range), "{:?} is not clipped to {range:?}", e.range))
    }

    /// Takes the entries out of `range`, which is clipped. Their mappings still stand.
    pub(crate) fn extract(&mut self, vm: &Vm<M>, range: VaRange) -> Vec<Entry<M>> {
        let starts: Vec<Va> = self.overlapping(range).map(|e| e.range.start()).collect();
        let entries: Vec<_> = starts.into_iter().map(|start| self.take(vm, start)).collect();
        assert!(entries.iter().all(|e| range.covers(&e.range)), "{range:?} is not clipped");
        entries
    }

    /// Takes out the entry that starts at `start`.
    fn take(&mut self, vm: &Vm<M>, start: Va) -> Entry<M> {
        let entry = self.entries.remove(start, visit(vm, Access::Write)).expect("an entry starts there");
        let hint = self.hint.get_mut();
        if *hint == entry.at.0.0 {
            *hint = 0;
        }
        entry
    }

    /// Joins what clipping cut apart, where the parts are alike again.
    pub(crate) fn join_around(&mut self, vm: &Vm<M>, range: VaRange) {
        let within = self.overlapping(range).map(|e| e.range.start()).filter(|&start| range.start() <= start);
        let mut borders: Vec<Va> = within.collect();
        borders.push(range.end());
        for va in borders {
            self.join_at(vm, va);
        }
    }

    /// Joins the entries that meet at `va`, if the upper continues the lower.
    fn join_at(&mut self, vm: &Vm<M>, va: Va) {
        let Some(below) = va.0.checked_sub(PAGE_SIZE as u64).map(Va) else { return };
        let (lower, upper) = (self.entry_at(below), self.entry_at(va));
        let (Some(lower), Some(upper)) = (lower, upper) else { return };
        if lower.range.end() == va && lower.continues_in(upper) {
            let upper = self.take(vm, va);
            self.entries.change(below, |lower| lower.join(vm, upper)).expect("just seen");
        }
    }
}

/// Accounts for the nodes on a way down the tree.
fn visit<M: Machine>(vm: &Vm<M>, access: Access) -> impl FnMut(&Entry<M>) {
    move |entry| {
        vm.machine().execute(vm.paths().map_node);
        vm.machine().touch(entry.at, NODE_BYTES, access);
    }
}
