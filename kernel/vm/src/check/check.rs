//! The conservation laws of memory.
//!
//! Walks everything that can be reached (spaces, entries, amaps, anons, objects, page tables) and compares it with what
//! the counters, the owners and the zones say. Each law that is broken is a defect of this floor, or of a caller that
//! kept or lost what it should not. For moments when no thread is at work in the VM system; it changes nothing, but its
//! reading is accounted for like any other.

use super::laws::{Cover, OwnerRef, check_cover, check_locked, check_map, check_mapping, law};
use super::paging;
use super::shadow::check_chains;
use crate::anon::{Amap, Anon};

use crate::config::{Kind, LoanLocking};
use crate::map::Entry;
use crate::object::Object;
use crate::page::{FrameState, Holder, KernelUse, Owner};
use crate::vm::{Space, Vm};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use pageferry_hal::{Machine, PAGE_SIZE, Pfn, Va};

/// What the walk has found.
struct Census<M: Machine> {
    amaps: BTreeMap<StructVaKey, FoundAmap<M>>,
    /// Slots that hold each anon.
    anons: BTreeMap<StructVaKey, FoundAnon<M>>,
    /// Entries that refer to each object.
    objects: BTreeMap<StructVaKey, u32>,
    /// Mappings found of each frame.
    mappings: BTreeMap<Pfn, usize>,
    entries: usize,
    /// Wires of locked entries.
    locked: u64,
    /// Frames that anons and objects say are their own.
    owned: usize,
}

type StructVaKey = u64;

struct FoundAmap<M: Machine> {
    amap: Arc<Amap<M>>,
    entries: u32,
    /// For each slot: entries that cover it, and how many of them need a copy.
    covered: Vec<Cover>,
}

struct FoundAnon<M: Machine> {
    anon: Arc<Anon<M>>,
    slots: u32,
}

impl<M: Machine> Vm<M> {
    /// Asserts the conservation laws of frames, anons, amaps, objects, maps and mappings; `Err` says which one is
    /// broken. Before: no thread is at work in the VM system.
    ///
    /// # Errors
    /// A sentence about the first broken law that was found.
    ///
    /// # Locks
    /// Takes all of them, one after the other: no spin lock may be held.
    pub fn check(&self) -> Result<(), String> {
        let abandoned = self.tally().abandoned.get();
        let lost = self.tally().lost.get();
        law!(lost == 0, "{lost} pages on loan or in transfer were dropped without being given back");
        law!(abandoned == 0, "{abandoned} address spaces were dropped without being terminated");
        self.kernel_map().check()?;
        let spaces = self.structures().spaces();
        let mut census = Census {
            amaps: BTreeMap::new(),
            anons: BTreeMap::new(),
            objects: BTreeMap::new(),
            mappings: BTreeMap::new(),
            entries: 0,
            locked: 0,
            owned: 0,
        };
        for space in &spaces {
            let map = space.locked_map().peek();
            let Some(map) = map else { return Err(format!("the map of {:?} is locked", space.struct_va())) };
            check_map(&map)?;
            map.entries().for_each(|e| census.add_entry(e));
        }
        census.find_anons()?;
        census.find_owners(self);
        census.find_holders(self);
        check_owners(self)?;
        census.check_amaps()?;
        census.check_anons(self)?;
        let objects = self.structures().objects();
        census.check_objects(self, &objects)?;
        for space in &spaces {
            let map = space.locked_map().peek().ok_or("a map became locked")?;
            for entry in map.entries() {
                census.check_mappings(self, space, entry)?;
            }
        }
        census.check_frames(self)?;
        check_chains(self, &spaces, &objects)?;
        paging::check_queues(self)?;
        paging::check_swap(self, &objects)?;
        self.check_zones(&census, spaces.len(), objects.len())
    }

    fn check_zones(&self, census: &Census<M>, spaces: usize, objects: usize) -> Result<(), String> {
        let chunks = census.amaps.values().map(|a| a.amap.lock().census().0).sum();
        let found = [
            (Kind::Anon, census.anons.len()),
            (Kind::Entry, census.entries),
            (Kind::Amap, census.amaps.len()),
            (Kind::Chunk, chunks),
            (Kind::Object, objects),
            (Kind::Space, spaces),
        ];
        for (kind, found) in found {
            let live = self.structures().live(kind);
            law!(live == found, "{live} {} are allocated, {found} can be reached", kind.name());
        }
        Ok(())
    }
}

impl<M: Machine> Census<M> {
    fn add_entry(&mut self, entry: &Entry<M>) {
        self.entries += 1;
        self.locked += entry.locked.len() as u64;
        if let Some(a) = &entry.amap {
            let found = self.amaps.entry(a.amap.struct_va().0.0).or_insert_with(|| FoundAmap {
                amap: a.amap.clone(),
                entries: 0,
                covered: Vec::new(),
            });
            found.entries += 1;
            let slots = entry.slots(a);
            let needs_copy = entry.attributes.needs_copy;
            found.covered.push(Cover { start: slots.start, end: slots.end, needs_copy });
        }
        if let Some(o) = &entry.object {
            *self.objects.entry(o.object.struct_va().0.0).or_default() += 1;
        }
    }

    fn find_anons(&mut self) -> Result<(), String> {
        for found in self.amaps.values() {
            let amap = found.amap.lock();
            let (mut anons, len) = (0, amap.slot_refs().len());
            for (_, anon) in amap.anons(0..len) {
                anons += 1;
                let key = anon.struct_va().0.0;
                let first = || FoundAnon { anon: anon.clone(), slots: 0 };
                self.anons.entry(key).or_insert_with(first).slots += 1;
            }
            let (_, empty, counted) = amap.census();
            law!(empty == 0, "an amap keeps slots for anons that it does not have");
            law!(anons == counted, "an amap holds {anons} anons but counts {counted}");
        }
        Ok(())
    }

    /// Anons that have a frame but perhaps no slot: those on loan.
    fn find_owners(&mut self, vm: &Vm<M>) {
        let owners: Vec<Arc<Anon<M>>> = {
            let table = vm.frames().lock();
            let anons = table.known().flat_map(|(_, f)| {
                let owner = if let Owner::Anon(anon) = &f.owner { anon.upgrade() } else { None };
                [owner, f.borrower.as_ref().and_then(|b| b.upgrade())]
            });
            anons.flatten().collect()
        };
        for anon in owners {
            self.anons.entry(anon.struct_va().0.0).or_insert(FoundAnon { anon, slots: 0 });
        }
    }

    /// Anons that have neither frame nor slot of an amap, but one of the swap area: those on loan that were paged out.
    fn find_holders(&mut self, vm: &Vm<M>) {
        for (_, holder) in vm.swap().holders() {
            if let Holder::Anon(anon) = holder
                && let Some(anon) = anon.upgrade()
            {
                self.anons.entry(anon.struct_va().0.0).or_insert(FoundAnon { anon, slots: 0 });
            }
        }
    }

    /// References of amaps.
    fn check_amaps(&self) -> Result<(), String> {
        for found in self.amaps.values() {
            check_cover(&found.amap.lock(), &found.covered)?;
        }
        Ok(())
    }

    /// References and frames of anons.
    fn check_anons(&mut self, vm: &Vm<M>) -> Result<(), String> {
        let (mut lent, mut resident) = (0, 0);
        for found in self.anons.values() {
            let state = found.anon.lock();
            let (refs, slots) = (state.refs, found.slots);
            law!(refs >= slots, "an anon counts {refs} references, {slots} slots hold it");
            lent += u64::from(refs - slots);
            law!(!state.busy, "an anon's page is on its way, and no thread moves it");
            let Some(frame) = state.frame else {
                law!(state.swap.is_some(), "an anon has neither frame nor swap slot");
                continue;
            };
            resident += 1;
            let table = vm.frames().lock();
            let is = |anon: &Weak<Anon<M>>| core::ptr::eq(anon.as_ptr(), Arc::as_ptr(&found.anon));
            let f = table.get(frame);
            let has = match &f.owner {
                Owner::Anon(anon) => is(anon) && f.borrower.is_none(),
                Owner::Object(..) => f.borrower.as_ref().is_some_and(is),
                Owner::Orphan => {
                    vm.loan_locking() == LoanLocking::Published && f.borrower.as_ref().is_some_and(is)
                }
                _ => false,
            };
            law!(has, "{frame:?} of an anon belongs to {:?}", f.info().state);
            self.owned += usize::from(f.borrower.is_none());
        }
        let tokens = vm.tally().anon_loans.get();
        law!(lent == tokens, "anons count {lent} references beside slots, {tokens} are on loan");
        let (owned, borrowed) = {
            let table = vm.frames().lock();
            let owned = table.known().filter(|(_, f)| matches!(f.owner, Owner::Anon(_))).count();
            (owned, table.known().filter(|(_, f)| f.borrower.is_some()).count())
        };
        law!(
            owned + borrowed == resident,
            "{owned} frames belong to anons, {borrowed} are on loan, {resident} anons with frames can be reached"
        );
        Ok(())
    }

    /// References and frames of objects. Holders' references cannot be seen: an object may have more than entries.
    fn check_objects(&mut self, vm: &Vm<M>, objects: &[Arc<Object<M>>]) -> Result<(), String> {
        for object in objects {
            let state = object.lock();
            let entries = self.objects.get(&object.struct_va().0.0).copied().unwrap_or(0);
            law!(
                state.refs() >= entries,
                "an object counts {} references, {entries} entries map it",
                state.refs()
            );
            law!(state.busy().is_empty(), "pages of an object are on their way, and no thread moves them");
            for (&page, &frame) in state.pages() {
                law!(page < state.len_pages(), "an object has page {page} of {}", state.len_pages());
                let table = vm.frames().lock();
                let owned = match &table.get(frame).owner {
                    Owner::Object(o, p) => core::ptr::eq(o.as_ptr(), Arc::as_ptr(object)) && *p == page,
                    _ => false,
                };
                law!(owned, "{frame:?} of an object belongs to {:?}", table.get(frame).info().state);
            }
            self.owned += state.pages().len();
        }
        Ok(())
    }

    /// What the page tables say about an entry agrees with its layers, and permits no write that others would see.
    fn check_mappings(&mut self, vm: &Vm<M>, space: &Space<M>, entry: &Entry<M>) -> Result<(), String> {
        check_locked(vm, entry)?;
        for (va, frame, exclusive) in candidates(vm, entry) {
            if check_mapping(vm, space, entry, va, Some((frame, exclusive)))? {
                *self.mappings.entry(frame).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Every frame is in one state, the states add up, and nothing is mapped beside what was found.
    fn check_frames(&self, vm: &Vm<M>) -> Result<(), String> {
        let mapped: BTreeMap<Pfn, usize> = vm.pmaps().all_mapped().into_iter().collect();
        let table = vm.frames().lock();
        // Those that were never in use are free, and nothing can be wrong with them but mappings.
        let (mut listed, mut data, mut kernel, mut orphans) = (table.fresh_count(), 0, 0, 0);
        let (mut wires, mut lent) = (0, 0);
        for (frame, f) in table.known() {
            let info = f.info();
            law!(f.wire_count >= f.kernel_loans(), "{frame:?} has more loans to the kernel than wires");
            let unused = info.wire_count == 0 && info.loan_count == 0;
            law!(info.state != FrameState::Free || unused, "{frame:?} is free but wired or lent");
            law!(info.state != FrameState::Orphan || !unused, "{frame:?} has neither owner nor user");
            if let FrameState::Kernel(kernel_use) = info.state {
                kernel += 1;
                data += u64::from(kernel_use == KernelUse::Data);
                law!(info.wire_count == 1, "{kernel_use:?} frame {frame:?} has {} wires", info.wire_count);
            }
            listed += usize::from(info.state == FrameState::Free);
            orphans += usize::from(info.state == FrameState::Orphan);
            wires += u64::from(info.wire_count);
            lent += u64::from(f.kernel_loans());
        }
        let (walked, free, held) = (table.walk_free(), table.free_count(), table.held_wires());
        law!(listed == walked && listed == free, "{listed} frames are free, {walked} listed, {free} counted");
        // The free list and the owners are asked, not the table: no frame is lost, and none has two masters.
        let (owned, all) = (self.owned, table.len());
        law!(
            walked + owned + orphans + kernel as usize == all,
            "{walked} frames are listed as free, {owned} have owners, {orphans} are orphans and {kernel} the kernel's: \
             not {all}"
        );
        let tokens = vm.tally().kernel_loans.get();
        law!(lent == tokens, "frames count {lent} loans to the kernel, {tokens} are on loan");
        let tokens = vm.tally().kernel_pages.get();
        law!(data == tokens, "{data} frames hold the kernel's data, {tokens} are handed out");
        for &frame in mapped.keys().chain(self.mappings.keys()) {
            let count = |of: &BTreeMap<Pfn, usize>| of.get(&frame).copied().unwrap_or(0);
            let (info, mapped, found) = (table.get(frame).info(), count(&mapped), count(&self.mappings));
            let boot = info.state == FrameState::Kernel(KernelUse::Boot);
            law!(
                boot || mapped == found,
                "{frame:?} ({info:?}) has {mapped} mappings, {found} lie in map entries"
            );
            law!(!boot || found == 0, "{found} map entries have {frame:?}, which is in use since boot");
        }
        law!(held >= self.locked, "{held} wires are held, locked memory has {}", self.locked);
        law!(
            wires == held + kernel,
            "{wires} wires, {held} of them held and {kernel} of the kernel's frames"
        );
        Ok(())
    }
}

/// Every owner and borrower that the table names lives, and has the frame.
fn check_owners<M: Machine>(vm: &Vm<M>) -> Result<(), String> {
    let refs: Vec<OwnerRef<M>> = {
        let table = vm.frames().lock();
        table.known().flat_map(|(frame, f)| OwnerRef::of(frame, f)).collect()
    };
    refs.iter().try_for_each(OwnerRef::check)
}

/// The pages of an entry that can be mapped, the frame that its layers have there, and whether it may be written.
pub(crate) fn candidates<M: Machine>(vm: &Vm<M>, entry: &Entry<M>) -> Vec<(Va, Pfn, bool)> {
    let range = entry.range;
    if vm.shadows().is_some() {
        let at = |va| entry.chain_at(vm, va).map(|(frame, exclusive)| (va, frame, exclusive));
        return range.pages().filter_map(at).collect();
    }
    let va = |page: u64| range.start() + (page as usize) * PAGE_SIZE;
    let mut found = BTreeMap::new();
    if let Some(o) = &entry.object {
        let state = o.object.lock();
        for (&page, &frame) in state.pages().range(o.page..o.page + entry.len_pages()) {
            found.insert(page - o.page, (frame, !entry.attributes.copy_on_write));
        }
    }
    if let Some(a) = &entry.amap {
        let amap = a.amap.lock();
        for (slot, anon) in amap.anons(entry.slots(a)) {
            let state = anon.lock();
            if let Some(frame) = state.frame {
                found.insert(slot - a.slot, (frame, state.refs == 1));
            }
        }
    }
    found.into_iter().map(|(page, (frame, exclusive))| (va(page), frame, exclusive)).collect()
}
