//! Amaps as they change: references by entries, and anons that come into slots and go.
//!
//! The amap's lock is held throughout, and those of anons are taken under it. Making an amap or a chunk can fail for
//! want of a structure, and copying one for want of a frame, and then nothing has changed; changes of references cannot
//! fail. Anons that are taken out of slots are the caller's, to be dropped with the amap unlocked.

use super::amap::{Amap, AmapState, Chunk};
use super::anon::Anon;
use super::ppref::SlotRefs;
use crate::config::{Kind, SLOTS_PER_CHUNK};
use crate::error::VmError;
use crate::probe::VmDefect;
use crate::vm::Vm;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{Access, LockClass, Machine};

impl<M: Machine> Amap<M> {
    /// An amap of `len` holes with one reference, by an entry that covers all of it. The page of the first has this
    /// colour.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn new(vm: &Vm<M>, len: u64, first_colour: u32) -> Result<Arc<Amap<M>>, VmError> {
        Ok(AmapState::new(vm, len, first_colour)?.publish(vm))
    }

    /// One more entry refers to `slots`.
    pub(crate) fn add_ref(&self, vm: &Vm<M>, slots: Range<u64>) {
        let mut state = self.lock();
        vm.journal().amap(self.at);
        vm.machine().touch(self.at, vm.sizes().amap_bytes, Access::Write);
        state.slot_refs.add(slots);
        state.refs += 1;
    }

    /// One entry becomes two that cover the same slots between them.
    pub(crate) fn split_ref(&self, vm: &Vm<M>) {
        let mut state = self.lock();
        vm.journal().amap(self.at);
        vm.machine().touch(self.at, vm.sizes().amap_bytes, Access::Write);
        assert!(state.refs > 0, "only a referenced amap is split");
        state.refs += 1;
    }

    /// Two entries that cover neighbouring slots become one.
    pub(crate) fn join_ref(&self, vm: &Vm<M>) {
        let mut state = self.lock();
        vm.journal().amap(self.at);
        vm.machine().touch(self.at, vm.sizes().amap_bytes, Access::Write);
        assert!(state.refs > 1, "two entries refer to this amap");
        state.refs -= 1;
    }

    /// An entry no longer refers to `slots`. Anons that no entry covers any more are freed at once, and with the last
    /// entry the amap. The caller has removed the entry's mappings, and flushed.
    pub(crate) fn drop_ref(&self, vm: &Vm<M>, slots: Range<u64>) {
        let mut state = self.lock();
        vm.journal().amap(self.at);
        vm.machine().touch(self.at, vm.sizes().amap_bytes, Access::Write);
        assert!(state.refs > 0, "an amap's references are counted wrongly");
        let mut dead = Vec::new();
        let keep = vm.has(VmDefect::SlotsOutliveEntries) && state.refs > 1;
        for range in if keep { Vec::new() } else { state.slot_refs.remove(slots) } {
            state.take(vm, range, &mut dead);
        }
        state.refs -= 1;
        let last = state.refs == 0;
        assert!(!last || state.chunks.is_empty(), "an amap dies and holds anons");
        drop(state);
        for anon in dead {
            anon.drop_ref(vm);
        }
        if last {
            vm.structures().free(Kind::Amap, self.at);
        }
    }
}

impl<M: Machine> AmapState<M> {
    /// What is to become an amap, not yet behind a lock: so it can be filled while another amap is locked.
    fn new(vm: &Vm<M>, len: u64, first_colour: u32) -> Result<AmapState<M>, VmError> {
        vm.machine().execute(vm.paths().anon);
        let at = vm.structures().alloc(Kind::Amap)?.keep();
        vm.machine().touch(at, vm.sizes().amap_bytes, Access::Write);
        Ok(AmapState { at, first_colour, refs: 1, slot_refs: SlotRefs::new(len), chunks: BTreeMap::new() })
    }

    fn publish(self, vm: &Vm<M>) -> Arc<Amap<M>> {
        let AmapState { at, first_colour, .. } = self;
        Arc::new(Amap { at, first_colour, state: vm.machine().new_lock(LockClass::AMAP, self) })
    }

    /// Undoes [`AmapState::new`].
    fn discard(mut self, vm: &Vm<M>) {
        let mut anons = Vec::new();
        self.take(vm, 0..self.slot_refs.len(), &mut anons);
        anons.iter().for_each(|anon| anon.drop_ref(vm));
        vm.structures().free(Kind::Amap, self.at);
    }

    /// A new amap with the anons of `slots`, each with one more reference; with `copy_wired`, those whose frame is
    /// wired are copied instead. The caller sees to it that no mapping through `slots` permits writes any more.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]; nothing has changed.
    pub(crate) fn copy_range(
        &self,
        vm: &Vm<M>,
        slots: Range<u64>,
        copy_wired: bool,
    ) -> Result<Arc<Amap<M>>, VmError> {
        let first_colour = self.first_colour.wrapping_add(slots.start as u32);
        let mut copy = AmapState::new(vm, slots.end - slots.start, first_colour)?;
        for (slot, anon) in self.anons(slots.clone()) {
            let slot = slot - slots.start;
            let stand = copy.reserve(vm, slot).and_then(|()| match copy_wired {
                true => anon.copy_if_wired(vm),
                false => Ok(None),
            });
            match stand {
                Ok(stand) => {
                    let anon = stand.unwrap_or_else(|| {
                        if !vm.has(VmDefect::AnonReferenceForgotten) {
                            anon.add_ref(vm);
                        }
                        anon.clone()
                    });
                    let old = copy.put(vm, slot, anon);
                    assert!(old.is_none(), "a slot of a new amap is empty");
                }
                Err(e) => {
                    copy.trim(vm, slot);
                    copy.discard(vm);
                    return Err(e);
                }
            }
        }
        Ok(copy.publish(vm))
    }

    /// The anon in `slot`, accounted for.
    pub(crate) fn look_up(&self, vm: &Vm<M>, slot: u64) -> Option<&Arc<Anon<M>>> {
        assert!(slot < self.slot_refs.len(), "slot {slot} of {}", self.slot_refs.len());
        vm.machine().touch(self.at, vm.sizes().amap_bytes, Access::Read);
        let chunk = self.chunks.get(&(slot / SLOTS_PER_CHUNK))?;
        chunk.touch(vm, slot, Access::Read);
        chunk.anons[(slot % SLOTS_PER_CHUNK) as usize].as_ref()
    }

    /// Makes sure that an anon can be put in `slot`. [`AmapState::trim`] takes it back.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn reserve(&mut self, vm: &Vm<M>, slot: u64) -> Result<(), VmError> {
        if let Entry::Vacant(vacant) = self.chunks.entry(slot / SLOTS_PER_CHUNK) {
            let at = vm.structures().alloc(Kind::Chunk)?.keep();
            vacant.insert(Chunk { at, used: 0, anons: Default::default() });
        }
        Ok(())
    }

    /// Gives the memory of `slot` back if nothing beside it is used.
    pub(crate) fn trim(&mut self, vm: &Vm<M>, slot: u64) {
        let key = slot / SLOTS_PER_CHUNK;
        if self.chunks.get(&key).is_some_and(|c| c.used == 0) {
            let chunk = self.chunks.remove(&key).expect("just seen");
            vm.structures().free(Kind::Chunk, chunk.at);
        }
    }

    /// Puts `anon`, with its reference, in a slot that [`AmapState::reserve`] made sure of; returns what it replaces.
    pub(crate) fn put(&mut self, vm: &Vm<M>, slot: u64, anon: Arc<Anon<M>>) -> Option<Arc<Anon<M>>> {
        assert!(self.slot_refs.of(slot) > 0, "no entry covers slot {slot}");
        vm.machine().execute(vm.paths().anon);
        vm.journal().amap(self.at);
        let chunk = self.chunks.get_mut(&(slot / SLOTS_PER_CHUNK)).expect("the slot is reserved");
        chunk.touch(vm, slot, Access::Write);
        let old = chunk.anons[(slot % SLOTS_PER_CHUNK) as usize].replace(anon);
        chunk.used += u32::from(old.is_none());
        old
    }

    /// Takes all anons out of `slots`.
    pub(crate) fn take(&mut self, vm: &Vm<M>, slots: Range<u64>, into: &mut Vec<Arc<Anon<M>>>) {
        let used: Vec<u64> = self.anons(slots).map(|(slot, _)| slot).collect();
        vm.journal().amap(self.at);
        for slot in used {
            let chunk = self.chunks.get_mut(&(slot / SLOTS_PER_CHUNK)).expect("just seen");
            chunk.touch(vm, slot, Access::Write);
            into.extend(chunk.anons[(slot % SLOTS_PER_CHUNK) as usize].take());
            chunk.used -= 1;
            self.trim(vm, slot);
        }
    }
}

impl<M: Machine> Chunk<M> {
    fn touch(&self, vm: &Vm<M>, slot: u64, access: Access) {
        let bytes = vm.sizes().slot_bytes;
        vm.machine().touch(self.at.element((slot % SLOTS_PER_CHUNK) as usize, bytes), bytes, access);
    }
}
