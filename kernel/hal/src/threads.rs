//! What a floor that may sleep asks of the thread system above it.
//!
//! `vm` and `ephemeral` lie below the scheduler, yet some of their calls block: `sf_buf_alloc` on an exhausted cache, a
//! fault on a locked map. Such a call takes `&dyn Threads`, so that *may sleep* is part of its signature; a call
//! without it never sleeps.

/// What a sleeper waits for: an opaque number that both sides know (in BSD kernels the address of a structure).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel(pub u64);

/// A sleep that a signal ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("the sleep was interrupted by a signal")]
pub struct Interrupted;

/// Sleeping, waking, and staying on one CPU.
pub trait Threads {
    /// Blocks the calling thread on `channel` until a wakeup.
    ///
    /// The thread is put on the sleep queue *before* `release` is called, and `release` must give up every spin lock
    /// that the caller holds: a wakeup between the two cannot be lost. Wakeups may be spurious: callers test their
    /// condition again.
    ///
    /// # Errors
    /// [`Interrupted`] when `interruptible` and a signal is pending or arrives; `release` was called in any case.
    fn sleep(
        &self,
        channel: Channel,
        reason: &'static str,
        interruptible: bool,
        release: &mut dyn FnMut(),
    ) -> Result<(), Interrupted>;

    /// Makes every thread that sleeps on `channel` runnable; returns how many. May be called with spin locks held
    /// (below [`crate::LockClass::SCHEDULER`]).
    fn wakeup(&self, channel: Channel) -> usize;

    /// Makes the thread that has slept longest on `channel` runnable.
    fn wakeup_one(&self, channel: Channel) -> bool;

    /// A number of the process that the caller is at work for; 0 where none is known. For what is kept by process.
    fn process(&self) -> u32 {
        0
    }

    /// From here to the matching [`Threads::unpin`] the calling thread stays on its CPU; nests.
    fn pin(&self);

    /// Ends one [`Threads::pin`].
    fn unpin(&self);
}
