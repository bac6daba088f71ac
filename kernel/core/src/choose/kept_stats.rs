//! Where what is known of a process's loans and copies is kept between its calls.
//!
//! # What it holds
//! [`KeptStats`] keeps one [`LoanStats`], plain values, for each process. Only the process's own thread reads and
//! writes them, between two steps of a call. The VM system counts the events (`pageferry_vm::LoanHistory`).
//!
//! # Locks, failures
//! None. A wrong value costs time and nothing else.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use pageferry_costs::LoanStats;

/// The statistics of one process. Atomic because the process is shared, with those that signal it and wait for it; they
/// do not look here, so no lock is needed.
#[derive(Debug)]
pub struct KeptStats {
    words: [AtomicU32; 8],
}

impl Default for KeptStats {
    fn default() -> KeptStats {
        let kept = KeptStats { words: Default::default() };
        kept.set(LoanStats::default());
        kept
    }
}

impl KeptStats {
    pub(super) fn get(&self) -> LoanStats {
        let [penalty, lent, copied, copy_ratio, timed, timed_ratios, trusted, trust] =
            self.words.each_ref().map(|word| word.load(Relaxed));
        let cow_penalty_cycles = u64::from(penalty);
        LoanStats { cow_penalty_cycles, lent, copied, copy_ratio, timed, timed_ratios, trusted, trust }
    }

    /// Keeps `stats`, each value within its bounds.
    pub(super) fn set(&self, stats: LoanStats) {
        let LoanStats { cow_penalty_cycles, lent, copied, copy_ratio, timed, timed_ratios, trusted, trust } =
            stats;
        let penalty = cow_penalty_cycles.min(0xf_ffff) as u32;
        let (copied, trusted) = (copied.min(0xffff), trusted.min(0xffff));
        let values = [penalty, lent, copied, copy_ratio, timed, timed_ratios, trusted, trust];
        for (word, value) in self.words.iter().zip(values) {
            word.store(value, Relaxed);
        }
    }
}
