//! The processes that serve, and the one that ends their waits.
//!
//! A call of a process waits for its client as long as it takes, and no wait has a time of its own: a process says
//! how long it is ready to wait, and the first process signals those that are late (`SIGALRM` of old servers), and
//! all of them when the server is to stop. A signal ends any wait.
//!
//! As long as there are processes enough, a client has much time. Once all have a client and more clients wait, those
//! that do nothing keep others out: then each has as little time as its [`Patience`] says.

use pageferry_hal::{Cycles, Machine as _};
use pageferry_kernel::{Errno, Fd, Pid, Polled, User};
use pageferry_model::Model;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often it is looked for those that are late.
const LOOK_MS: u64 = 200;

/// How long a process waits for its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// As long as nobody else waits.
    pub(super) ms: u64,
    /// While others wait for a process.
    pub(super) pressed_ms: u64,
}

/// A process waits for its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) since: Cycles,
    pub(super) patience: Patience,
}

impl Wait {
    /// Its client has had all the time that it has, where a millisecond has so many cycles.
    fn is_over(&self, now: Cycles, ms_cycles: Cycles, is_pressed: bool) -> bool {
        let ms = if is_pressed { self.patience.pressed_ms } else { self.patience.ms };
        self.since + Cycles(ms_cycles.0 * ms) <= now
    }
}

/// What the processes that serve wait for.
#[derive(Debug)]
pub(super) struct Workers {
    stop: Arc<AtomicBool>,
    /// What each waits for, if its wait has a time.
    waits: RefCell<Vec<Option<Wait>>>,
    /// Clients wait, and no process is free.
    is_pressed: Cell<bool>,
    running: Cell<usize>,
    /// Clients that had less time than they have while nobody else waits.
    hurried: Cell<u64>,
}

/// Why a wait has ended without what was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitError {
    /// The server is to stop.
    Stopped,
    /// It took too long.
    TimedOut,
    /// The call has failed.
    Failed(Errno),
}

impl From<Errno> for WaitError {
    fn from(errno: Errno) -> WaitError {
        WaitError::Failed(errno)
    }
}

impl Workers {
    pub(super) fn new(stop: Arc<AtomicBool>) -> Workers {
        Workers {
            stop,
            waits: RefCell::default(),
            is_pressed: Cell::new(false),
            running: Cell::new(0),
            hurried: Cell::new(0),
        }
    }

    /// True when the process is to end.
    pub(super) fn stops(&self, user: &User<Model>) -> bool {
        self.stop.load(Ordering::Relaxed) || user.is_killed()
    }

    /// Clients that had less time than they have while nobody else waits.
    pub(super) fn hurried(&self) -> u64 {
        self.hurried.get()
    }

    /// One more process, by its number.
    pub(super) fn begin(&self) -> usize {
        self.running.set(self.running.get() + 1);
        let mut waits = self.waits.borrow_mut();
        waits.push(None);
        waits.len() - 1
    }

    /// A process has ended, or never came to be.
    pub(super) fn end(&self) {
        self.running.set(self.running.get() - 1);
    }

    /// True when a client has had all the time that it has.
    pub(super) fn is_late(&self, user: &User<Model>, wait: &Wait) -> bool {
        wait.is_over(user.machine().now(), cycles(user, 1), self.is_pressed.get())
    }

    /// Makes a call that may wait, as long as its client has time, or for ever.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn wait<T>(
        &self,
        user: &User<Model>,
        worker: usize,
        wait: Option<Wait>,
        mut call: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, WaitError> {
        loop {
            if self.stops(user) {
                break Err(WaitError::Stopped);
            }
            self.waits.borrow_mut()[worker] = wait;
            let result = call();
            self.waits.borrow_mut()[worker] = None;
            match result {
                Err(Errno::Interrupted) if wait.is_some_and(|wait| self.is_late(user, &wait)) => {
                    let had =
                        wait.is_some_and(|wait| wait.is_over(user.machine().now(), cycles(user, 1), false));
                    self.hurried.set(self.hurried.get() + u64::from(!had));
                    break Err(WaitError::TimedOut);
                }
                // The signal was for a wait that has ended by itself.
                Err(Errno::Interrupted) => {}
                result => break result.map_err(WaitError::Failed),
            }
        }
    }

    /// Signals those that are late, and all when the server is to stop, until all have ended. Clients wait when
    /// `listening` has one to be accepted: a free process would have taken it.
    pub(super) fn supervise(&self, user: &User<Model>, listening: Fd, pids: &[Pid]) {
        let look = cycles(user, LOOK_MS);
        while self.running.get() > 0 && !user.is_killed() {
            let _ = user.sleep_for(look);
            let mut polled = [Polled::new(listening, true, false)];
            self.is_pressed.set(matches!(user.poll(&mut polled, Some(Cycles(0))), Ok(1..)));
            let stops = self.stops(user);
            for (worker, pid) in pids.iter().enumerate() {
                let wait = self.waits.borrow()[worker];
                if stops || wait.is_some_and(|wait| self.is_late(user, &wait)) {
                    // It may have ended.
                    let _ = user.signal(*pid);
                }
            }
        }
        for _ in pids {
            let _ = user.wait();
        }
    }
}

/// Cycles of so many milliseconds.
pub(super) fn cycles(user: &User<Model>, ms: u64) -> Cycles {
    let config = user.kernel().config().net.expect("it listens");
    Cycles(config.ms_cycles.0 * ms)
}

#[cfg(test)]
mod tests {
    use super::{Cycles, Patience, Wait};

    #[test]
    fn a_client_has_less_time_where_others_wait() {
        let wait = Wait { since: Cycles(1000), patience: Patience { ms: 20, pressed_ms: 5 } };
        for (now, is_pressed, expected) in [
            (1049, true, false),
            (1050, true, true),
            (1050, false, false),
            (1199, false, false),
            (1200, false, true),
        ] {
            assert_eq!(wait.is_over(Cycles(now), Cycles(10), is_pressed), expected, "{now}, {is_pressed}");
        }
    }
}
