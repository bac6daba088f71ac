//! The same for threads that shuttle schedules.
//!
//! # What is modelled
//! All threads run on one of the kernel's, one at a time. Memory and sockets are real, and no call blocks: a wait for a
//! socket asks it once, lets other threads go on, and asks again. So a wake-up that is lost is a test that makes more
//! steps than it may. Each look at the clock takes a turn of [`TURN`]; nothing else takes time.
//!
//! Orders of memory are not modelled: words change at once for all. `ring::loom` tries those.

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use ::shuttle::hint::spin_loop;
pub(crate) use ::shuttle::sync::atomic::{AtomicBool, AtomicU64};
pub(crate) use ::shuttle::sync::{Condvar, Mutex, MutexGuard};

/// What a look at the clock takes.
pub(crate) const TURN: Duration = Duration::from_millis(1);

thread_local! {
    static SENT: Cell<u64> = const { Cell::new(0) };
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The clock starts anew, so that a schedule gives the same run each time.
pub(crate) fn start_clock() {
    NOW.set(Duration::ZERO);
}

/// A moment: how many turns were taken before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Instant {
        NOW.set(NOW.get() + TURN);
        Instant(NOW.get())
    }

    pub(crate) fn checked_add(self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    pub(crate) fn elapsed(self) -> Duration {
        Instant::now() - self
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0 + duration)
    }
}

/// Whoever waits for a time only is told to look again, as a condition may at any time.
pub(crate) fn wait_timeout<'a, T>(
    _news: &Condvar,
    lock: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    _left: Duration,
) -> MutexGuard<'a, T> {
    drop(guard);
    ::shuttle::thread::yield_now();
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No call waits in the kernel.
pub(crate) fn patience(_until: Option<Instant>) -> Option<Duration> {
    Some(Duration::ZERO)
}

/// Lets the others go on. Whether the time is not up.
pub(crate) fn waits_again(until: Option<Instant>) -> bool {
    ::shuttle::thread::yield_now();
    until.is_none_or(|until| Instant::now() < until)
}

/// Something was sent over a socket.
pub(crate) fn sent() {
    SENT.set(SENT.get() + 1);
}

/// How often something was sent, over any socket. A runtime tells a task when this grows for its socket, even if
/// somebody else has taken what came.
pub(crate) fn sends() -> u64 {
    SENT.get()
}

/// Another thread may go on before a word that two sides share is read or written.
pub(crate) fn turn() {
    ::shuttle::thread::sleep(TURN);
}

/// A moment is as long as the schedule makes it.
pub(crate) fn dwell(_moment: Duration) {
    ::shuttle::thread::yield_now();
}
