//! A thread, as it sees itself: what may sleep, wake, and stay on a CPU.
//!
//! A [`Thread`] is the handle that a thread of control has of itself; it is what lower floors get as `&dyn Threads`. What
//! the scheduler must know of a thread without asking its queues is in `Own`, a few atomics: pins and priority are
//! written by the thread alone (FreeBSD: `td_pinned`, `td_priority`), signals by whoever sends them, under the scheduler's
//! lock. Everything else about a thread belongs to the scheduler.

use super::sched::Sched;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use pageferry_hal::{Channel, Cycles, Interrupted, Machine, Threads};

/// The number of a thread; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

/// What a thread and the scheduler share.
pub(crate) struct Own {
    pub(crate) id: ThreadId,
    pub(crate) name: String,
    /// Nested pins: above zero, the thread stays on its CPU.
    pub(crate) pins: AtomicU32,
    /// It was woken from a sleep and has not returned to user mode since: it runs before user-level threads.
    pub(crate) boosted: AtomicBool,
    /// Signals sent and not taken yet.
    pub(crate) signals: AtomicU32,
    /// Signals taken on the way back to user mode.
    pub(crate) signals_taken: AtomicU32,
    /// A signal, not a wakeup, ended the last sleep.
    pub(crate) interrupted: AtomicBool,
    /// When it was last switched to, in cycles of that CPU's clock.
    pub(crate) since_cycles: AtomicU64,
}

impl Own {
    pub(crate) fn new(id: ThreadId, name: String) -> Own {
        Own {
            id,
            name,
            pins: AtomicU32::new(0),
            boosted: AtomicBool::new(false),
            signals: AtomicU32::new(0),
            signals_taken: AtomicU32::new(0),
            interrupted: AtomicBool::new(false),
            since_cycles: AtomicU64::new(0),
        }
    }

    /// The level of the run queue that it belongs on: 0 runs first.
    pub(crate) fn level(&self) -> usize {
        usize::from(!self.boosted.load(Relaxed))
    }
}

/// A thread's handle of itself. Only the thread that it stands for may use it to sleep, pin or return to user mode.
pub struct Thread<M: Machine> {
    pub(crate) sched: Arc<Sched<M>>,
    pub(crate) own: Arc<Own>,
}

impl<M: Machine> Thread<M> {
    /// The thread's number.
    pub fn id(&self) -> ThreadId {
        self.own.id
    }

    /// True while the thread is pinned to its CPU.
    pub fn is_pinned(&self) -> bool {
        self.own.pins.load(Relaxed) > 0
    }

    /// Lets others run first, if there are any.
    pub fn yield_now(&self) {
        self.sched.yield_from(&self.own);
    }

    /// True when the thread was asked to let others run, or has run for its quantum.
    pub(crate) fn should_yield(&self) -> bool {
        let since = Cycles(self.own.since_cycles.load(Relaxed));
        let ran = self.sched.machine().now().saturating_sub(since);
        self.sched.resched_requested() || self.sched.device_waits() || ran >= self.sched.quantum_cycles()
    }

    /// What a thread does last before it returns to user mode: takes its signals, gives up the priority that a sleep gave
    /// it, and lets others run if it should (`userret`, `ast`).
    ///
    /// # Locks
    /// Takes `Scheduler` if it lets others run; the caller holds none.
    pub(crate) fn return_to_user(&self) {
        let taken = self.own.signals.swap(0, Relaxed);
        self.own.signals_taken.fetch_add(taken, Relaxed);
        self.own.boosted.store(false, Relaxed);
        if self.should_yield() {
            self.yield_now();
        }
    }
}

impl<M: Machine> Threads for Thread<M> {
    fn sleep(
        &self,
        channel: Channel,
        reason: &'static str,
        interruptible: bool,
        release: &mut dyn FnMut(),
    ) -> Result<(), Interrupted> {
        self.sched.sleep(&self.own, channel, reason, interruptible, release)
    }

    fn wakeup(&self, channel: Channel) -> usize {
        self.sched.wakeup(channel, usize::MAX)
    }

    fn wakeup_one(&self, channel: Channel) -> bool {
        self.sched.wakeup(channel, 1) == 1
    }

    fn pin(&self) {
        self.own.pins.fetch_add(1, Relaxed);
    }

    fn unpin(&self) {
        let before = self.own.pins.fetch_sub(1, Relaxed);
        assert!(before > 0, "{} is unpinned more often than it was pinned", self.own.name);
    }
}
