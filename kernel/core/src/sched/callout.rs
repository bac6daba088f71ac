//! Callouts: what is to be done at some time.
//!
//! # What it holds
//! Calls, by the time at which they are due, and when the first of them is. The clock's handler looks at the latter;
//! the thread behind it makes the calls, each with no lock held. They come up to a tick late.
//!
//! # Locks
//! One, of class `Callout`: calls are added and cancelled with any lock of a lower class held.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::sync::atomic::{AtomicU64, Ordering};
use pageferry_hal::{Cycles, LockClass, Machine, SpinLock, Threads};

/// A call that is to be made.
type Call = Box<dyn FnOnce(&dyn Threads)>;

/// The name of a callout: when it is due, and which of those it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CalloutId(Cycles, u64);

/// What is to be done at some time, by when it is due.
pub struct Callouts<M: Machine> {
    state: M::Lock<State>,
    /// When the first is due; `u64::MAX` without any. Written under the lock, read without.
    first: AtomicU64,
    /// The latest time at which a clock's handler found a call due. The thread that makes it may run on a CPU whose
    /// clock is behind.
    reached: AtomicU64,
}

/// When something is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Now: [`Callouts::run`] is to be called.
    Now,
    /// Then: a timer is to be set.
    At(Cycles),
    /// There is nothing to do.
    Never,
}

#[derive(Default)]
struct State {
    calls: BTreeMap<CalloutId, Call>,
    made: u64,
}

impl<M: Machine> Callouts<M> {
    /// Without calls.
    pub fn new(m: &M) -> Callouts<M> {
        let state = m.new_lock(LockClass::CALLOUT, State::default());
        Callouts { state, first: AtomicU64::new(u64::MAX), reached: AtomicU64::new(0) }
    }

    fn note_first(&self, state: &State) {
        let first = state.calls.first_key_value().map_or(u64::MAX, |(id, _)| id.0.0);
        self.first.store(first, Ordering::Release);
    }

    /// When the first call is due, as a clock's handler finds it that has read its clock once. Were it to read it again
    /// for the timer, a call could come due between the two, and nobody would make it.
    pub fn first_due(&self, now: Cycles) -> Due {
        match self.first.load(Ordering::Acquire) {
            u64::MAX => Due::Never,
            first if first > now.0 => Due::At(Cycles(first)),
            _ => {
                self.reached.fetch_max(now.0, Ordering::AcqRel);
                Due::Now
            }
        }
    }

    /// Has `call` made at `due`.
    pub fn add(&self, due: Cycles, call: Call) -> CalloutId {
        let mut state = self.state.lock();
        state.made += 1;
        let id = CalloutId(due, state.made);
        state.calls.insert(id, call);
        self.note_first(&state);
        id
    }

    /// Takes a call back; false when it has been made, or is being made.
    pub fn cancel(&self, id: CalloutId) -> bool {
        let mut state = self.state.lock();
        let there = state.calls.remove(&id).is_some();
        self.note_first(&state);
        there
    }

    /// Makes the calls that are due at `now`, or were when that was found, with no lock held.
    pub fn run(&self, t: &dyn Threads, now: Cycles) {
        let now = now.max(Cycles(self.reached.load(Ordering::Acquire)));
        loop {
            let mut state = self.state.lock();
            let due = state.calls.first_entry().filter(|first| first.key().0 <= now);
            let Some(call) = due.map(|first| first.remove()) else { return };
            self.note_first(&state);
            drop(state);
            call(t);
        }
    }

    /// Calls that are still to be made.
    pub fn count(&self) -> usize {
        self.state.lock().calls.len()
    }
}
