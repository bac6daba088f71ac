//! What threads of this process wait by: locks, conditions, counters and the clock.
//!
//! # What it holds
//! Those of the standard library. In tests that try schedules of threads (`--cfg shuttle`) those of shuttle, which runs
//! the threads one at a time and chooses at each of these calls which goes on. There the clock counts turns, and a wait
//! for the socket lets the others go on and looks again: see `scheduled`.
//!
//! A channel's and a fan-out's state is kept by these, and nothing else in this process is waited for while one of its
//! locks is held.

#[cfg(all(test, shuttle))]
mod scheduled;
#[cfg(all(test, shuttle))]
pub(crate) use scheduled::*;

#[cfg(not(all(test, shuttle)))]
pub(crate) use real::*;

#[cfg(not(all(test, shuttle)))]
mod real {
    use std::sync::PoisonError;
    use std::time::Duration;

    pub(crate) use core::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::time::Instant;

    /// Waits for news, for so long at most. The lock is the guard's.
    pub(crate) fn wait_timeout<'a, T>(
        news: &Condvar,
        _lock: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        left: Duration,
    ) -> MutexGuard<'a, T> {
        news.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// How long a wait in the kernel may take.
    pub(crate) fn patience(until: Option<Instant>) -> Option<Duration> {
        until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Whether a wait in the kernel that has found nothing is to be made once more.
    pub(crate) fn waits_again(_until: Option<Instant>) -> bool {
        false
    }

    /// Something was sent over a socket.
    #[inline(always)]
    pub(crate) fn sent() {}

    /// A word that two sides share is about to be read or written.
    #[inline(always)]
    pub(crate) fn turn() {}

    /// Makes a moment a long one.
    #[cfg(feature = "verify")]
    pub(crate) fn dwell(moment: Duration) {
        std::thread::sleep(moment);
    }
}
