//! Which stores fill a buffer faster: what each size class of a channel's buffers has learnt, behind a lock.
//!
//! The model is told in `pageferry_costs`: each copy into a buffer is timed, and the faster kind of stores is taken,
//! the other now and then. No copy is made to learn from.
//!
//! # Locks
//! One, for the time of a look-up.

use crate::sync::Mutex;
use pageferry_costs::{MIN_TIMED_BYTES, Placement, StoreTimes, Stores};
use std::sync::PoisonError;
use std::time::Duration;

/// Size classes: powers of two from [`MIN_TIMED_BYTES`] on.
const CLASSES: usize = 12;

/// What was learnt.
#[derive(Debug, Default)]
pub(crate) struct StoreChoice {
    classes: Mutex<[StoreTimes; CLASSES]>,
}

impl StoreChoice {
    fn with<R>(&self, bytes: usize, of: impl FnOnce(&mut StoreTimes) -> R) -> R {
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        of(&mut classes[StoreTimes::class(bytes, CLASSES)])
    }

    /// The stores for a copy of so many bytes, and whether it is worth timing.
    pub(crate) fn pick(&self, bytes: usize) -> (Stores, bool) {
        if bytes < MIN_TIMED_BYTES {
            return (Stores::Ordinary, false);
        }
        (self.with(bytes, StoreTimes::pick), true)
    }

    /// A copy has taken so long.
    pub(crate) fn learn(&self, bytes: usize, stores: Stores, took: Duration) {
        let took_ns = took.as_nanos().try_into().unwrap_or(u64::MAX);
        self.with(bytes, |class| class.learn(bytes, stores, took_ns));
    }

    /// Where the peer's core seems to be, by what serves for messages of so many bytes.
    pub(crate) fn placement(&self, bytes: usize) -> Placement {
        self.with(bytes, |class| class.placement())
    }
}
