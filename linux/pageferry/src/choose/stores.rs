//! Which stores fill a buffer faster: learnt while filling.
//!
//! # The model
//! Where another core holds a buffer's lines, storing past the caches is faster; where they are near, it is
//! slower. A guest cannot see where its CPUs are, and its host moves them. So each copy into a buffer is
//! timed, in nanoseconds per line, and a smoothed value is kept for each kind of stores and each size class.
//! What was stored past the caches the peer reads from memory, and that counts too ([`READ_FROM_MEMORY`]).
//! The faster kind is taken, the other one now and then: the slower it is, the more seldom, so that looking takes three
//! parts in a hundred at most. It must be faster by a tenth to replace the one in use.
//!
//! When the host moves the CPUs, what is in use takes twice what it did, or what is tried takes much less than it
//! did. Then the other kind is tried with the next copy, until its time is known again.
//!
//! # Locks
//! One, for the time of a look-up.

use super::costs::Placement;
use crate::sync::Mutex;
use crate::sys::copy::Stores;
use std::sync::PoisonError;
use std::time::Duration;

/// Copies of the kind in use, between two of the other kind, where both take the same; more where the other takes more.
const PROBE_EVERY: u32 = 32;
/// Times as many, at most.
const MAX_RARER: f64 = 32.0;
/// Shorter copies go through the caches.
const MIN_BYTES: usize = 64 << 10;
/// What reading a line takes longer from memory than from a cache that cores share, in nanoseconds: 7 cycles in place
/// of 2, as `host calibrate --machine` found on an EPYC of 3.6 GHz.
const READ_FROM_MEMORY: f64 = 1.4;
/// Longer messages are read from memory anyhow.
const MAX_SHARED: usize = 8 << 20;
/// Size classes: powers of two from `MIN_BYTES` on.
const CLASSES: usize = 12;
/// The part of a new time in the smoothed one.
const SMOOTHING: f64 = 0.25;

/// What was learnt.
#[derive(Debug, Default)]
pub(crate) struct StoreChoice {
    classes: Mutex<[Class; CLASSES]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// Nanoseconds per line, smoothed; 0 before the first.
    ordinary: f64,
    non_temporal: f64,
    in_use: Stores,
    since_probe: u32,
}

impl Class {
    fn time(&mut self, stores: Stores) -> &mut f64 {
        match stores {
            Stores::Ordinary => &mut self.ordinary,
            Stores::NonTemporal => &mut self.non_temporal,
        }
    }

    /// Copies until the other kind is tried again.
    fn probe_after(&mut self) -> u32 {
        let (used, tried) = (*self.time(self.in_use), *self.time(other(self.in_use)));
        let rarer = if used > 0.0 { (tried / used).clamp(1.0, MAX_RARER) } else { 1.0 };
        (f64::from(PROBE_EVERY) * rarer) as u32
    }
}

fn other(stores: Stores) -> Stores {
    match stores {
        Stores::Ordinary => Stores::NonTemporal,
        Stores::NonTemporal => Stores::Ordinary,
    }
}

fn class(bytes: usize) -> usize {
    ((bytes / MIN_BYTES).max(1).ilog2() as usize).min(CLASSES - 1)
}

impl StoreChoice {
    fn with<R>(&self, bytes: usize, of: impl FnOnce(&mut Class) -> R) -> R {
        of(&mut self.classes.lock().unwrap_or_else(PoisonError::into_inner)[class(bytes)])
    }

    /// The stores for a copy of so many bytes, and whether it is worth timing.
    pub(crate) fn pick(&self, bytes: usize) -> (Stores, bool) {
        if bytes < MIN_BYTES {
            return (Stores::Ordinary, false);
        }
        let stores = self.with(bytes, |class| {
            class.since_probe = class.since_probe.saturating_add(1);
            // The first copies try both kinds.
            let early = class.ordinary > 0.0 && class.non_temporal == 0.0;
            if early || class.since_probe >= class.probe_after() {
                class.since_probe = 0;
                return other(class.in_use);
            }
            class.in_use
        });
        (stores, true)
    }

    /// A copy has taken so long.
    pub(crate) fn learn(&self, bytes: usize, stores: Stores, took: Duration) {
        let mut per_line = took.as_nanos() as f64 / (bytes as f64 / 64.0);
        if stores == Stores::NonTemporal && bytes < MAX_SHARED {
            per_line += READ_FROM_MEMORY;
        }
        self.with(bytes, |class| {
            let in_use = stores == class.in_use;
            let known = class.time(stores);
            let moved =
                *known > 0.0 && if in_use { per_line > 2.0 * *known } else { per_line < 0.7 * *known };
            // One copy that was interrupted must not stand for many: a time counts for at most four times
            // what is known.
            let sample = if *known > 0.0 { per_line.min(4.0 * *known) } else { per_line };
            *known = if *known > 0.0 { *known + SMOOTHING * (sample - *known) } else { sample };
            let (used, tried) = (*class.time(class.in_use), *class.time(other(class.in_use)));
            if tried > 0.0 && tried < 0.9 * used {
                class.in_use = other(class.in_use);
                class.since_probe = 0;
            } else if moved {
                class.since_probe = u32::MAX;
            }
        });
    }

    /// Where the peer's core seems to be, by what serves for messages of so many bytes.
    pub(crate) fn placement(&self, bytes: usize) -> Placement {
        match self.with(bytes.max(MIN_BYTES), |class| class.in_use) {
            Stores::Ordinary => Placement::Near,
            Stores::NonTemporal => Placement::Far,
        }
    }
}
