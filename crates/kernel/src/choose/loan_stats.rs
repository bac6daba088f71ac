//! What the choice between copying and lending remembers of a process: what its loans and its copies have cost.
//!
//! # What it holds
//! [`LoanStats`] are plain values, a few estimates and counts. Each process owns one set, in [`KeptStats`]; only its own
//! thread reads and writes them, between two steps of a call. The VM system counts the events
//! (`pageferry_vm::LoanHistory`).
//!
//! # Locks, failures
//! None. A wrong value costs time and nothing else.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What is known of the loans and the copies of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoanStats {
    /// What a later write to a page that was lent costs, on average over the pages lent; in steps of 16 cycles.
    pub(super) cow_penalty_cycles: u64,
    /// Pages that were lent and are not judged yet.
    pub(super) lent: u32,
    /// Pages copied since one was lent as a probe, up to 65,535.
    pub(super) copied: u32,
    /// What a copy takes, in sixteenths of what was measured for its working set; 1 to 255.
    pub(super) copy_ratio: u32,
    /// The ratio of the copy made last, and of the last one before this call.
    pub(super) seen: u32,
    pub(super) seen_before: u32,
    /// Pages lent only because copies take long, since one was copied; up to 65,535.
    pub(super) trusted: u32,
}

impl LoanStats {
    /// The copy ratio of what was measured.
    pub(super) const AS_MEASURED: u32 = 16;
    /// From this ratio on copies take longer than measured. Below, the guess at the working set may be as wrong as that.
    pub(super) const SLOW: u32 = 2 * LoanStats::AS_MEASURED;

    /// True for a process that has written to more than a quarter of what it lent, where each such write costs
    /// `rewrite_cycles`: it has its data in the cache.
    pub(super) fn is_warm(&self, rewrite_cycles: u64) -> bool {
        4 * self.cow_penalty_cycles > rewrite_cycles
    }
}

/// The statistics of one process, kept between its calls.
#[derive(Debug)]
pub(crate) struct KeptStats {
    cow_penalty_16_cycles: AtomicU32,
    lent: AtomicU32,
    copied: AtomicU32,
    copy_ratio: AtomicU32,
    seen: AtomicU32,
    seen_before: AtomicU32,
    trusted: AtomicU32,
}

impl Default for KeptStats {
    /// Nothing was lent, and copies take what was measured.
    fn default() -> KeptStats {
        KeptStats {
            cow_penalty_16_cycles: AtomicU32::new(0),
            lent: AtomicU32::new(0),
            copied: AtomicU32::new(0),
            copy_ratio: AtomicU32::new(LoanStats::AS_MEASURED),
            seen: AtomicU32::new(LoanStats::AS_MEASURED),
            seen_before: AtomicU32::new(LoanStats::AS_MEASURED),
            trusted: AtomicU32::new(0),
        }
    }
}

impl KeptStats {
    pub(super) fn get(&self) -> LoanStats {
        LoanStats {
            cow_penalty_cycles: u64::from(self.cow_penalty_16_cycles.load(Relaxed)) << 4,
            lent: self.lent.load(Relaxed),
            copied: self.copied.load(Relaxed),
            copy_ratio: self.copy_ratio.load(Relaxed),
            seen: self.seen.load(Relaxed),
            seen_before: self.seen_before.load(Relaxed),
            trusted: self.trusted.load(Relaxed),
        }
    }

    /// Keeps `stats`, each value within its bounds.
    pub(super) fn set(&self, stats: LoanStats) {
        self.cow_penalty_16_cycles.store((stats.cow_penalty_cycles >> 4).min(0xffff) as u32, Relaxed);
        self.lent.store(stats.lent, Relaxed);
        self.copied.store(stats.copied.min(0xffff), Relaxed);
        self.copy_ratio.store(stats.copy_ratio.clamp(1, 255), Relaxed);
        self.seen.store(stats.seen, Relaxed);
        self.seen_before.store(stats.seen_before, Relaxed);
        self.trusted.store(stats.trusted.min(0xffff), Relaxed);
    }
}
