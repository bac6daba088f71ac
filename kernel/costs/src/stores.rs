//! Which stores fill a buffer faster: learnt while filling.
//!
//! # The model
//! Where another core holds a buffer's lines, storing past the caches is faster; where they are near, it is slower. A
//! guest cannot see where its CPUs are, and its host moves them. So each copy into a buffer is timed, in picoseconds
//! per line, and a smoothed value is kept for each kind of stores and each size class. What was stored past the caches
//! the peer reads from memory, and that counts too. The faster kind is taken, the other one now and then: the slower it
//! is, the more seldom, so that looking takes three parts in a hundred at most. It must be faster by a tenth to replace
//! the one in use.
//!
//! When the host moves the CPUs, what is in use takes twice what it did, or what is tried takes much less than it did.
//! Then the other kind is tried with the next copy, until its time is known again.

use crate::Placement;

/// Copies of the kind in use, between two of the other kind, where both take the same; more where the other takes more.
const PROBE_EVERY: u64 = 32;
/// Times as many, at most.
const MAX_RARER: u64 = 32;
/// Shorter copies go through the caches.
pub const MIN_TIMED_BYTES: usize = 64 << 10;
/// What reading a line takes longer from memory than from a cache that cores share, in picoseconds: 7 cycles in place
/// of 2, as `host calibrate --machine` found on an EPYC of 3.6 GHz.
const READ_FROM_MEMORY_PS: u64 = 1400;
/// Longer messages are read from memory anyhow.
const MAX_SHARED: usize = 8 << 20;
/// Bytes of a line.
const LINE: u128 = 64;

/// How a copy stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Stores {
    /// Through the caches.
    #[default]
    Ordinary,
    /// Past the caches.
    NonTemporal,
}

impl Stores {
    fn other(self) -> Stores {
        match self {
            Stores::Ordinary => Stores::NonTemporal,
            Stores::NonTemporal => Stores::Ordinary,
        }
    }
}

/// What was learnt of copies of about one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StoreTimes {
    /// Picoseconds per line, smoothed; 0 before the first.
    ordinary: u64,
    non_temporal: u64,
    in_use: Stores,
    since_probe: u32,
}

impl StoreTimes {
    /// The size class of a copy: powers of two from [`MIN_TIMED_BYTES`] on, up to `classes` of them.
    pub fn class(bytes: usize, classes: usize) -> usize {
        ((bytes / MIN_TIMED_BYTES).max(1).ilog2() as usize).min(classes.saturating_sub(1))
    }

    /// The stores for the next copy.
    pub fn pick(&mut self) -> Stores {
        self.since_probe = self.since_probe.saturating_add(1);
        // The first copies try both kinds.
        let early = self.ordinary > 0 && self.non_temporal == 0;
        if early || u64::from(self.since_probe) >= self.probe_after() {
            self.since_probe = 0;
            return self.in_use.other();
        }
        self.in_use
    }

    /// A copy of so many bytes has taken so long.
    pub fn learn(&mut self, bytes: usize, stores: Stores, took_ns: u64) {
        let per_line = u128::from(took_ns) * 1000 * LINE / (bytes.max(1) as u128);
        // An hour for a line: times of which no multiple below overflows.
        let mut per_line = per_line.min(1 << 52) as u64;
        if stores == Stores::NonTemporal && bytes < MAX_SHARED {
            per_line += READ_FROM_MEMORY_PS;
        }
        let in_use = stores == self.in_use;
        let known = self.time_mut(stores);
        let moved = *known > 0 && if in_use { per_line > 2 * *known } else { 10 * per_line < 7 * *known };
        *known = match *known {
            // 0 is for what was never tried.
            0 => per_line.max(1),
            // One copy that was interrupted must not stand for many: a time counts for at most four times what is
            // known. A quarter of the new value is of the last copy.
            known => ((3 * known + per_line.min(4 * known)) / 4).max(1),
        };
        let (used, tried) = (self.time(self.in_use), self.time(self.in_use.other()));
        if tried > 0 && 10 * tried < 9 * used {
            self.in_use = self.in_use.other();
            self.since_probe = 0;
        } else if moved {
            self.since_probe = u32::MAX;
        }
    }

    /// Where the peer's core seems to be, by what serves.
    pub fn placement(&self) -> Placement {
        match self.in_use {
            Stores::Ordinary => Placement::Near,
            Stores::NonTemporal => Placement::Far,
        }
    }

    fn time(&self, stores: Stores) -> u64 {
        match stores {
            Stores::Ordinary => self.ordinary,
            Stores::NonTemporal => self.non_temporal,
        }
    }

    fn time_mut(&mut self, stores: Stores) -> &mut u64 {
        match stores {
            Stores::Ordinary => &mut self.ordinary,
            Stores::NonTemporal => &mut self.non_temporal,
        }
    }

    /// Copies until the other kind is tried again.
    fn probe_after(&self) -> u64 {
        let (used, tried) = (self.time(self.in_use), self.time(self.in_use.other()));
        match used {
            0 => PROBE_EVERY,
            used => (PROBE_EVERY * tried / used).clamp(PROBE_EVERY, PROBE_EVERY * MAX_RARER),
        }
    }
}
