//! The map of an address space: its entries, sorted and disjoint (UVM paper, 3.1).
//!
//! Belongs to a [`crate::map_lock::MapLock`]: whoever has a `&Map` holds the map shared, a `&mut Map` exclusively. The
//! map knows nothing of page tables: callers change those. Clipping can fail for want of structures, and then nothing is
//! changed; taking entries out of a clipped range and putting entries in cannot.

use crate::config::Kind;
use crate::entry::Entry;
use crate::error::VmError;
use crate::vm::Vm;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use pageferry_hal::{Access, Machine, PAGE_SIZE, Va, VaRange};

pub(crate) struct Map<M: Machine> {
    bounds: VaRange,
    /// By start address.
    entries: BTreeMap<Va, Entry<M>>,
    /// Where the area for page transfer was made; what is left of it, the entries say.
    pub(crate) transfer_area: Option<VaRange>,
}

impl<M: Machine> Map<M> {
    /// An empty map of the addresses in `bounds`.
    pub(crate) fn new(bounds: VaRange) -> Map<M> {
        Map { bounds, entries: BTreeMap::new(), transfer_area: None }
    }

    pub(crate) fn bounds(&self) -> VaRange {
        self.bounds
    }

    /// The entries in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry<M>> {
        self.entries.values()
    }

    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry<M>> {
        self.entries.values_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry that holds `va`, not accounted for.
    pub(crate) fn entry_at(&self, va: Va) -> Option<&Entry<M>> {
        self.entries.range(..=va).next_back().map(|(_, e)| e).filter(|e| e.range.contains(va))
    }

    /// The entry that holds `va`.
    pub(crate) fn look_up(&self, vm: &Vm<M>, va: Va) -> Option<&Entry<M>> {
        let entry = self.entries.range(..=va).next_back()?.1;
        entry.touch(vm, Access::Read);
        entry.range.contains(va).then_some(entry)
    }

    pub(crate) fn look_up_mut(&mut self, vm: &Vm<M>, va: Va) -> Option<&mut Entry<M>> {
        let entry = self.entries.range_mut(..=va).next_back()?.1;
        entry.touch(vm, Access::Read);
        entry.range.contains(va).then_some(entry)
    }

    /// The entries that share a page with `range`, in order.
    pub(crate) fn overlapping(&self, range: VaRange) -> impl Iterator<Item = &Entry<M>> {
        let before = self.entries.range(..range.start()).next_back();
        let within = self.entries.range(range.start()..range.end());
        before.into_iter().chain(within).map(|(_, e)| e).filter(move |e| e.range.overlaps(&range))
    }

    /// True when every page of `range` is mapped.
    pub(crate) fn covers(&self, range: VaRange) -> bool {
        let mapped: usize =
            self.overlapping(range).filter_map(|e| e.range.intersect(&range)).map(|r| r.len_pages()).sum();
        mapped == range.len_pages()
    }

    /// The lowest free addresses for `len_pages` pages.
    pub(crate) fn find_space(&self, vm: &Vm<M>, len_pages: usize) -> Option<Va> {
        let len_bytes = len_pages.checked_mul(PAGE_SIZE)?;
        let mut at = self.bounds.start();
        for entry in self.entries.values() {
            entry.touch(vm, Access::Read);
            if entry.range.start() - at >= len_bytes {
                break;
            }
            at = entry.range.end();
        }
        (self.bounds.end() - at >= len_bytes).then_some(at)
    }

    /// The highest free addresses for `len_pages` pages.
    pub(crate) fn find_space_high(&self, vm: &Vm<M>, len_pages: usize) -> Option<Va> {
        let len_bytes = len_pages.checked_mul(PAGE_SIZE)?;
        let mut end = self.bounds.end();
        for entry in self.entries.values().rev() {
            entry.touch(vm, Access::Read);
            if end - entry.range.end() >= len_bytes {
                break;
            }
            end = entry.range.start();
        }
        (end - self.bounds.start() >= len_bytes).then(|| Va(end.0 - len_bytes as u64))
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
        self.entries.insert(range.start(), entry);
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
            let upper = self.entry_cut_by(va).expect("still there").split_off(vm, va, at);
            self.entries.insert(va, upper);
        }
        Ok(())
    }

    /// The entry that has `va` inside, not at its start.
    fn entry_cut_by(&mut self, va: Va) -> Option<&mut Entry<M>> {
        let entry = self.entries.range_mut(..va).next_back()?.1;
        entry.range.contains(va).then_some(entry)
    }

    /// The entries within `range`, which is clipped.
    pub(crate) fn within_mut(&mut self, range: VaRange) -> impl Iterator<Item = &mut Entry<M>> {
        self.entries.range_mut(range.start()..range.end()).map(move |(_, e)| {
            assert!(range.covers(&e.range), "{:?} is not clipped to {range:?}", e.range);
            e
        })
    }

    /// Takes the entries out of `range`, which is clipped. Their mappings still stand.
    pub(crate) fn extract(&mut self, range: VaRange) -> Vec<Entry<M>> {
        let starts: Vec<Va> = self.overlapping(range).map(|e| e.range.start()).collect();
        let entries: Vec<_> = starts.iter().filter_map(|s| self.entries.remove(s)).collect();
        assert!(entries.iter().all(|e| range.covers(&e.range)), "{range:?} is not clipped");
        entries
    }

    /// Joins what clipping cut apart, where the parts are alike again.
    pub(crate) fn join_around(&mut self, vm: &Vm<M>, range: VaRange) {
        let mut borders: Vec<Va> =
            self.entries.range(range.start()..range.end()).map(|(&start, _)| start).collect();
        borders.push(range.end());
        for va in borders {
            self.join_at(vm, va);
        }
    }

    /// Joins the entries that meet at `va`, if the upper continues the lower.
    fn join_at(&mut self, vm: &Vm<M>, va: Va) {
        let Some(upper) = self.entries.get(&va) else { return };
        let Some((_, lower)) = self.entries.range(..va).next_back() else { return };
        if lower.continues_in(upper) {
            let upper = self.entries.remove(&va).expect("just seen");
            let lower = self.entries.range_mut(..va).next_back().expect("just seen").1;
            lower.join(vm, upper);
        }
    }
}
