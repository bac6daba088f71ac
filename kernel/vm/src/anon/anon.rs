//! The anon: one virtual page of anonymous memory (UVM paper, 3.1, 3.3).
//!
//! An anon is referenced by slots of amaps, by more than one after a copy-on-write copy, and by loans; its reference
//! count is the number of both. All copying on write goes by that count: more than one, and the page must not be
//! written.
//!
//! Its page is in a frame, in a slot of the swap area, or in both. The anon owns its frame, or has it on loan from an
//! object; which of the two, the table of frames says. A slot is its own.
//!
//! Each anon has its own lock of class `Anon`. It must be held to change which frame the anon has, and to map that
//! frame. While its page moves between frame and disk the anon is *busy*: the lock is not held then, but only the mover
//! may use the frame; a thread that wants it sleeps and retries. The mover has a reference, so that a busy anon does
//! not die: one without other references is freed when the move is over.
//!
//! What needs the rest of the VM system (making one, references, bringing the page in) is in `life`.

use crate::page::SwapSlot;
use pageferry_hal::{Channel, Machine, Pfn, SpinLock, StructVa, Threads};

pub(crate) struct Anon<M: Machine> {
    pub(super) at: StructVa,
    pub(super) state: M::Lock<AnonState>,
}

#[derive(Debug)]
pub(crate) struct AnonState {
    /// Slots of amaps that hold this anon, and loans.
    pub(crate) refs: u32,
    /// The frame that the page is in.
    pub(crate) frame: Option<Pfn>,
    /// The slot that the page is in too; or alone, when there is no frame. One of the two is there as long as the anon
    /// lives.
    pub(crate) swap: Option<SwapSlot>,
    /// The page is on its way.
    pub(crate) busy: bool,
    /// A thread sleeps until it has arrived.
    pub(super) wanted: bool,
}

impl AnonState {
    pub(super) fn new(frame: Option<Pfn>) -> AnonState {
        AnonState { refs: 1, frame, swap: None, busy: false, wanted: false }
    }

    /// The frame, if it may be used: the page is there, and not on its way out.
    pub(crate) fn usable(&self) -> Option<Pfn> {
        self.frame.filter(|_| !self.busy)
    }
}

pub(crate) type AnonGuard<'a, M> = <<M as Machine>::Lock<AnonState> as SpinLock<AnonState>>::Guard<'a>;

impl<M: Machine> Anon<M> {
    /// Where the structure lies: names the anon as long as it lives.
    pub(crate) fn struct_va(&self) -> StructVa {
        self.at
    }

    pub(crate) fn lock(&self) -> AnonGuard<'_, M> {
        self.state.lock()
    }

    pub(super) fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// Begins a move, which [`Anon::end_move`] ends. The caller has seen that none is under way.
    pub(crate) fn begin_move(&self, state: &mut AnonState) {
        assert!(!state.busy && state.refs > 0, "only a live anon that is at rest is moved");
        state.busy = true;
        state.refs += 1;
    }

    /// The slot of a page that is in no frame. If it is on its way, sleeps until it has arrived somewhere, and answers
    /// none.
    pub(super) fn slot_if_out(&self, t: &dyn Threads) -> Option<SwapSlot> {
        let mut state = self.lock();
        if !state.busy {
            return state.swap.filter(|_| state.frame.is_none() && state.refs > 0);
        }
        state.wanted = true;
        let mut held = Some(state);
        let slept = t.sleep(self.channel(), "page on its way", false, &mut || drop(held.take()));
        assert!(slept.is_ok(), "this sleep is not interruptible");
        None
    }
}
