//! Threads that wait for one of several descriptors.
//!
//! # What it holds
//! How often anything has become ready, and how many threads sleep for that. All of them sleep on one channel and look
//! again at what they wait for, as in 4.4BSD where two processes select the same descriptor. What becomes ready counts
//! one up after it has; a thread that has looked sleeps only if the count is what it was before it looked.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use pageferry_hal::{Channel, Threads};

/// Where all sleep that wait for descriptors: apart from all addresses of structures.
pub const SELECT_CHANNEL: Channel = Channel(1 << 57);

/// How often anything has become ready, and how many threads wait for that.
#[derive(Default)]
pub struct Select {
    /// How often something has become ready, perhaps.
    pub changes: AtomicU64,
    /// Threads that sleep for that.
    pub waiting: AtomicUsize,
}

impl Select {
    /// Something has become ready, perhaps.
    ///
    /// # Locks
    /// Takes `Scheduler` if a thread waits.
    pub fn changed(&self, threads: &dyn Threads) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if self.waiting.load(Ordering::Acquire) > 0 {
            threads.wakeup(SELECT_CHANNEL);
        }
    }
}
