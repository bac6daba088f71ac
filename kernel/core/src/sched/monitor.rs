//! State that threads wait at: what pipes, sockets, files and the sound device have in common.
//!
//! # What it holds
//! A [`Monitor`] is state under a spin lock of class `Pipe`. No copy to or from a process can be made under that,
//! because a copy may fault and sleep. So there are [`SleepLock`]s beside it, which are part of the state (`pipelock`,
//! `sblock`): the thread that holds one may move bytes with the spin lock released, and no other thread moves any under
//! the same sleep lock. All sleeps at a monitor share one channel, and every sleeper tests its condition again.
//!
//! # What can fail
//! A sleep, by a signal.

use pageferry_abi::Errno;
use pageferry_hal::{Channel, LockClass, Machine, SpinLock, StructVa, Threads};

/// State under a spin lock, at a modelled address that is also its channel; with sleep locks in it.
pub struct Monitor<M: Machine, S: 'static> {
    at: StructVa,
    state: M::Lock<S>,
}

/// The spin lock, held.
pub type MonitorGuard<'a, M, S> = <<M as Machine>::Lock<S> as SpinLock<S>>::Guard<'a>;

/// A sleep lock within the state.
#[derive(Default)]
pub struct SleepLock {
    taken: bool,
    wanted: bool,
}

impl SleepLock {
    /// Somebody has it.
    pub fn is_taken(&self) -> bool {
        self.taken
    }
}

/// Where a sleep lock is in the state.
pub type Which<S> = fn(&mut S) -> &mut SleepLock;

impl<M: Machine, S: 'static> Monitor<M, S> {
    /// A monitor over `state`, in the structure at `at`.
    pub fn new(m: &M, at: StructVa, state: S) -> Monitor<M, S> {
        Monitor { at, state: m.new_lock(LockClass::PIPE, state) }
    }

    /// Its structure, which threads sleep on.
    pub fn at(&self) -> StructVa {
        self.at
    }

    /// Takes the spin lock.
    pub fn lock(&self) -> MonitorGuard<'_, M, S> {
        self.state.lock()
    }

    /// What threads sleep on here.
    pub(crate) fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// Wakes all that sleep here.
    pub fn wake_all(&self, threads: &dyn Threads) {
        threads.wakeup(self.channel());
    }

    /// Wakes all that sleep here if `wanted` is set: a thread sleeps for this. Clears it.
    pub fn wake(&self, threads: &dyn Threads, wanted: &mut bool) {
        if core::mem::take(wanted) {
            self.wake_all(threads);
        }
    }

    /// Sleeps with the spin lock released, and takes it again.
    ///
    /// # Locks
    /// Before and after, in either case: the spin lock is held.
    ///
    /// # Errors
    /// [`Errno::Interrupted`].
    pub fn wait<'a>(
        &'a self,
        threads: &dyn Threads,
        held: MonitorGuard<'a, M, S>,
        reason: &'static str,
        interruptible: bool,
    ) -> (MonitorGuard<'a, M, S>, Result<(), Errno>) {
        let mut held = Some(held);
        let result = threads.sleep(self.channel(), reason, interruptible, &mut || drop(held.take()));
        assert!(held.is_none(), "a sleep returned without releasing the lock of its caller");
        (self.lock(), result.map_err(Errno::from))
    }

    /// Takes a sleep lock, and sleeps while another thread has it.
    ///
    /// # Locks
    /// Before and after, in either case: the spin lock is held.
    ///
    /// # Errors
    /// [`Errno::Interrupted`], only if `interruptible`; the sleep lock is not taken.
    pub fn acquire<'a>(
        &'a self,
        threads: &dyn Threads,
        mut held: MonitorGuard<'a, M, S>,
        which: Which<S>,
        reason: &'static str,
        interruptible: bool,
    ) -> (MonitorGuard<'a, M, S>, Result<(), Errno>) {
        while which(&mut held).taken {
            which(&mut held).wanted = true;
            let (again, result) = self.wait(threads, held, reason, interruptible);
            held = again;
            if result.is_err() {
                return (held, result);
            }
        }
        which(&mut held).taken = true;
        (held, Ok(()))
    }

    /// Releases a sleep lock, and wakes the threads that wait for it.
    pub fn release(&self, threads: &dyn Threads, held: &mut MonitorGuard<'_, M, S>, which: Which<S>) {
        let lock = which(held);
        assert!(lock.taken, "a sleep lock is released that is not held");
        lock.taken = false;
        let mut wanted = core::mem::take(&mut lock.wanted);
        self.wake(threads, &mut wanted);
    }
}
