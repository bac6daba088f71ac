//! State that threads wait for and take turns at: what pipes and sockets have in common.
//!
//! The state is under a spin lock of class `Pipe`. No copy to or from a process can be made under it, because a copy may
//! fault and sleep. So there are sleep locks beside it, [`SleepLock`]s, which are part of the state (`pipelock`, `sblock`): who
//! has a turn may move bytes with the spin lock released, and nobody else moves any that way. All sleeps share one
//! channel, and every sleeper tests its condition again.

use crate::error::Errno;
use pageferry_hal::{Channel, LockClass, Machine, SpinLock, StructVa, Threads};

/// State under a spin lock, at a modelled address that is also its channel. See the [module](self).
pub(crate) struct Monitor<M: Machine, S: 'static> {
    at: StructVa,
    state: M::Lock<S>,
}

/// The spin lock, held.
pub(crate) type Held<'a, M, S> = <<M as Machine>::Lock<S> as SpinLock<S>>::Guard<'a>;

/// A sleep lock within the state.
#[derive(Default)]
pub(crate) struct SleepLock {
    taken: bool,
    wanted: bool,
}

impl SleepLock {
    pub(crate) fn is_taken(&self) -> bool {
        self.taken
    }
}

/// Where a turn is in the state.
pub(crate) type Which<S> = fn(&mut S) -> &mut SleepLock;

impl<M: Machine, S: 'static> Monitor<M, S> {
    pub(crate) fn new(m: &M, at: StructVa, state: S) -> Monitor<M, S> {
        Monitor { at, state: m.new_lock(LockClass::Pipe, state) }
    }

    pub(crate) fn at(&self) -> StructVa {
        self.at
    }

    pub(crate) fn lock(&self) -> Held<'_, M, S> {
        self.state.lock()
    }

    fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// Wakes all that sleep here.
    pub(crate) fn wake_all(&self, threads: &dyn Threads) {
        threads.wakeup(self.channel());
    }

    /// Wakes all that sleep here if `wanted` says that somebody does for this.
    pub(crate) fn wake(&self, threads: &dyn Threads, wanted: &mut bool) {
        if core::mem::take(wanted) {
            self.wake_all(threads);
        }
    }

    /// Sleeps with the spin lock released, and takes it again.
    ///
    /// # Errors
    /// [`Errno::Interrupted`], with the lock taken again too.
    pub(crate) fn wait<'a>(
        &'a self,
        threads: &dyn Threads,
        held: Held<'a, M, S>,
        reason: &'static str,
        interruptible: bool,
    ) -> (Held<'a, M, S>, Result<(), Errno>) {
        let mut held = Some(held);
        let result = threads.sleep(self.channel(), reason, interruptible, &mut || drop(held.take()));
        assert!(held.is_none(), "a sleep returned without releasing the lock of its caller");
        (self.lock(), result.map_err(Errno::from))
    }

    /// Takes a turn.
    ///
    /// # Errors
    /// [`Errno::Interrupted`], only if `interruptible`; the turn is not taken.
    pub(crate) fn acquire<'a>(
        &'a self,
        threads: &dyn Threads,
        mut held: Held<'a, M, S>,
        which: Which<S>,
        reason: &'static str,
        interruptible: bool,
    ) -> (Held<'a, M, S>, Result<(), Errno>) {
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

    /// Gives a turn up.
    pub(crate) fn release(&self, threads: &dyn Threads, held: &mut Held<'_, M, S>, which: Which<S>) {
        let turn = which(held);
        assert!(turn.taken, "a turn is given up that nobody has");
        turn.taken = false;
        let mut wanted = core::mem::take(&mut turn.wanted);
        self.wake(threads, &mut wanted);
    }
}
