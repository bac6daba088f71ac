//! What it costs to hand the turn to another thread, measured.
//!
//! A kernel thread is made for the measurement, the *partner*. The two take turns: who has the baton runs, the other
//! sleeps. The scheduler places the partner as it places any thread; so where a CPU is idle, its interrupt and its waking
//! from the halt are in the numbers.
//!
//! # Locks
//! The baton is in a monitor of class `Pipe`. One thread at a time measures; its caller sees to that.
//!
//! # What can fail
//! Making the partner, for want of a thread structure.

use crate::Kernel;
use crate::error::Errno;
use crate::sched::{Monitor, Thread};
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_hal::{Machine, StructVa};

/// Bytes of the baton.
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

/// Where the baton is. See the [module](self).
pub(crate) struct SwitchBench<M: Machine>(Monitor<M, Turn>);

impl<M: Machine> SwitchBench<M> {
    pub(crate) fn new(m: &M, at: StructVa) -> SwitchBench<M> {
        SwitchBench(Monitor::new(m, at, Turn::default()))
    }

    /// The cycles from one thread's run to the other's.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(crate) fn measure(self: &Arc<Self>, kernel: &Kernel<M>, thread: &Thread<M>) -> Result<u64, Errno> {
        let theirs = self.clone();
        let body = Box::new(move |thread: Thread<M>| theirs.answer(&thread));
        let partner = Thread::create(&kernel.sched, "partner", None, body).ok_or(Errno::NoMemory)?;
        kernel.sched.launch(partner);
        self.ask(thread, Turn::Partners);
        let round = |_| {
            let began = kernel.machine.now();
            self.ask(thread, Turn::Partners);
            // The caller may be on another CPU now, whose clock may be behind.
            kernel.machine.now().saturating_sub(began).0
        };
        let least = (0..ROUNDS).map(round).min().expect("there are rounds");
        self.ask(thread, Turn::Last);
        Ok(least / 2)
    }

    /// The life of the partner.
    fn answer(&self, thread: &Thread<M>) {
        while self.give_back(thread) != Turn::Last {}
    }

    fn give_back(&self, thread: &Thread<M>) -> Turn {
        let asked = self.wait(thread, |baton| baton != Turn::Ours);
        self.give(thread, Turn::Ours);
        asked
    }

    fn ask(&self, thread: &Thread<M>, baton: Turn) {
        self.give(thread, baton);
        self.wait(thread, |baton| baton == Turn::Ours);
    }

    fn give(&self, thread: &Thread<M>, baton: Turn) {
        *self.0.lock() = baton;
        self.0.wake_all(thread);
    }

    fn wait(&self, thread: &Thread<M>, is_awaited: impl Fn(Turn) -> bool) -> Turn {
        let mut held = self.0.lock();
        while !is_awaited(*held) {
            // No signal ends this sleep, so it has no error.
            held = self.0.wait(thread, held, "baton", false).0;
        }
        *held
    }
}
