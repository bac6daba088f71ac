//! An anon's life: making it, referring to it, bringing its page in, and its end.
//!
//! Each call takes the anon's lock, then at most the page queues and the leaf locks of zones and swap area. Making one
//! fails when no structure or no frame is left, and then nothing has changed. A page comes in with no lock held; the
//! disk can fail.

use super::anon::{Anon, AnonGuard, AnonState};
use crate::config::Kind;
use crate::error::VmError;
use crate::page::{Owner, WantedFrame};
use crate::probe::VmDefect;
use crate::vm::Vm;
use alloc::sync::Arc;
use pageferry_hal::{Access, Cause, LockClass, Machine, Pfn, Threads, Transfer};

impl<M: Machine> Anon<M> {
    /// An anon with one reference and a frame of its own, as it is wanted, whose bytes the caller clears or overwrites;
    /// then it is to be published ([`crate::page::Frames::publish`]).
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn with_frame(vm: &Vm<M>, wanted: WantedFrame) -> Result<(Arc<Anon<M>>, Pfn), VmError> {
        Anon::with_a_frame(vm, |owner| vm.frames().alloc(owner, wanted))
    }

    fn with_a_frame(
        vm: &Vm<M>,
        alloc: impl FnOnce(Owner<M>) -> Result<Pfn, VmError>,
    ) -> Result<(Arc<Anon<M>>, Pfn), VmError> {
        vm.machine().execute(vm.paths().anon);
        let structure = vm.structures().alloc(Kind::Anon)?;
        let mut got = Err(VmError::NoMemory);
        let anon = Arc::new_cyclic(|weak| {
            got = alloc(Owner::Anon(weak.clone()));
            let state = AnonState::new(got.ok());
            Anon { at: structure.va(), state: vm.machine().new_lock(LockClass::ANON, state) }
        });
        let frame = got?;
        structure.keep();
        anon.touch(vm, Access::Write);
        Ok((anon, frame))
    }

    /// As [`Anon::with_frame`], with this frame.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]: also when the frame is in use.
    pub(crate) fn at_frame(vm: &Vm<M>, frame: Pfn) -> Result<Arc<Anon<M>>, VmError> {
        Anon::with_a_frame(vm, |owner| vm.frames().alloc(owner, WantedFrame::This(frame)))
            .map(|(anon, _)| anon)
    }

    /// Undoes [`Anon::with_frame`] for an anon that has no other holder. Takes no anon's lock, so that another may be
    /// held.
    pub(crate) fn discard(self: Arc<Self>, vm: &Vm<M>, frame: Pfn) {
        assert!(Arc::strong_count(&self) == 1, "an anon that others know is not discarded");
        vm.frames().free_busy(frame);
        vm.structures().free(Kind::Anon, self.at);
    }

    /// An anon with one reference for a frame that exists; the caller makes it owner or borrower of the frame, or
    /// undoes this with [`Anon::forget`].
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn of_frame(vm: &Vm<M>, frame: Pfn) -> Result<Arc<Anon<M>>, VmError> {
        vm.machine().execute(vm.paths().anon);
        let at = vm.structures().alloc(Kind::Anon)?.keep();
        let state = vm.machine().new_lock(LockClass::ANON, AnonState::new(Some(frame)));
        let anon = Arc::new(Anon { at, state });
        anon.touch(vm, Access::Write);
        Ok(anon)
    }

    /// Undoes [`Anon::of_frame`] for an anon that has no other holder; the frame is left alone.
    pub(crate) fn forget(self: Arc<Self>, vm: &Vm<M>) {
        assert!(Arc::strong_count(&self) == 1, "an anon that others know is not forgotten");
        vm.structures().free(Kind::Anon, self.at);
    }

    /// Adds a reference if the anon lives and has `frame`.
    pub(crate) fn add_ref_if_has(&self, vm: &Vm<M>, frame: Pfn) -> bool {
        let mut state = self.lock();
        vm.machine().execute(vm.paths().anon);
        self.touch(vm, Access::Write);
        let has = state.refs > 0 && state.frame == Some(frame);
        if has {
            self.adopt_orphan(vm, &state);
            state.refs = state.refs.checked_add(1).expect("anon reference count overflows");
        }
        has
    }

    /// True while the frame is wired otherwise than by loans.
    pub(crate) fn is_wired(&self, vm: &Vm<M>) -> bool {
        let state = self.lock();
        state.frame.is_some_and(|frame| vm.frames().lock().get(frame).is_pinned())
    }

    /// If the frame is wired otherwise than by loans, a new anon with a copy of it, else nothing.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn copy_if_wired(&self, vm: &Vm<M>) -> Result<Option<Arc<Anon<M>>>, VmError> {
        let state = self.lock();
        // What is in the swap area alone is not wired.
        let Some(frame) = state.frame.filter(|&frame| vm.frames().lock().get(frame).is_pinned()) else {
            return Ok(None);
        };
        let colour = vm.frames().colour_in_place_of(frame, vm.pmaps().best_colour(frame));
        let (anon, copy) = Anon::with_frame(vm, WantedFrame::of(colour))?;
        vm.copy(frame, copy);
        vm.frames().publish(copy);
        Ok(Some(anon))
    }

    pub(crate) fn touch(&self, vm: &Vm<M>, access: Access) {
        if access == Access::Write {
            vm.journal().anon(self.at);
        }
        vm.machine().touch(self.at, vm.sizes().anon_bytes, access);
    }

    /// Adds a slot's reference.
    pub(crate) fn add_ref(&self, vm: &Vm<M>) {
        let mut state = self.lock();
        vm.machine().execute(vm.paths().anon);
        self.touch(vm, Access::Write);
        assert!(state.refs > 0, "a dead anon gets no reference");
        state.refs = state.refs.checked_add(1).expect("anon reference count overflows");
    }

    /// Takes the frame away for the kernel's data, where nobody else has the anon or its page, and nothing is in the
    /// swap area. The caller, who drops its reference next, has removed and flushed the mappings.
    pub(crate) fn give_frame_up(&self, vm: &Vm<M>) -> Option<Pfn> {
        let mut state = self.lock();
        let alone = state.refs == 1 || vm.has(VmDefect::SharedPageReturned);
        if !alone || state.busy || state.swap.is_some() {
            return None;
        }
        let frame = state.frame.filter(|&frame| vm.frames().lock().reclaim(frame, self))?;
        if state.refs == 1 {
            state.frame = None;
        }
        Some(frame)
    }

    /// Drops a slot's reference; the last one lets the frame go. The caller has removed and flushed the mappings that
    /// the slot gave rise to.
    pub(crate) fn drop_ref(&self, vm: &Vm<M>) {
        let mut state = self.lock();
        vm.machine().execute(vm.paths().anon);
        self.touch(vm, Access::Write);
        assert!(state.refs > 0, "an anon's references are counted wrongly");
        state.refs -= 1;
        if state.refs == 0 {
            self.free(vm, state);
        }
    }

    /// Before: no reference is left, and the page is not busy. After: frame, slot and structure are given back.
    fn free(&self, vm: &Vm<M>, mut state: AnonGuard<'_, M>) {
        assert!(!state.busy, "an anon dies while its page is on its way");
        // Neither is there only if the page went down to an object.
        let (frame, slot) = (state.frame.take(), state.swap.take());
        if let Some(slot) = slot {
            vm.swap().free(slot, frame.is_none());
        }
        if let Some(frame) = frame {
            vm.frames().release(frame, self);
        }
        drop(state);
        vm.structures().free(Kind::Anon, self.at);
    }

    /// Ends a move: wakes the threads that wait for the page, and gives the mover's reference back.
    pub(crate) fn end_move(&self, vm: &Vm<M>, t: &dyn Threads, mut state: AnonGuard<'_, M>) {
        assert!(state.busy, "a move ends that never began");
        vm.journal().anon(self.at);
        state.busy = false;
        state.refs -= 1;
        if core::mem::take(&mut state.wanted) {
            t.wakeup(self.channel());
        }
        if state.refs == 0 {
            self.free(vm, state);
        }
    }

    /// Sees to it that the page is in a frame, of this colour if there is one, or was: on return the caller retries.
    ///
    /// # Errors
    /// [`VmError::Io`]: the swap area cannot be read there. [`VmError::NoMemory`]: there is no frame, and waiting does
    /// not help.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub(crate) fn page_in(
        self: &Arc<Self>,
        vm: &Vm<M>,
        t: &dyn Threads,
        colour: Option<u32>,
    ) -> Result<(), VmError> {
        let _c = vm.machine().scope(Cause::Fault);
        let Some(slot) = self.slot_if_out(t) else { return Ok(()) };
        let frame = vm.frame_or_wait(t, || Owner::Anon(Arc::downgrade(self)), WantedFrame::of(colour))?;
        let mut state = self.lock();
        self.touch(vm, Access::Write);
        let changed = state.swap != Some(slot) || state.frame.is_some() || state.busy || state.refs == 0;
        if changed && !vm.has(VmDefect::SwapSlotTrusted) {
            drop(state);
            vm.frames().free_busy(frame);
            return Ok(());
        }
        vm.swap().assert_live(slot);
        self.begin_move(&mut state);
        drop(state);
        let ticket = vm.io().start(Transfer::Read, slot.block(), alloc::vec![frame]);
        let read = vm.io().finish(t, ticket);
        // Only the mover changes where the page of a busy anon is.
        vm.swap().assert_live(slot);
        let mut state = self.lock();
        assert!(state.swap == Some(slot) && state.frame.is_none(), "the page of a busy anon has moved");
        match read {
            Ok(()) => {
                state.frame = Some(frame);
                vm.swap().set_only(slot, false);
                let scarce = vm.swap().is_scarce();
                if scarce {
                    state.swap = None;
                    vm.swap().free(slot, false);
                } else if vm.has(VmDefect::SwapSlotFreedEarly) {
                    vm.swap().free(slot, false);
                }
                vm.publish_clean(frame, scarce);
            }
            Err(_) => vm.frames().free_busy(frame),
        }
        self.end_move(vm, t, state);
        Ok(read?)
    }
}
