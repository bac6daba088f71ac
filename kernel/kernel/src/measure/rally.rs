//! Two threads that run alternately, for measuring what happens between two of them.
//!
//! A kernel thread is made for the measurement, the *partner*. The one whose turn it is runs, the other sleeps. The
//! scheduler places the partner as it places any thread; so where a CPU is idle, its interrupt and its waking from the
//! halt are in the numbers, and what the one wrote comes out of the other's cache.
//!
//! # Locks
//! Whose turn it is, is in a monitor of class `Pipe`. One thread at a time measures: the caller holds the sleep lock of
//! [`super::Measuring`].
//!
//! # What can fail
//! Making the partner, for want of a thread structure.

use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_core::sched::{Monitor, Thread};
use pageferry_hal::{Machine, StructVa};
use pageferry_vm::Space;

/// Bytes of the structure.
pub(crate) const RALLY_BYTES: usize = 64;

/// Pages of a call that is measured: what is one loan by default.
pub(super) const MANY: usize = 16;

/// Rounds of which the least counts, behind one that brings the partner to its first sleep: what others do meanwhile
/// stays out.
const ROUNDS: usize = 8;

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Turn {
    #[default]
    Ours,
    Partners,
    /// The partner's, to end.
    Last,
}

/// What the partner does in its turn.
pub(super) type Stroke<M> = Box<dyn FnMut(&Thread<M>)>;

/// Whose turn it is, and how it changes. See the [module](self).
pub(crate) struct Rally<M: Machine>(Monitor<M, Turn>);

impl<M: Machine> Rally<M> {
    pub(crate) fn new(m: &M, at: StructVa) -> Rally<M> {
        Rally(Monitor::new(m, at, Turn::default()))
    }

    /// The cycles from one thread's run to the other's, half a round of both.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(super) fn switch_cycles(self: &Arc<Self>, thread: &Thread<M>) -> Result<u64, Errno> {
        let m = thread.sched.machine();
        self.with_partner(thread, None, Box::new(|_| ()), || {
            let round = |_| {
                let began = m.now();
                self.partners_turn(thread);
                // The caller may be on another CPU now, whose clock may be behind.
                m.now().saturating_sub(began).0
            };
            (0..ROUNDS).map(round).min().expect("there are rounds") / 2
        })
    }

    /// Runs `game` while there is a partner, in `space`, that has had one turn, and gets others by
    /// [`Self::partners_turn`].
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(super) fn with_partner<R>(
        self: &Arc<Self>,
        thread: &Thread<M>,
        space: Option<&Arc<Space<M>>>,
        mut stroke: Stroke<M>,
        game: impl FnOnce() -> R,
    ) -> Result<R, Errno> {
        let (theirs, in_space) = (self.clone(), space.is_some());
        let life = Box::new(move |thread: Thread<M>| {
            while theirs.wait(&thread, |turn| turn != Turn::Ours) != Turn::Last {
                stroke(&thread);
                theirs.give(&thread, Turn::Ours);
            }
            if in_space {
                thread.sched.leave_space(&thread.tcb);
            }
            theirs.give(&thread, Turn::Ours);
        });
        let partner =
            Thread::create(&thread.sched, "partner", space.cloned(), life).ok_or(Errno::NoMemory)?;
        thread.sched.launch(partner);
        self.partners_turn(thread);
        let result = game();
        self.give_and_wait(thread, Turn::Last);
        Ok(result)
    }

    /// Lets the partner run, and returns when it has.
    pub(super) fn partners_turn(&self, thread: &Thread<M>) {
        self.give_and_wait(thread, Turn::Partners);
    }

    fn give_and_wait(&self, thread: &Thread<M>, turn: Turn) {
        self.give(thread, turn);
        self.wait(thread, |turn| turn == Turn::Ours);
    }

    fn give(&self, thread: &Thread<M>, turn: Turn) {
        *self.0.lock() = turn;
        self.0.wake_all(thread);
    }

    fn wait(&self, thread: &Thread<M>, is_awaited: impl Fn(Turn) -> bool) -> Turn {
        let mut held = self.0.lock();
        while !is_awaited(*held) {
            // No signal ends this sleep, so it has no error.
            held = self.0.wait(thread, held, "measuring", false).0;
        }
        *held
    }
}
