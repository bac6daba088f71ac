//! The processes that serve, and the one that ends their waits.
//!
//! A call of a process waits for its client as long as it takes, and no wait has a time of its own: a process says
//! until when it is ready to wait, and the first process signals those that are late (`SIGALRM` of old servers), and
//! all of them when the server is to stop. A signal ends any wait.

use pageferry_hal::{Cycles, Machine as _};
use pageferry_kernel::{Errno, Pid, User};
use pageferry_model::Model;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often it is looked for those that are late.
const LOOK_MS: u64 = 200;

/// What the processes that serve wait for.
#[derive(Debug)]
pub(super) struct Workers {
    stop: Arc<AtomicBool>,
    /// Until when each is ready to wait, if it waits.
    until: RefCell<Vec<Option<Cycles>>>,
    running: Cell<usize>,
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
        Workers { stop, until: RefCell::default(), running: Cell::new(0) }
    }

    /// True when the process is to end.
    pub(super) fn stops(&self, user: &User<Model>) -> bool {
        self.stop.load(Ordering::Relaxed) || user.is_killed()
    }

    /// One more process, by its number.
    pub(super) fn begin(&self) -> usize {
        self.running.set(self.running.get() + 1);
        let mut until = self.until.borrow_mut();
        until.push(None);
        until.len() - 1
    }

    /// A process has ended, or never came to be.
    pub(super) fn end(&self) {
        self.running.set(self.running.get() - 1);
    }

    /// Makes a call that may wait, up to so long, or for ever.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn wait<T>(
        &self,
        user: &User<Model>,
        worker: usize,
        ms: Option<u64>,
        mut call: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, WaitError> {
        let until = ms.map(|ms| user.machine().now() + cycles(user, ms));
        loop {
            if self.stops(user) {
                break Err(WaitError::Stopped);
            }
            self.until.borrow_mut()[worker] = until;
            let result = call();
            self.until.borrow_mut()[worker] = None;
            match result {
                Err(Errno::Interrupted) if until.is_some_and(|until| until <= user.machine().now()) => {
                    break Err(WaitError::TimedOut);
                }
                // The signal was for a wait that has ended by itself.
                Err(Errno::Interrupted) => {}
                result => break result.map_err(WaitError::Failed),
            }
        }
    }

    /// Signals those that are late, and all when the server is to stop, until all have ended.
    pub(super) fn supervise(&self, user: &User<Model>, pids: &[Pid]) {
        let look = cycles(user, LOOK_MS);
        while self.running.get() > 0 && !user.is_killed() {
            let _ = user.sleep_for(look);
            let (now, stops) = (user.machine().now(), self.stops(user));
            for (worker, pid) in pids.iter().enumerate() {
                let is_late = self.until.borrow()[worker].is_some_and(|until| until <= now);
                if stops || is_late {
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
