//! The swap area: where pages without a file go.
//!
//! The first blocks of the disk, in slots of a page. A slot is free, held by one anon or one page of an object, or bad:
//! the disk could not write it, and it is never used again. Each time a slot is freed its *generation* goes up, and a
//! [`SwapSlot`] names slot and generation: so a value that outlived its slot is found out when it is used, even if the
//! slot has another holder by then. A thread that reads or writes a slot keeps its holder busy meanwhile, and holders
//! that are busy keep their slots.
//!
//! One leaf lock of class `KernelVa`. What can fail is finding a free slot.

use super::swap_slot::SwapSlot;
use crate::anon::Anon;
use crate::object::Object;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_hal::{LockClass, Machine, SpinLock};

/// Whose page is in a slot.
pub(crate) enum Holder<M: Machine> {
    Anon(Weak<Anon<M>>),
    /// The object, and the page of it.
    Page(Weak<Object<M>>, u64),
}

impl<M: Machine> Clone for Holder<M> {
    fn clone(&self) -> Holder<M> {
        match self {
            Holder::Anon(anon) => Holder::Anon(anon.clone()),
            Holder::Page(object, page) => Holder::Page(object.clone(), *page),
        }
    }
}

enum Use<M: Machine> {
    Free,
    Held(Holder<M>),
    Bad,
}

struct Slot<M: Machine> {
    generation: u32,
    used: Use<M>,
}

struct State<M: Machine> {
    slots: Vec<Slot<M>>,
    /// Where to look first.
    next: usize,
    free: usize,
    bad: usize,
    /// Slots whose page is in no frame: those of anons, and all.
    only_anons: usize,
    only: usize,
}

/// How full the swap area is, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapCensus {
    /// Of the whole area.
    pub slots: usize,
    /// Not used.
    pub free: usize,
    /// Never to be used again.
    pub bad: usize,
    /// Held by pages that are in no frame.
    pub only: usize,
    /// Those of them that are anons'.
    pub only_anons: usize,
}

pub(crate) struct Swap<M: Machine> {
    state: M::Lock<State<M>>,
    /// No slot is free. Written under the lock, read without.
    full: AtomicBool,
}

impl<M: Machine> Swap<M> {
    pub(crate) fn new(machine: &M, slots: u32) -> Swap<M> {
        let free = slots as usize;
        let slots = (0..slots).map(|_| Slot { generation: 0, used: Use::Free }).collect();
        let state = State { slots, next: 0, free, bad: 0, only_anons: 0, only: 0 };
        Swap { full: AtomicBool::new(free == 0), state: machine.new_lock(LockClass::KERNEL_VA, state) }
    }

    /// Consecutive free slots for the first of `holders`, for as many as one free run has; none when the area is full.
    pub(crate) fn alloc_run(&self, holders: &[Holder<M>]) -> Vec<SwapSlot> {
        let mut state = self.state.lock();
        let len = state.slots.len();
        let mut best = 0..0;
        let mut at = state.next;
        // Once around, in two straight pieces, until a run is long enough.
        for piece in [state.next..len, 0..state.next] {
            let mut run = piece.start..piece.start;
            for index in piece {
                if !matches!(state.slots[index].used, Use::Free) {
                    run = index + 1..index + 1;
                    continue;
                }
                run.end = index + 1;
                if run.len() > best.len() {
                    best = run.clone();
                }
                if best.len() == holders.len() {
                    break;
                }
            }
            if best.len() == holders.len() {
                break;
            }
        }
        let mut slots = Vec::with_capacity(best.len());
        for (index, holder) in best.zip(holders) {
            let slot = &mut state.slots[index];
            slot.used = Use::Held(holder.clone());
            slots.push(SwapSlot { index: index as u32, generation: slot.generation });
            at = index + 1;
        }
        state.next = at;
        state.free -= slots.len();
        self.full.store(state.free == 0, Ordering::Relaxed);
        slots
    }

    /// The page is in no frame any more (`only`), or in one again.
    pub(crate) fn set_only(&self, slot: SwapSlot, only: bool) {
        let mut state = self.state.lock();
        state.assert_live(slot);
        state.count_only(slot, if only { 1 } else { -1 });
    }

    /// The holder gives its slot up; `only` says whether its page was in no frame.
    pub(crate) fn free(&self, slot: SwapSlot, only: bool) {
        let mut state = self.state.lock();
        state.assert_live(slot);
        if only {
            state.count_only(slot, -1);
        }
        let s = &mut state.slots[slot.index as usize];
        s.used = Use::Free;
        s.generation = s.generation.wrapping_add(1);
        state.free += 1;
        self.full.store(false, Ordering::Relaxed);
    }

    /// The slot has another holder from now on; `only` says whether the page is in no frame, before and now.
    pub(crate) fn rename(&self, slot: SwapSlot, holder: Holder<M>, only: (bool, bool)) {
        let mut state = self.state.lock();
        state.assert_live(slot);
        state.slots[slot.index as usize].used = Use::Held(holder);
        if only.0 != only.1 {
            state.count_only(slot, if only.1 { 1 } else { -1 });
        }
    }

    /// True when no slot was free a moment ago: what needs one cannot go out.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// The slot cannot be written.
    pub(crate) fn retire(&self, slot: SwapSlot) {
        let mut state = self.state.lock();
        state.assert_live(slot);
        let s = &mut state.slots[slot.index as usize];
        s.used = Use::Bad;
        s.generation = s.generation.wrapping_add(1);
        state.bad += 1;
    }

    /// # Panics
    /// When the slot has been freed, and perhaps given to another, since.
    pub(crate) fn assert_live(&self, slot: SwapSlot) {
        self.state.lock().assert_live(slot);
    }

    /// True when the slot is `anon`'s.
    pub(crate) fn is_held_by(&self, slot: SwapSlot, anon: &Arc<Anon<M>>) -> bool {
        let state = self.state.lock();
        let s = &state.slots[slot.index as usize];
        let this = Arc::as_ptr(anon);
        let held = matches!(&s.used, Use::Held(Holder::Anon(holder)) if core::ptr::eq(holder.as_ptr(), this));
        held && s.generation == slot.generation
    }

    /// True when the area fills up: slots of pages that are in frames too should be given back.
    pub(crate) fn is_scarce(&self) -> bool {
        let state = self.state.lock();
        state.free < state.slots.len() / 4
    }

    pub(crate) fn census(&self) -> SwapCensus {
        let state = self.state.lock();
        SwapCensus {
            slots: state.slots.len(),
            free: state.free,
            bad: state.bad,
            only: state.only,
            only_anons: state.only_anons,
        }
    }

    /// The slots that are held, and by whom.
    pub(crate) fn holders(&self) -> Vec<(SwapSlot, Holder<M>)> {
        let state = self.state.lock();
        let held = state.slots.iter().enumerate().filter_map(|(index, s)| match &s.used {
            Use::Held(holder) => {
                Some((SwapSlot { index: index as u32, generation: s.generation }, holder.clone()))
            }
            Use::Free | Use::Bad => None,
        });
        held.collect()
    }
}

impl<M: Machine> State<M> {
    fn count_only(&mut self, slot: SwapSlot, change: isize) {
        let count = |n: usize| n.checked_add_signed(change).expect("pages without frames are counted");
        self.only = count(self.only);
        if matches!(self.slots[slot.index as usize].used, Use::Held(Holder::Anon(_))) {
            self.only_anons = count(self.only_anons);
        }
    }

    fn assert_live(&self, slot: SwapSlot) {
        let s = &self.slots[slot.index as usize];
        let live = matches!(s.used, Use::Held(_)) && s.generation == slot.generation;
        assert!(live, "{slot:?} was freed, it is in generation {} now", s.generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use alloc::vec;
    use pageferry_model::{MachineConfig, Model, Options};

    fn swap(slots: u32) -> Swap<Model> {
        let config = MachineConfig::named("486").expect("it is built in");
        Swap::new(&Model::new(&config, Options::default()).expect("valid"), slots)
    }

    fn holder(page: u64) -> Holder<Model> {
        Holder::Page(Weak::<Object<Model>>::new(), page)
    }

    #[test]
    fn runs_are_as_long_as_they_can_be() {
        let swap = swap(8);
        let blocks = |n: u64| {
            let slots = swap.alloc_run(&(0..n).map(holder).collect::<Vec<_>>());
            slots.iter().map(|s| s.block()).collect::<Vec<_>>()
        };
        assert_eq!(blocks(3), [0, 1, 2]);
        assert_eq!(blocks(3), [3, 4, 5]);
        assert_eq!(blocks(3), [6, 7], "no longer run is left");
        assert!(blocks(1).is_empty());
        let held = swap.holders();
        for (slot, _) in held.into_iter().filter(|(s, _)| [1, 2, 5].contains(&s.block())) {
            swap.free(slot, false);
        }
        assert_eq!(blocks(2), [1, 2]);
        assert_eq!(blocks(2), [5]);
    }

    #[test]
    #[should_panic(expected = "generation")]
    fn a_slot_is_not_mistaken_for_its_next_life() {
        let swap = swap(1);
        let first = swap.alloc_run(&[holder(1)])[0];
        swap.assert_live(first);
        swap.free(first, false);
        let second = swap.alloc_run(&[holder(2)])[0];
        assert_eq!((first.block(), swap.census().free), (second.block(), 0));
        swap.assert_live(second);
        // A holder of the old value would read another's page.
        swap.assert_live(first);
    }

    #[test]
    fn bad_slots_are_never_used_again() {
        let swap = swap(2);
        let slots = swap.alloc_run(&[holder(1), holder(2)]);
        swap.set_only(slots[1], true);
        swap.retire(slots[0]);
        swap.free(slots[1], true);
        let again = swap.alloc_run(&[holder(1), holder(2)]);
        assert_eq!(again.iter().map(|s| s.block()).collect::<Vec<_>>(), vec![1]);
        let census = swap.census();
        assert_eq!((census.bad, census.only, census.free), (1, 0, 0));
    }
}
