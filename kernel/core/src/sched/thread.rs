//! A thread, as it sees itself: what may sleep, wake, and stay on a CPU.
//!
//! A [`Thread`] is the handle that a thread of control has of itself; it is what lower floors get as `&dyn Threads`. It
//! is the thread's control block and the scheduler, and owns nothing else. It takes no lock but the scheduler's.

use super::sched::Sched;
use super::tcb::{Tcb, ThreadId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_hal::{Access, Channel, CpuId, Crossing, Interrupted, Machine, Threads};
use pageferry_vm::Space;

/// A thread's handle of itself. Only the thread that it stands for may use it to sleep, pin or return to user mode.
pub struct Thread<M: Machine> {
    /// Who runs it.
    pub sched: Arc<Sched<M>>,
    /// What the scheduler knows of it.
    pub tcb: Arc<Tcb>,
}

impl<M: Machine> Clone for Thread<M> {
    fn clone(&self) -> Thread<M> {
        Thread { sched: self.sched.clone(), tcb: self.tcb.clone() }
    }
}

impl<M: Machine> Thread<M> {
    /// Makes a thread that will run `body` in `space`, once it is launched. `None` when there is no structure left.
    pub fn create(
        sched: &Arc<Sched<M>>,
        name: &str,
        space: Option<Arc<Space<M>>>,
        body: Box<dyn FnOnce(Thread<M>)>,
    ) -> Option<ThreadId> {
        let its = sched.clone();
        sched.create(name, space, false, Box::new(move |tcb| body(Thread { sched: its, tcb })))
    }

    /// Makes a thread that does the work behind interrupts: it runs before all others. `None` as of [`Thread::create`].
    pub fn create_soft_interrupt(
        sched: &Arc<Sched<M>>,
        name: &str,
        body: Box<dyn FnOnce(Thread<M>)>,
    ) -> Option<ThreadId> {
        let its = sched.clone();
        sched.create(name, None, true, Box::new(move |tcb| body(Thread { sched: its, tcb })))
    }

    /// The thread's number.
    pub fn id(&self) -> ThreadId {
        self.tcb.id
    }

    /// True while the thread is pinned to its CPU.
    pub fn is_pinned(&self) -> bool {
        self.tcb.pins.load(Relaxed) > 0
    }

    /// Enters or leaves the kernel: what hardware does, and the registers on the thread's stack there.
    pub fn cross(&self, crossing: Crossing) {
        let m = self.sched.machine();
        m.cross(crossing);
        let access = match crossing {
            Crossing::SyscallEnter | Crossing::TrapEnter => Access::Write,
            Crossing::SyscallExit | Crossing::TrapExit => Access::Read,
        };
        self.tcb.stack.iter().for_each(|stack| stack.touch(m, access));
    }

    /// Lets others run first, if there are any.
    pub fn yield_now(&self) {
        self.sched.yield_from(&self.tcb);
    }

    /// Binds the thread to a CPU, or to none.
    ///
    /// # Locks
    /// Takes `Scheduler`; the caller holds none.
    pub fn bind(&self, cpu: Option<CpuId>) {
        self.sched.bind(&self.tcb, cpu);
    }

    /// True when the thread is to let others run: its CPU was requested to, or the clock has ended its quantum.
    pub fn should_yield(&self) -> bool {
        self.sched.resched_requested()
    }

    /// Takes the signals that have come.
    pub fn take_signals(&self) {
        let taken = self.tcb.signals.swap(0, Relaxed);
        self.tcb.signals_taken.fetch_add(taken, Relaxed);
    }

    /// What a thread does last before it returns to user mode: takes its signals, gives up the priority that a sleep
    /// gave it, and lets others run if it should (`userret`, `ast`).
    ///
    /// # Locks
    /// Takes `Scheduler` if it lets others run; the caller holds none.
    pub fn return_to_user(&self) {
        self.take_signals();
        self.tcb.boosted.store(false, Relaxed);
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
        self.sched.sleep(&self.tcb, channel, reason, interruptible, release)
    }

    fn wakeup(&self, channel: Channel) -> usize {
        self.sched.wakeup(channel, usize::MAX)
    }

    fn wakeup_one(&self, channel: Channel) -> bool {
        self.sched.wakeup(channel, 1) == 1
    }

    /// A process has one thread.
    fn process(&self) -> u32 {
        self.tcb.id.0
    }

    fn pin(&self) {
        self.tcb.pins.fetch_add(1, Relaxed);
    }

    fn unpin(&self) {
        let before = self.tcb.pins.fetch_sub(1, Relaxed);
        assert!(before > 0, "{} is unpinned more often than it was pinned", self.tcb.name);
    }
}

/// Where no thread is known that calls: it wakes others, and never sleeps.
pub struct Waker<M: Machine>(Arc<Sched<M>>);

impl<M: Machine> Waker<M> {
    pub(crate) fn new(sched: &Arc<Sched<M>>) -> Waker<M> {
        Waker(sched.clone())
    }
}

impl<M: Machine> Threads for Waker<M> {
    fn sleep(
        &self,
        channel: Channel,
        reason: &'static str,
        _: bool,
        _: &mut dyn FnMut(),
    ) -> Result<(), Interrupted> {
        panic!("a call that must not sleep sleeps in {reason} on {channel:?}");
    }
    fn wakeup(&self, channel: Channel) -> usize {
        self.0.wakeup(channel, usize::MAX)
    }
    fn wakeup_one(&self, channel: Channel) -> bool {
        self.0.wakeup(channel, 1) == 1
    }
    /// The caller holds a spin lock: it stays.
    fn pin(&self) {}
    fn unpin(&self) {}
}
