//! The map entry: a range of addresses, what may be done there, and the two layers behind it (UVM paper, 3.1).
//!
//! Upper layer: an offset in an amap, or none yet. Lower layer: an offset in one object, or none. An entry holds a
//! reference to each. Entries belong to a map and change under its lock; making one can fail for want of a structure.
//!
//! `copy_on_write` entries write to the amap layer; an entry without it writes to its object and has no amap. An entry
//! without object is always copy-on-write: what a private and a shared anonymous mapping differ in is what fork does.

use crate::anon::Amap;
use crate::config::Kind;
use crate::error::VmError;
use crate::object::Object;
use crate::vm::Vm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{Access, Cause, Machine, PAGE_SHIFT, Pfn, Prot, StructVa, Va, VaRange};

/// What happens to a range at fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    /// The child has nothing there.
    None,
    /// Parent and child see each other's writes.
    Share,
    /// The child has a copy; made when one of them writes.
    Copy,
}

/// How the pages of a range will be used (`madvise`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Advice {
    /// Nothing is known: a page that comes in brings some neighbours.
    #[default]
    Normal,
    /// In order: it brings more.
    Sequential,
    /// In no order: it comes alone.
    Random,
}

/// The upper layer: an amap from a slot on.
pub(crate) struct AmapRef<M: Machine> {
    pub(crate) amap: Arc<Amap<M>>,
    pub(crate) slot: u64,
}

/// The lower layer: an object from a page on.
pub(crate) struct ObjectRef<M: Machine> {
    pub(crate) object: Arc<Object<M>>,
    pub(crate) page: u64,
}

/// What the pages of an entry have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attributes {
    /// What user code may do there now.
    pub(crate) prot: Prot,
    /// What it may ever be allowed to do there.
    pub(crate) max_prot: Prot,
    pub(crate) inherit: Inherit,
    pub(crate) copy_on_write: bool,
    /// The amap (or its absence) is shared with others only until somebody wants to change it.
    pub(crate) needs_copy: bool,
    /// The range belongs to the space's area for page transfer.
    pub(crate) transfer_area: bool,
    pub(crate) advice: Advice,
}

pub(crate) struct Entry<M: Machine> {
    pub(crate) at: StructVa,
    pub(crate) range: VaRange,
    pub(crate) attributes: Attributes,
    pub(crate) amap: Option<AmapRef<M>>,
    pub(crate) object: Option<ObjectRef<M>>,
    /// The frames of an entry that is locked in memory, one for each page, each with a wire; else none.
    pub(crate) locked: Vec<Pfn>,
}

impl<M: Machine> Entry<M> {
    /// The number of the page at `va`, from the start of the entry.
    fn page_number(&self, va: Va) -> u64 {
        assert!(self.range.contains(va), "{va:?} is not in {:?}", self.range);
        ((va - self.range.start()) >> PAGE_SHIFT) as u64
    }

    /// The slot of the page at `va` in the entry's amap.
    pub(crate) fn slot(&self, amap: &AmapRef<M>, va: Va) -> u64 {
        amap.slot + self.page_number(va)
    }

    /// The page of the entry's object at `va`.
    pub(crate) fn object_page(&self, object: &ObjectRef<M>, va: Va) -> u64 {
        object.page + self.page_number(va)
    }

    /// The slots of the amap that the entry covers.
    pub(crate) fn slots(&self, amap: &AmapRef<M>) -> Range<u64> {
        amap.slot..amap.slot + self.len_pages()
    }

    pub(crate) fn len_pages(&self) -> u64 {
        self.range.len_pages() as u64
    }

    pub(crate) fn touch(&self, vm: &Vm<M>, access: Access) {
        vm.machine().touch(self.at, vm.sizes().entry_bytes, access);
    }

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
        let at = vm.structures().alloc(Kind::Entry)?;
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

    /// True when `next` continues this entry in every respect, so that the two can be one. Two amaps are never joined:
    /// an entry must not grow over slots that its amap does not have.
    pub(crate) fn continues_in(&self, next: &Entry<M>) -> bool {
        let pages = self.len_pages();
        let amap = match (&self.amap, &next.amap) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(&a.amap, &b.amap) && a.slot + pages == b.slot,
            _ => false,
        };
        let object = match (&self.object, &next.object) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(&a.object, &b.object) && a.page + pages == b.page,
            _ => false,
        };
        let alike = self.attributes == next.attributes && self.locked.is_empty() == next.locked.is_empty();
        self.range.end() == next.range.start() && alike && amap && object
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

    /// Resolves needs-copy: the entry gets an amap that nobody else has. The caller holds the map exclusively. While an
    /// entry needs a copy there is no writable mapping in its range, so the anons can be shared as they are.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]; the entry is as before.
    pub(crate) fn own_amap(&mut self, vm: &Vm<M>) -> Result<(), VmError> {
        let _c = vm.machine().scope(Cause::Vm);
        if !self.attributes.copy_on_write || !self.attributes.needs_copy {
            return Ok(());
        }
        vm.machine().execute(vm.paths().map_entry);
        match &self.amap {
            None => self.amap = Some(AmapRef { amap: Amap::new(vm, self.len_pages())?, slot: 0 }),
            Some(old) => {
                let slots = self.slots(old);
                let state = old.amap.lock();
                // With nobody left on the other side, the amap is taken over as it is.
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

    /// What the layers have at `va`, and whether it may be written; not accounted for.
    pub(crate) fn layers_at(&self, va: Va) -> Option<(Pfn, bool)> {
        let page = (va - self.range.start()) as u64 >> PAGE_SHIFT;
        if let Some(a) = &self.amap
            && let Some((_, anon)) = a.amap.lock().anons(a.slot + page..a.slot + page + 1).next()
        {
            let state = anon.lock();
            return state.frame.map(|frame| (frame, state.refs == 1));
        }
        let o = self.object.as_ref()?;
        let frame = *o.object.lock().pages().get(&(o.page + page))?;
        Some((frame, !self.attributes.copy_on_write))
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
