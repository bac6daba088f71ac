//! Cutting, joining, copying and dropping entries.
//!
//! With the map held exclusively; the references of an entry to its amap and its object are counted here, under their
//! locks. Mappings are the caller's: they are removed, and flushed, before an entry is dropped. Making an entry and
//! clipping a map fail for want of a structure, and copying an amap also for want of frames, and then nothing has
//! changed; everything else cannot fail.

use super::entry::{AmapRef, Entry, ObjectRef};
use super::lookup::visit;
use super::map::Map;
use crate::anon::Amap;
use crate::config::Kind;
use crate::error::VmError;
use crate::vm::Vm;
use alloc::vec::Vec;
use pageferry_hal::{Access, Cause, Machine, PAGE_SIZE, StructVa, Va, VaRange};

impl<M: Machine> Entry<M> {
    /// A second entry like this one, referring to the same layers.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn duplicate(&self, vm: &Vm<M>) -> Result<Entry<M>, VmError> {
        self.duplicate_part(vm, self.range)
    }

    /// A second entry for the pages of `part`, which this one covers, referring to the same layers.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn duplicate_part(&self, vm: &Vm<M>, part: VaRange) -> Result<Entry<M>, VmError> {
        assert!(self.range.covers(&part) && !part.is_empty(), "{part:?} is no part of {:?}", self.range);
        let at = vm.structures().alloc(Kind::Entry)?.keep();
        vm.machine().execute(vm.paths().map_entry);
        self.touch(vm, Access::Read);
        let (first, len_pages) = (self.page_number(part.start()), part.len_pages() as u64);
        let amap = self.amap.as_ref().map(|a| {
            let slot = a.slot + first;
            a.amap.add_ref(vm, slot..slot + len_pages);
            AmapRef { amap: a.amap.clone(), slot }
        });
        let object = self.object.as_ref().map(|o| {
            o.object.add_ref(vm);
            ObjectRef { object: o.object.clone(), page: o.page + first }
        });
        // Locks are the entry's alone: a copy has none.
        let locked = Vec::new();
        let entry = Entry { at, range: part, attributes: self.attributes, amap, object, locked };
        entry.touch(vm, Access::Write);
        Ok(entry)
    }

    /// Cuts the entry at `va`: it keeps what lies below, the result, at `at`, has what lies above.
    pub(crate) fn split_off(&mut self, vm: &Vm<M>, va: Va, at: StructVa) -> Entry<M> {
        assert!(self.range.start() < va && va < self.range.end(), "{va:?} does not cut {:?}", self.range);
        vm.machine().execute(vm.paths().map_entry);
        let pages = self.page_number(va);
        let amap = self.amap.as_ref().map(|a| {
            a.amap.split_ref(vm);
            AmapRef { amap: a.amap.clone(), slot: a.slot + pages }
        });
        let object = self.object.as_ref().map(|o| {
            o.object.add_ref(vm);
            ObjectRef { object: o.object.clone(), page: o.page + pages }
        });
        let locked = if self.locked.is_empty() { Vec::new() } else { self.locked.split_off(pages as usize) };
        let upper = VaRange::new(va, self.range.end());
        self.range = VaRange::new(self.range.start(), va);
        let entry = Entry { at, range: upper, attributes: self.attributes, amap, object, locked };
        self.touch(vm, Access::Write);
        entry.touch(vm, Access::Write);
        entry
    }

    /// Takes in `next`, which [`Entry::continues_in`].
    pub(crate) fn join(&mut self, vm: &Vm<M>, mut next: Entry<M>) {
        assert!(self.continues_in(&next), "{:?} and {:?} are not one", self.range, next.range);
        vm.machine().execute(vm.paths().map_entry);
        self.range = VaRange::new(self.range.start(), next.range.end());
        self.locked.append(&mut next.locked);
        self.touch(vm, Access::Write);
        if let Some(a) = &next.amap {
            a.amap.join_ref(vm);
        }
        if let Some(o) = &next.object {
            o.object.drop_ref(vm);
        }
        vm.structures().free(Kind::Entry, next.at);
    }

    /// Resolves needs-copy: the entry gets an amap of its own (NetBSD's `amap_copy`), or a shadow object. The caller
    /// holds the map exclusively. While an entry needs a copy there is no writable mapping in its range, so the anons
    /// can be shared as they are.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]; the entry is as before.
    pub(crate) fn amap_copy(&mut self, vm: &Vm<M>) -> Result<(), VmError> {
        let _c = vm.machine().scope(Cause::Vm);
        if !self.attributes.copy_on_write || !self.attributes.needs_copy {
            return Ok(());
        }
        vm.machine().execute(vm.paths().map_entry);
        if vm.shadows().is_some() {
            return self.shadow(vm);
        }
        match &self.amap {
            None => {
                let amap = Amap::new(vm, self.len_pages(), self.lower_colour(vm))?;
                self.amap = Some(AmapRef { amap, slot: 0 });
            }
            Some(old) => {
                let slots = self.slots(old);
                let state = old.amap.lock();
                // With no other entry left on these slots, the amap is taken over as it is.
                if state.slot_refs().max_of(slots.clone()) > 1 {
                    let copy = state.copy_range(vm, slots.clone(), false)?;
                    drop(state);
                    old.amap.drop_ref(vm, slots);
                    self.amap = Some(AmapRef { amap: copy, slot: 0 });
                }
            }
        }
        self.attributes.needs_copy = false;
        self.touch(vm, Access::Write);
        Ok(())
    }

    /// Takes the wires off the pages of a locked entry.
    pub(crate) fn unlock(&mut self, vm: &Vm<M>) {
        if !self.locked.is_empty() {
            let mut table = vm.frames().lock();
            core::mem::take(&mut self.locked).into_iter().for_each(|frame| table.unwire(frame));
        }
    }

    /// Drops an entry that is in no map, with its references. Its mappings are removed, and flushed.
    pub(crate) fn dispose(mut self, vm: &Vm<M>) {
        vm.machine().execute(vm.paths().map_entry);
        self.unlock(vm);
        if let Some(a) = &self.amap {
            a.amap.drop_ref(vm, self.slots(a));
        }
        if let Some(o) = &self.object {
            o.object.drop_ref(vm);
        }
        vm.structures().free(Kind::Entry, self.at);
    }
}

impl<M: Machine> Map<M> {
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
            cuts.push((va, vm.structures().alloc(Kind::Entry)?));
        }
        for (va, structure) in cuts {
            let at = structure.keep();
            let below = Va(va.0 - PAGE_SIZE as u64);
            let upper = self.entries.change(below, |entry| entry.split_off(vm, va, at)).expect("still there");
            self.entries.insert(upper, visit(vm, Access::Write));
        }
        Ok(())
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

/// New entries, all of them or none: those before the first that cannot be made are dropped.
pub(crate) fn collect_entries<M: Machine>(
    vm: &Vm<M>,
    made: impl Iterator<Item = Result<Entry<M>, VmError>>,
) -> Result<Vec<Entry<M>>, VmError> {
    let mut entries = Vec::new();
    for entry in made {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(e) => {
                entries.into_iter().for_each(|entry: Entry<M>| entry.dispose(vm));
                return Err(e);
            }
        }
    }
    Ok(entries)
}
