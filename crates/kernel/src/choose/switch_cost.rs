//! What a switch to another thread costs, from the wakeup to its run, measured.
//!
//! A kernel thread is made for the measurement, the *partner*. The two run alternately: the one whose turn it is runs, the
//! other sleeps. The scheduler places the partner as it places any thread; so where a CPU is idle, its interrupt and its
//! waking from the halt are in the numbers.
//!
//! # Locks
//! Whose turn it is, is in a monitor of class `Pipe`, which the table of costs owns. One thread at a time measures: the
//! caller holds the sleep lock of that table.
//!
//! # What can fail
//! Making the partner, for want of a thread structure.

use crate::Kernel;
use crate::error::Errno;
use crate::sched::{Monitor, Thread};
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_hal::{Machine, StructVa};

/// Bytes of the structure.
pub(crate) const SWITCH_BENCH_BYTES: usize = 64;

/// Rounds that are measured, behind one that brings the partner to its first sleep. The least counts: what others do
/// meanwhile stays out.
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

/// Whose turn it is, and how it changes. See the [module](self).
pub(crate) struct SwitchBench<M: Machine>(Monitor<M, Turn>);

impl<M: Machine> SwitchBench<M> {
    pub(crate) fn new(m: &M, at: StructVa) -> SwitchBench<M> {
        SwitchBench(Monitor::new(m, at, Turn::default()))
    }

    /// The cycles from one thread's run to the other's, half a round of both.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(crate) fn measure(self: &Arc<Self>, kernel: &Kernel<M>, thread: &Thread<M>) -> Result<u64, Errno> {
        let theirs = self.clone();
        let body = Box::new(move |thread: Thread<M>| theirs.answer(&thread));
        let partner = Thread::create(&kernel.sched, "partner", None, body).ok_or(Errno::NoMemory)?;
        kernel.sched.launch(partner);
        self.give_and_wait(thread, Turn::Partners);
        let round = |_| {
            let began = kernel.machine.now();
            self.give_and_wait(thread, Turn::Partners);
            // The caller may be on another CPU now, whose clock may be behind.
            kernel.machine.now().saturating_sub(began).0
        };
        let least = (0..ROUNDS).map(round).min().expect("there are rounds");
        self.give_and_wait(thread, Turn::Last);
        Ok(least / 2)
    }

    /// The life of the partner.
    fn answer(&self, thread: &Thread<M>) {
        while self.give_back(thread) != Turn::Last {}
    }

    fn give_back(&self, thread: &Thread<M>) -> Turn {
        let given = self.wait(thread, |turn| turn != Turn::Ours);
        self.give(thread, Turn::Ours);
        given
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
            held = self.0.wait(thread, held, "switch cost", false).0;
        }
        *held
    }
}
