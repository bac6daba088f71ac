//! The conservation laws of memory, checked where something has changed.
//!
//! [`Vm::check`] walks everything; a watch remembers what it saw (how often each anon is in a slot, which entries cover
//! which slots of an amap, what each frame adds to the totals) and, at each look, goes to what the journal names:
//! frames, anons, amaps and address spaces, and what hangs on them. So a look costs what was done since the last one,
//! not what there is. The laws are the same, but for those that only a walk can see (the free list, empty chunks): a
//! test that watches also walks now and then.
//!
//! For moments when no thread is at work in the VM system.

use super::laws::{Cover, OwnerRef, check_cover, check_locked, check_map, check_mapping, law};
use crate::anon::{Amap, Anon};
use crate::config::{Kind, LoanLocking};
use crate::map::{Attributes, Entry};
use crate::object::Object;
use crate::page::{FrameState, KernelUse, Owner, Queue};
use crate::probe::Changed;
use crate::vm::{Space, Vm};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use pageferry_hal::{Machine, Pfn, SpaceId, StructVa, Va, VaRange};

/// Checks the laws where something has changed. At most one at a time for a [`Vm`].
pub struct Watch<M: Machine> {
    vm: Arc<Vm<M>>,
    frames: Vec<Share>,
    total: Totals,
    spaces: BTreeMap<u64, SeenSpace<M>>,
    by_pmap: BTreeMap<SpaceId, u64>,
    amaps: BTreeMap<u64, SeenAmap<M>>,
    anons: BTreeMap<u64, SeenAnon<M>>,
}

/// Pages of an entry that are looked at one by one; of longer ones, only those whose frames have changed.
const MAX_PAGES: usize = 64;

/// What one frame adds to the totals.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Share {
    state: FrameState,
    wires: u32,
    kernel_loans: u32,
    borrowed: bool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    free: i64,
    /// Frames that anons own or have on loan.
    of_anons: i64,
    kernel: i64,
    data: i64,
    wires: i64,
    kernel_loans: i64,
    entries: i64,
    /// References of anons beside slots.
    anon_loans: i64,
}

struct SeenSpace<M: Machine> {
    space: Weak<Space<M>>,
    pmap: SpaceId,
    entries: Vec<SeenEntry<M>>,
}

/// An entry as it was.
struct SeenEntry<M: Machine> {
    range: VaRange,
    attributes: Attributes,
    amap: Option<(Weak<Amap<M>>, u64, Cover)>,
    object: Option<(Weak<Object<M>>, u64)>,
}

struct SeenAmap<M: Machine> {
    amap: Weak<Amap<M>>,
    covers: Vec<Cover>,
    slots: Vec<(u64, u64)>,
}

struct SeenAnon<M: Machine> {
    anon: Weak<Anon<M>>,
    slots: u32,
    refs: u32,
}

impl<M: Machine> Watch<M> {
    /// Begins to watch; everything is looked at once.
    ///
    /// # Errors
    /// A sentence about a law that is broken already.
    pub fn new(vm: &Arc<Vm<M>>) -> Result<Watch<M>, String> {
        vm.journal().open();
        let mut watch = Watch {
            vm: vm.clone(),
            frames: Vec::new(),
            total: Totals::default(),
            spaces: BTreeMap::new(),
            by_pmap: BTreeMap::new(),
            amaps: BTreeMap::new(),
            anons: BTreeMap::new(),
        };
        watch.begin_again()?;
        Ok(watch)
    }

    /// Checks what has changed since the last look.
    ///
    /// # Errors
    /// A sentence about the first broken law that was found.
    ///
    /// # Locks
    /// Takes all of them, one after the other: no spin lock may be held.
    pub fn look(&mut self) -> Result<(), String> {
        match self.vm.journal().take() {
            Some(changed) => self.look_at(changed),
            None => self.begin_again(),
        }
    }

    /// Forgets everything and looks at everything.
    fn begin_again(&mut self) -> Result<(), String> {
        let vm = self.vm.clone();
        vm.check()?;
        // The check has changed nothing, but touched much.
        vm.journal().discard();
        let frames = vm.frames().lock().len();
        let none = Share { state: FrameState::Orphan, wires: 0, kernel_loans: 0, borrowed: false };
        self.frames = alloc::vec![none; frames];
        self.total = Totals::default();
        (self.amaps, self.anons, self.spaces, self.by_pmap) = Default::default();
        let changed = Changed {
            frames: (0..frames as u32).map(Pfn).collect(),
            spaces: vm.structures().spaces().iter().map(|s| s.struct_va().0.0).collect(),
            ..Changed::default()
        };
        self.look_at(changed)
    }

    fn look_at(&mut self, mut changed: Changed) -> Result<(), String> {
        self.count_frames(&mut changed);
        for at in core::mem::take(&mut changed.spaces) {
            self.look_at_space(at, &mut changed)?;
        }
        for at in core::mem::take(&mut changed.amaps) {
            self.look_at_amap(at, &mut changed)?;
        }
        for at in core::mem::take(&mut changed.anons) {
            self.look_at_anon(at, &mut changed)?;
        }
        self.look_at_frames(&changed)?;
        self.add_up()?;
        // What a look does to locks and lists is no change.
        self.vm.journal().discard();
        Ok(())
    }

    fn track_anon(&mut self, anon: &Arc<Anon<M>>) {
        let first = || SeenAnon { anon: Weak::new(), slots: 0, refs: 0 };
        let seen = self.anons.entry(anon.struct_va().0.0).or_insert_with(first);
        // Another may have lived at this address; what it counted goes when the slots that held it are looked at.
        if !core::ptr::eq(seen.anon.as_ptr(), Arc::as_ptr(anon)) {
            seen.anon = Arc::downgrade(anon);
        }
    }

    // ------------------------------------------------------------------------------------------- spaces

    /// Goes to the entries that are not as they were. What maps the pages of the others has not changed, or hangs on
    /// frames that have.
    fn look_at_space(&mut self, at: u64, changed: &mut Changed) -> Result<(), String> {
        let old = self.spaces.remove(&at);
        let space = self.vm.structures().space(StructVa(Va(at)));
        let same = old.as_ref().zip(space.as_ref()).is_some_and(|(old, new)| old.pmap == new.pmap().id());
        let mut before = Vec::new();
        if let Some(old) = old {
            self.by_pmap.remove(&old.pmap);
            self.total.entries -= old.entries.len() as i64;
            before = old.entries;
        }
        let mut now = Vec::new();
        if let Some(space) = &space {
            let map = space.locked_map().peek().ok_or("a map is locked")?;
            check_map(&map)?;
            map.entries().try_for_each(|entry| check_locked(&self.vm, entry))?;
            now = map.entries().map(SeenEntry::of).collect();
        }
        // Both are in order of addresses.
        let gone = before
            .iter()
            .filter(|e| !now.binary_search_by_key(&e.start(), SeenEntry::start).is_ok_and(|i| now[i].is(e)));
        let gone: Vec<SeenEntry<M>> = gone.cloned().collect();
        let new = now.iter().filter(|e| {
            !before.binary_search_by_key(&e.start(), SeenEntry::start).is_ok_and(|i| before[i].is(e))
        });
        let new: Vec<SeenEntry<M>> = new.cloned().collect();
        gone.iter().for_each(|entry| self.uncover(entry, changed));
        new.iter().for_each(|entry| self.cover(entry, changed));
        let Some(space) = space else { return Ok(()) };
        // After a death and a birth at one address nothing of the old one's addresses is of interest.
        let pages = gone.iter().filter(|_| same).chain(&new).filter(|e| e.range.len_pages() <= MAX_PAGES);
        let map = space.locked_map().peek().ok_or("a map is locked")?;
        for va in pages.flat_map(|e| e.range.pages()) {
            let entry = map.entry_at(va);
            match entry {
                Some(entry) => {
                    check_mapping(&self.vm, &space, entry, va, entry.layers_at(&self.vm, va))?;
                }
                None => {
                    let mapped = self.vm.pmaps().extract(space.pmap(), va);
                    law!(mapped.is_none(), "{va:?} is mapped, where there is no entry");
                }
            }
        }
        self.total.entries += now.len() as i64;
        let pmap = space.pmap().id();
        self.by_pmap.insert(pmap, at);
        self.spaces.insert(at, SeenSpace { space: Arc::downgrade(&space), pmap, entries: now });
        Ok(())
    }

    fn cover(&mut self, entry: &SeenEntry<M>, changed: &mut Changed) {
        let Some((amap, at, cover)) = &entry.amap else { return };
        let first = || SeenAmap { amap: Weak::new(), covers: Vec::new(), slots: Vec::new() };
        let known = self.amaps.entry(*at).or_insert_with(first);
        known.covers.push(*cover);
        // As with anons: another may have lived here.
        if !known.amap.ptr_eq(amap) {
            known.amap = amap.clone();
        }
        changed.amaps.insert(*at);
    }

    fn uncover(&mut self, entry: &SeenEntry<M>, changed: &mut Changed) {
        let Some((_, at, cover)) = &entry.amap else { return };
        let seen = self.amaps.get_mut(at).expect("it was covered");
        let i = seen.covers.iter().position(|c| c == cover).expect("by this");
        seen.covers.swap_remove(i);
        changed.amaps.insert(*at);
    }

    // ------------------------------------------------------------------------------------------- amaps, anons

    fn look_at_amap(&mut self, at: u64, changed: &mut Changed) -> Result<(), String> {
        // One that is not known was made and dropped since the last look.
        let Some(seen) = self.amaps.get_mut(&at) else { return Ok(()) };
        let mut slots = Vec::new();
        let mut anons = Vec::new();
        let alive = (!seen.covers.is_empty()).then(|| seen.amap.upgrade()).flatten();
        law!(alive.is_some() || seen.covers.is_empty(), "entries refer to an amap that is gone");
        if let Some(amap) = &alive {
            let amap = amap.lock();
            check_cover(&amap, &seen.covers)?;
            for (slot, anon) in amap.anons(0..amap.slot_refs().len()) {
                slots.push((slot, anon.struct_va().0.0));
                anons.push(anon.clone());
            }
            let (_, _, counted) = amap.census();
            law!(slots.len() == counted, "an amap holds {} anons but counts {counted}", slots.len());
        }
        let old = core::mem::replace(&mut seen.slots, slots);
        let now = seen.slots.clone();
        if alive.is_none() {
            self.amaps.remove(&at);
        }
        anons.iter().for_each(|anon| self.track_anon(anon));
        for (slots, sign) in [(old, -1), (now, 1)] {
            for (_, anon) in slots {
                let seen = self.anons.get_mut(&anon).expect("met when it came to a slot");
                seen.slots = seen.slots.checked_add_signed(sign).expect("it was counted");
                // What is owed is counted anew below, from what it was.
                self.total.anon_loans -= i64::from(sign);
                changed.anons.insert(anon);
            }
        }
        Ok(())
    }

    fn look_at_anon(&mut self, at: u64, changed: &mut Changed) -> Result<(), String> {
        let Some(seen) = self.anons.get_mut(&at) else { return Ok(()) };
        let anon = seen.anon.upgrade();
        let state = anon.as_ref().map(|anon| anon.lock());
        let (refs, frame, slot) = state.as_ref().map_or((0, None, None), |s| (s.refs, s.frame, s.swap));
        let busy = state.as_ref().is_some_and(|s| s.busy);
        drop(state);
        law!(!busy, "an anon's page is on its way, and no thread moves it");
        law!(refs >= seen.slots, "an anon counts {refs} references, {} slots hold it", seen.slots);
        self.total.anon_loans += i64::from(refs) - i64::from(seen.refs);
        seen.refs = refs;
        let Some(anon) = anon.filter(|_| refs > 0) else {
            // Its address may be another's by now; that one is met when it gets a frame.
            self.anons.remove(&at);
            return Ok(());
        };
        if let Some(slot) = slot {
            law!(self.vm.swap().is_held_by(slot, &anon), "an anon has {slot:?}, which is not its own");
        }
        let Some(frame) = frame else {
            law!(slot.is_some(), "an anon has neither frame nor swap slot");
            return Ok(());
        };
        let table = self.vm.frames().lock();
        let is = |weak: &Weak<Anon<M>>| core::ptr::eq(weak.as_ptr(), Arc::as_ptr(&anon));
        let f = table.get(frame);
        let has = match &f.owner {
            Owner::Anon(owner) => is(owner) && f.borrower.is_none(),
            Owner::Object(..) => f.borrower.as_ref().is_some_and(is),
            Owner::Orphan => {
                self.vm.loan_locking() == LoanLocking::Published && f.borrower.as_ref().is_some_and(is)
            }
            _ => false,
        };
        law!(has, "{frame:?} of an anon belongs to {:?}", f.info().state);
        changed.frames.insert(frame);
        Ok(())
    }

    // ------------------------------------------------------------------------------------------- frames

    /// Counts the frames that have changed, and meets the anons that have them.
    fn count_frames(&mut self, changed: &mut Changed) {
        let vm = self.vm.clone();
        let table = vm.frames().lock();
        let mut anons = Vec::new();
        for &frame in &changed.frames {
            let f = table.get(frame);
            let now = Share {
                state: f.info().state,
                wires: f.wire_count,
                kernel_loans: f.kernel_loans(),
                borrowed: f.borrower.is_some(),
            };
            let before = core::mem::replace(&mut self.frames[frame.index()], now);
            self.total.add(before, -1);
            self.total.add(now, 1);
            let owner = if let Owner::Anon(anon) = &f.owner { anon.upgrade() } else { None };
            anons.extend([owner, f.borrower.as_ref().and_then(Weak::upgrade)].into_iter().flatten());
        }
        drop(table);
        for anon in anons {
            self.track_anon(&anon);
            changed.anons.insert(anon.struct_va().0.0);
        }
    }

    /// Their states are sound, and what maps them does so by right.
    fn look_at_frames(&self, changed: &Changed) -> Result<(), String> {
        let vm = &self.vm;
        let mut refs = Vec::new();
        let table = vm.frames().lock();
        for &frame in &changed.frames {
            let f = table.get(frame);
            law!(f.wire_count >= f.kernel_loans(), "{frame:?} has more loans to the kernel than wires");
            let info = f.info();
            let queue = f.queue;
            let queued = !table.keeps_queues() || f.is_pageable() == (queue != Queue::None);
            law!(queued, "{frame:?} ({info:?}) is on the paging queue {queue:?}");
            law!(!f.busy, "{frame:?} ({info:?}) is busy, and no thread works on it");
            let unused = info.wire_count == 0 && info.loan_count == 0;
            law!(info.state != FrameState::Free || unused, "{frame:?} is free but wired or lent");
            law!(info.state != FrameState::Orphan || !unused, "{frame:?} has neither owner nor user");
            if let FrameState::Kernel(kernel_use) = info.state {
                law!(info.wire_count == 1, "{kernel_use:?} frame {frame:?} has {} wires", info.wire_count);
            }
            refs.extend(OwnerRef::of(frame, f));
        }
        drop(table);
        refs.iter().try_for_each(OwnerRef::check)?;
        changed.frames.iter().try_for_each(|&frame| self.look_at_mappings(frame))
    }

    fn look_at_mappings(&self, frame: Pfn) -> Result<(), String> {
        let vm = &self.vm;
        if self.frames[frame.index()].state == FrameState::Kernel(KernelUse::Boot) {
            return Ok(());
        }
        for (pmap, va) in vm.pmaps().mapped_at(frame) {
            let seen = self.by_pmap.get(&pmap).and_then(|at| self.spaces[at].space.upgrade());
            let Some(space) = seen else {
                return Err(format!("{frame:?} is mapped at {va:?} in no address space"));
            };
            let map = space.locked_map().peek().ok_or("a map is locked")?;
            let Some(entry) = map.entry_at(va) else {
                return Err(format!("{frame:?} is mapped at {va:?}, where there is no entry"));
            };
            let layers = entry.layers_at(vm, va);
            check_mapping(vm, &space, entry, va, layers)?;
        }
        Ok(())
    }

    /// The totals agree with what is counted elsewhere.
    fn add_up(&self) -> Result<(), String> {
        let (vm, sum) = (&self.vm, &self.total);
        let lost = vm.tally().lost.get();
        law!(lost == 0, "{lost} pages on loan or in transfer were dropped without being given back");
        let abandoned = vm.tally().abandoned.get();
        law!(abandoned == 0, "{abandoned} address spaces were dropped without being terminated");
        let all_live = vm.structures().all_live();
        let live = |kind: Kind| all_live[kind as usize] as i64;
        let (free, wires) = {
            let table = vm.frames().lock();
            (table.free_count() as i64, table.held_wires() as i64)
        };
        let laws = [
            ("free frames", sum.free, free),
            ("wires", sum.wires, wires + sum.kernel),
            ("loans to the kernel", sum.kernel_loans, vm.tally().kernel_loans.get() as i64),
            ("loans to anons", sum.anon_loans, vm.tally().anon_loans.get() as i64),
            ("frames of the kernel's data", sum.data, vm.tally().kernel_pages.get() as i64),
            ("anons with a frame", sum.of_anons, live(Kind::Anon) - vm.swap_census().only_anons as i64),
            ("anons", self.anons.len() as i64, live(Kind::Anon)),
            ("map entries", sum.entries, live(Kind::Entry)),
            ("amaps", self.amaps.len() as i64, live(Kind::Amap)),
            ("address spaces", self.spaces.len() as i64, live(Kind::Space)),
        ];
        for (what, seen, counted) in laws {
            law!(seen == counted, "{seen} {what} can be seen, {counted} are counted");
        }
        Ok(())
    }
}

impl<M: Machine> Clone for SeenEntry<M> {
    fn clone(&self) -> SeenEntry<M> {
        let (range, attributes) = (self.range, self.attributes);
        SeenEntry { range, attributes, amap: self.amap.clone(), object: self.object.clone() }
    }
}

impl<M: Machine> SeenEntry<M> {
    fn of(entry: &Entry<M>) -> SeenEntry<M> {
        let amap = entry.amap.as_ref().map(|a| {
            let slots = entry.slots(a);
            let cover = Cover { start: slots.start, end: slots.end, needs_copy: entry.attributes.needs_copy };
            (Arc::downgrade(&a.amap), a.amap.struct_va().0.0, cover)
        });
        let object = entry.object.as_ref().map(|o| (Arc::downgrade(&o.object), o.page));
        SeenEntry { range: entry.range, attributes: entry.attributes, amap, object }
    }

    fn start(&self) -> Va {
        self.range.start()
    }

    fn is(&self, other: &SeenEntry<M>) -> bool {
        let amaps = match (&self.amap, &other.amap) {
            (Some((a, _, over)), Some((b, _, other))) => a.ptr_eq(b) && over == other,
            (a, b) => a.is_none() && b.is_none(),
        };
        let objects = match (&self.object, &other.object) {
            (Some((a, page)), Some((b, other))) => a.ptr_eq(b) && page == other,
            (a, b) => a.is_none() && b.is_none(),
        };
        self.range == other.range && self.attributes == other.attributes && amaps && objects
    }
}

impl<M: Machine> Drop for Watch<M> {
    fn drop(&mut self) {
        self.vm.journal().close();
    }
}

impl Totals {
    fn add(&mut self, share: Share, sign: i64) {
        let is = |state| i64::from(share.state == state) * sign;
        self.free += is(FrameState::Free);
        self.of_anons += is(FrameState::Anon) + i64::from(share.borrowed) * sign;
        self.kernel += i64::from(matches!(share.state, FrameState::Kernel(_))) * sign;
        self.data += is(FrameState::Kernel(KernelUse::Data));
        self.wires += i64::from(share.wires) * sign;
        self.kernel_loans += i64::from(share.kernel_loans) * sign;
    }
}
