//! The anon: one virtual page of anonymous memory (UVM paper, 3.1, 3.3).
//!
//! An anon is referenced by slots of amaps, by more than one after a copy-on-write copy, and by loans; its reference count
//! is the number of both. All copying on write goes by that count: more than one, and the page must not be written.
//! The anon owns its frame, or has it on loan from an object; which of the two, the table of frames says. (When there is swap, it may own a swap slot instead; until then the frame is always there.)
//!
//! Each anon has its own lock of class `Anon`. Whoever changes which frame an anon has, or maps its frame, holds it.
//! Making one fails when no structure or no frame is left, and then nothing has happened.

use crate::config::Kind;
use crate::error::VmError;
use crate::frame::Owner;
use crate::vm::Vm;
use alloc::sync::Arc;
use pageferry_hal::{Access, LockClass, Machine, Pfn, SpinLock, StructVa};

pub(crate) struct Anon<M: Machine> {
    at: StructVa,
    state: M::Lock<AnonState>,
}

#[derive(Debug)]
pub(crate) struct AnonState {
    /// Slots of amaps that hold this anon, and loans.
    pub(crate) refs: u32,
    /// The data. Empty only after the last reference is gone.
    pub(crate) frame: Option<Pfn>,
}

impl AnonState {
    /// The frame.
    ///
    /// # Panics
    /// When the anon is dead.
    pub(crate) fn resident(&self) -> Pfn {
        self.frame.expect("a live anon has a frame")
    }
}

pub(crate) type AnonGuard<'a, M> = <<M as Machine>::Lock<AnonState> as SpinLock<AnonState>>::Guard<'a>;

impl<M: Machine> Anon<M> {
    /// An anon with one reference and a frame of its own, whose bytes the caller clears or overwrites.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn with_frame(vm: &Vm<M>) -> Result<(Arc<Anon<M>>, Pfn), VmError> {
        vm.machine().execute(vm.paths().anon);
        let at = vm.structures().alloc(Kind::Anon)?;
        let mut got = Err(VmError::NoMemory);
        let anon = Arc::new_cyclic(|weak| {
            got = vm.frames().alloc(Owner::Anon(weak.clone()));
            let state = AnonState { refs: 1, frame: got.ok() };
            Anon { at, state: vm.machine().new_lock(LockClass::Anon, state) }
        });
        match got {
            Ok(frame) => {
                anon.touch(vm, Access::Write);
                Ok((anon, frame))
            }
            Err(e) => {
                vm.structures().free(Kind::Anon, at);
                Err(e)
            }
        }
    }

    /// Undoes [`Anon::with_frame`] for an anon that nobody else has seen. Takes no anon's lock, so that another may be
    /// held.
    pub(crate) fn discard(self: Arc<Self>, vm: &Vm<M>, frame: Pfn) {
        assert!(Arc::strong_count(&self) == 1, "an anon that others know is not discarded");
        vm.frames().disown(frame);
        vm.structures().free(Kind::Anon, self.at);
    }

    /// An anon with one reference for a frame that exists; the caller makes it owner or borrower of the frame, or undoes
    /// this with [`Anon::forget`].
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn of_frame(vm: &Vm<M>, frame: Pfn) -> Result<Arc<Anon<M>>, VmError> {
        vm.machine().execute(vm.paths().anon);
        let at = vm.structures().alloc(Kind::Anon)?;
        let state = vm.machine().new_lock(LockClass::Anon, AnonState { refs: 1, frame: Some(frame) });
        let anon = Arc::new(Anon { at, state });
        anon.touch(vm, Access::Write);
        Ok(anon)
    }

    /// Undoes [`Anon::of_frame`] for an anon that nobody else has seen; the frame is left alone.
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
            state.refs = state.refs.checked_add(1).expect("anon reference count overflows");
        }
        has
    }

    /// True while the frame is wired otherwise than by loans.
    pub(crate) fn is_wired(&self, vm: &Vm<M>) -> bool {
        let state = self.lock();
        vm.frames().lock().get(state.resident()).is_pinned()
    }

    /// If the frame is wired otherwise than by loans, a new anon with a copy of it, else nothing.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn copy_if_wired(&self, vm: &Vm<M>) -> Result<Option<Arc<Anon<M>>>, VmError> {
        let state = self.lock();
        let frame = state.resident();
        if !vm.frames().lock().get(frame).is_pinned() {
            return Ok(None);
        }
        let (anon, copy) = Anon::with_frame(vm)?;
        vm.copy(frame, copy);
        Ok(Some(anon))
    }

    /// Where the structure lies: names the anon as long as it lives.
    pub(crate) fn struct_va(&self) -> StructVa {
        self.at
    }

    pub(crate) fn lock(&self) -> AnonGuard<'_, M> {
        self.state.lock()
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
        assert!(state.refs > 0 && state.frame.is_some(), "a dead anon gets no reference");
        state.refs = state.refs.checked_add(1).expect("anon reference count overflows");
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
            let frame = state.frame.take().expect("a live anon has a frame");
            vm.frames().let_go(frame, self);
            drop(state);
            vm.structures().free(Kind::Anon, self.at);
        }
    }
}
