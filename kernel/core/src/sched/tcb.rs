//! The thread control block: what a thread and the scheduler share, and where a thread can be.
//!
//! What the scheduler must know of a thread without a look into its queues is in a [`Tcb`], a few atomics: pins,
//! priority and the CPU that it is bound to are written by the thread alone (FreeBSD: `td_pinned`, `td_priority`,
//! `sched_bind`), signals by the sender, under the scheduler's lock. Everything else about a thread belongs to the
//! scheduler: its [`ThreadState`] is under the scheduler's lock.

use crate::config::KernelStack;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use pageferry_hal::{Access, Channel, CpuId, Machine, StructVa};

/// The number of a thread; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

/// A thread's control block. See the [module](self).
pub struct Tcb {
    /// By which all queues know it.
    pub id: ThreadId,
    /// For people: in what is said of sleepers and of broken invariants.
    pub name: String,
    /// Nested pins: above zero, the thread stays on its CPU.
    pub pins: AtomicU32,
    /// The CPU that it is bound to, and 1; 0 where it is bound to none.
    pub bound: AtomicU32,
    /// It does the work behind interrupts, and runs before all others.
    pub soft_interrupt: bool,
    /// It runs only where no other thread can.
    pub last: AtomicBool,
    /// It was woken from a sleep and has not returned to user mode since: it runs before user-level threads.
    pub boosted: AtomicBool,
    /// Signals sent and not taken yet.
    pub signals: AtomicU32,
    /// Signals taken on the way back to user mode.
    pub signals_taken: AtomicU32,
    /// A signal, not a wakeup, ended the last sleep.
    pub interrupted: AtomicBool,
    /// Its stack in the kernel, where that is accounted for.
    pub stack: Option<ThreadStack>,
}

/// A thread's stack in the kernel.
#[derive(Clone, Copy, Debug)]
pub struct ThreadStack {
    /// Where it begins.
    pub at: StructVa,
    /// How it is used.
    pub its: KernelStack,
}

impl ThreadStack {
    /// The thread enters the kernel, which saves its registers and goes on above them; or leaves it, and gets them
    /// back.
    pub fn touch<M: Machine>(&self, m: &M, access: Access) {
        let KernelStack { spacing_bytes, frame_bytes } = self.its;
        m.touch(self.at.element(spacing_bytes - frame_bytes, 1), frame_bytes, access);
    }
}

impl Tcb {
    /// A thread that is not pinned, and has no signals.
    pub fn new(id: ThreadId, name: String, soft_interrupt: bool, stack: Option<ThreadStack>) -> Tcb {
        Tcb {
            id,
            name,
            soft_interrupt,
            pins: AtomicU32::new(0),
            bound: AtomicU32::new(0),
            last: AtomicBool::new(false),
            boosted: AtomicBool::new(false),
            signals: AtomicU32::new(0),
            signals_taken: AtomicU32::new(0),
            interrupted: AtomicBool::new(false),
            stack,
        }
    }

    /// The level of the run queue that it belongs on: 0 runs first.
    pub fn level(&self) -> usize {
        match self.boosted.load(Relaxed) {
            _ if self.soft_interrupt => 0,
            _ if self.last.load(Relaxed) => 3,
            boosted => 1 + usize::from(!boosted),
        }
    }
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadState {
    /// Made, and not on a queue yet.
    New,
    /// On this CPU.
    Running(CpuId),
    /// Runnable, on one run queue.
    Queued,
    /// On the sleep queue of `channel`, until a wakeup there or, if interruptible, a signal. `reason` is a word for
    /// people (`wmesg`).
    Asleep { channel: Channel, reason: &'static str, interruptible: bool },
}
