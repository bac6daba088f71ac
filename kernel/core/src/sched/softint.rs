//! Soft interrupts: threads that do the work behind interrupts.
//!
//! # What it holds
//! For each kind of work a flag and a thread. An interrupt handler sets the flag and makes the thread runnable, and is
//! over; it takes no lock but the scheduler's. The thread runs before all others, at once on an idle CPU, else when a
//! thread returns to user mode; it may take locks and sleep, as any other. It does its work until the flag stays clear,
//! and sleeps.
//!
//! # Their end
//! The threads end when nothing is left that could need them, and the last one stops the scheduler.

use super::sched::Sched;
use super::thread::Thread;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pageferry_hal::{Cause, Channel, Machine, Threads};

/// A kind of work behind interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SoftInt {
    /// Taking a disk's answers.
    Disk,
    /// Taking a sound device's answers.
    Sound,
    /// What was to be done at some time, and that has come.
    Clock,
    /// Taking packets in, from a network card and from loopback.
    Net,
}

impl SoftInt {
    pub(crate) const ALL: [SoftInt; 4] = [SoftInt::Disk, SoftInt::Sound, SoftInt::Clock, SoftInt::Net];

    fn thread_name(self) -> &'static str {
        match self {
            SoftInt::Disk => "softdisk",
            SoftInt::Sound => "softsound",
            SoftInt::Clock => "softclock",
            SoftInt::Net => "softnet",
        }
    }

    /// Where its thread sleeps: apart from all addresses of structures.
    fn channel(self) -> Channel {
        Channel((1 << 58) + self as u64)
    }
}

/// What a soft-interrupt thread does, each time it is woken.
pub type Work<M> = Box<dyn Fn(&Thread<M>)>;

/// The flags, and how many threads there are.
pub struct SoftInts<M: Machine> {
    sched: Arc<Sched<M>>,
    pending: [AtomicBool; SoftInt::ALL.len()],
    ending: AtomicBool,
    alive: AtomicUsize,
}

impl<M: Machine> SoftInts<M> {
    /// Without threads.
    pub fn new(sched: &Arc<Sched<M>>) -> SoftInts<M> {
        let alive = AtomicUsize::new(0);
        SoftInts { sched: sched.clone(), pending: Default::default(), ending: AtomicBool::new(false), alive }
    }

    /// Has work of this kind done soon.
    ///
    /// # Locks
    /// Takes `Scheduler`: may be called by interrupt handlers, and with any lock of a lower class held.
    pub fn schedule(&self, kind: SoftInt) {
        self.pending[kind as usize].store(true, Ordering::Release);
        self.sched.wakeup(kind.channel(), 1);
    }

    /// Makes the thread for this kind of work, which `work` does: it sleeps until there is some. Called before any
    /// thread runs.
    ///
    /// # Panics
    /// When there is no structure for a thread: the scheduler keeps some for these.
    pub fn start(self: &Arc<Self>, kind: SoftInt, work: Work<M>) {
        let mine = self.clone();
        let body = Box::new(move |thread: Thread<M>| mine.live(kind, &thread, &*work));
        let thread = Thread::create_soft_interrupt(&self.sched, kind.thread_name(), body);
        self.alive.fetch_add(1, Ordering::Relaxed);
        self.sched.launch_asleep(
            thread.expect("some are kept for the kernel"),
            kind.channel(),
            "soft interrupt",
        );
    }

    fn live(&self, kind: SoftInt, thread: &Thread<M>, work: &dyn Fn(&Thread<M>)) {
        let _c = self.sched.machine().scope(Cause::Interrupt);
        let pending = &self.pending[kind as usize];
        let awaited = || pending.load(Ordering::Acquire) || self.ending.load(Ordering::Acquire);
        loop {
            while pending.swap(false, Ordering::AcqRel) {
                work(thread);
            }
            if self.ending.load(Ordering::Acquire) {
                break;
            }
            // What was scheduled before the thread was on the sleep queue woke nothing.
            let slept = thread.sleep(kind.channel(), "soft interrupt", false, &mut || {
                if awaited() {
                    self.sched.wakeup(kind.channel(), 1);
                }
            });
            assert!(slept.is_ok(), "this sleep is not interruptible");
        }
        if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.sched.stop();
        }
    }

    /// Ends the threads, and the scheduler with the last one: nothing is left that could need them.
    pub fn end(&self) {
        if self.alive.load(Ordering::Acquire) == 0 {
            return self.sched.stop();
        }
        self.ending.store(true, Ordering::Release);
        for kind in SoftInt::ALL {
            self.sched.wakeup(kind.channel(), 1);
        }
    }
}
