//! The demand for memory: what passes between threads that need frames and the page daemon.
//!
//! A thread that may sleep and finds too few frames free sets a flag, wakes the daemon, and sleeps until frames are
//! free ([`crate::Vm::wait_for_memory`]). If a pass of the daemon can take nothing, because all is wired, or dirty with
//! the swap area full, the failure is counted and the waiters get [`crate::VmError::NoMemory`]. The daemon itself needs
//! no frame to free one; were it ever to wait for memory it would wait for itself, and that is a panic
//! ([`DaemonThread`]).
//!
//! One leaf lock of class `KernelVa`. Nothing here fails; it only says that waiting does not help.

use super::frame::Frames;
use crate::config::PagingConfig;
use crate::counter::VmCounter;
use pageferry_hal::{Channel, Interrupted, LockClass, Machine, SpinLock, Threads};

/// Where the daemon sleeps.
const DAEMON: Channel = Channel((1 << 61) + 1);
/// Where threads sleep that wait for memory.
const MEMORY: Channel = Channel((1 << 61) + 2);

/// The page, and the tables below the root on the way to it.
const FRAMES_OF_A_FAULT: usize = 4;

pub(crate) struct Demand<M: Machine> {
    machine: M,
    /// `None`: there is no page daemon to wait for.
    paging: Option<PagingConfig>,
    state: M::Lock<State>,
}

#[derive(Default)]
struct State {
    /// The daemon's thread was made and has not yet had its first turn: waiting for it helps all the same.
    launched: bool,
    running: bool,
    stopping: bool,
    /// Frames are wanted.
    wanted: bool,
    /// Times that nothing could be taken.
    failures: u64,
    sleepers: u32,
}

impl State {
    fn has_daemon(&self) -> bool {
        self.running || self.launched
    }

    /// Sets the flag, and wakes the daemon if it was not set.
    fn want(&mut self, t: &dyn Threads) {
        if !core::mem::replace(&mut self.wanted, true) {
            t.wakeup(DAEMON);
        }
    }
}

impl<M: Machine> Demand<M> {
    pub(crate) fn new(machine: &M, paging: Option<PagingConfig>) -> Demand<M> {
        let state = machine.new_lock(LockClass::KERNEL_VA, State::default());
        Demand { machine: machine.clone(), paging, state }
    }

    // ---------------------------------------------------------------------------------------- threads that need frames

    /// True while too few frames are free for a fault: one for the page, and those for the page tables that it may
    /// lack. A fault that gets some of them gives them back, and would come back at once for ever.
    pub(crate) fn is_short(&self, frames: &Frames<M>) -> bool {
        self.paging.is_some_and(|p| {
            let max_reserve = p.free_target_pages.saturating_sub(1);
            frames.free_now() <= (p.kernel_reserve_pages + FRAMES_OF_A_FAULT).min(max_reserve)
        })
    }

    /// Wakes the daemon if frames begin to be few.
    pub(crate) fn poke(&self, t: &dyn Threads, frames: &Frames<M>) {
        if self.paging.is_some_and(|p| frames.free_now() < p.free_min_pages) {
            let mut state = self.state.lock();
            if state.has_daemon() {
                state.want(t);
            }
        }
    }

    /// Sleeps until frames are free for others than the kernel. False when there is no daemon, or it could take
    /// nothing, and no frame was given back otherwise. No spin lock may be held.
    pub(crate) fn wait(&self, t: &dyn Threads, frames: &Frames<M>) -> bool {
        let mut state = self.state.lock();
        let (failures, free_before) = (state.failures, frames.free_now());
        loop {
            if !state.has_daemon() {
                return false;
            }
            if !self.is_short(frames) {
                return true;
            }
            if state.failures != failures {
                return frames.free_now() > free_before;
            }
            state.want(t);
            self.machine.count(VmCounter::MemorySleeps, 1);
            state.sleepers += 1;
            let mut held = Some(state);
            let slept = t.sleep(MEMORY, "free memory", false, &mut || drop(held.take()));
            assert!(slept.is_ok(), "this sleep is not interruptible");
            state = self.state.lock();
            state.sleepers -= 1;
        }
    }

    // ------------------------------------------------------------------------------------------- the daemon's thread

    /// The daemon's thread was made and will run.
    pub(crate) fn launch(&self) {
        self.state.lock().launched = true;
    }

    /// The daemon's thread has its first turn.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        assert!(!state.running, "there is one page daemon");
        // It may be stopped before its first step.
        state.running = !state.stopping;
        state.launched = false;
    }

    /// Sleeps until frames are wanted; false when the thread is to end.
    pub(super) fn wait_until_wanted(&self, t: &DaemonThread<'_>) -> bool {
        loop {
            let mut state = self.state.lock();
            if state.stopping {
                state.running = false;
                state.stopping = false;
                t.wakeup(MEMORY);
                return false;
            }
            if core::mem::take(&mut state.wanted) {
                return true;
            }
            let mut held = Some(state);
            let slept = t.sleep(DAEMON, "page daemon", false, &mut || drop(held.take()));
            assert!(slept.is_ok(), "this sleep is not interruptible");
        }
    }

    /// The pass is to be made again before anything is answered.
    pub(crate) fn want_again(&self) {
        self.state.lock().wanted = true;
    }

    /// A pass is over: wakes the threads that wait, for frames or for the failure.
    pub(super) fn answer(&self, t: &DaemonThread<'_>, failed: bool) {
        let mut state = self.state.lock();
        state.failures += u64::from(failed);
        if state.sleepers > 0 {
            t.wakeup(MEMORY);
        }
    }

    /// The thread is to end once it has done what it is at.
    pub(crate) fn stop(&self, t: &dyn Threads) {
        let mut state = self.state.lock();
        state.stopping = true;
        t.wakeup(DAEMON);
    }
}

/// The daemon's own thread: it must not wait for memory.
pub(super) struct DaemonThread<'a>(pub(super) &'a dyn Threads);

impl Threads for DaemonThread<'_> {
    fn sleep(
        &self,
        channel: Channel,
        reason: &'static str,
        interruptible: bool,
        release: &mut dyn FnMut(),
    ) -> Result<(), Interrupted> {
        assert!(channel != MEMORY, "the page daemon waits for itself");
        self.0.sleep(channel, reason, interruptible, release)
    }
    fn wakeup(&self, channel: Channel) -> usize {
        self.0.wakeup(channel)
    }
    fn wakeup_one(&self, channel: Channel) -> bool {
        self.0.wakeup_one(channel)
    }
    fn pin(&self) {
        self.0.pin();
    }
    fn unpin(&self) {
        self.0.unpin();
    }
}
