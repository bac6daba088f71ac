//! What the choice between copying and lending remembers of a process: what its loans and its copies have cost.
//!
//! # What it holds
//! [`LoanStats`] are plain values, a few estimates and counts. Each process owns one set, in [`KeptStats`]; only its
//! own thread reads and writes them, between two steps of a call. The VM system counts the events
//! (`pageferry_vm::LoanHistory`).
//!
//! # Locks, failures
//! None. A wrong value costs time and nothing else.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What is known of the loans and the copies of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoanStats {
    /// What a later write to a page that was lent costs, on average over the pages lent; up to 1,048,575.
    pub(super) cow_penalty_cycles: u64,
    /// Pages that were lent and are not judged yet.
    pub(super) lent: u32,
    /// Pages copied since one was lent as a probe, up to 65,535.
    pub(super) copied: u32,
    /// What a copy takes, in sixteenths of what was measured for its working set; 1 to 255.
    pub(super) copy_ratio: u32,
    /// Pages copied and timed that are not judged yet.
    pub(super) timed: u32,
    /// The ratios of them all.
    pub(super) timed_ratios: u32,
    /// Pages lent only because copies take long, since one was copied; up to 65,535.
    pub(super) trusted: u32,
    /// After how many such pages one is copied; 0 while no copy was judged.
    pub(super) trust: u32,
}

impl LoanStats {
    /// The copy ratio of what was measured.
    pub(super) const AS_MEASURED: u32 = 16;
    /// From this ratio on copies take longer than measured. Below, the guess at the working set may be as wrong as
    /// that.
    pub(super) const SLOW: u32 = 2 * LoanStats::AS_MEASURED;
    /// The ratio of a page that was copied is taken to be no more and no less: it may have waited for the disk.
    const RATIOS: (u32, u32) = (4, 128);
    /// Of so many pages that are lent because copies take long, at least one is copied.
    const TRUST_MAX: u32 = 256;

    /// True for a process that has written to more than a quarter of what it lent, where each such write costs
    /// `rewrite_cycles`: it has its data in the cache.
    pub(super) fn is_warm(&self, rewrite_cycles: u64) -> bool {
        4 * self.cow_penalty_cycles > rewrite_cycles
    }

    /// A page was copied that should have taken `expected_cycles`.
    pub(super) fn timed(mut self, expected_cycles: u64, cycles: u64) -> LoanStats {
        let ratio = u64::from(LoanStats::AS_MEASURED) * cycles / expected_cycles.max(1);
        let (least, most) = LoanStats::RATIOS;
        self.timed += 1;
        self.timed_ratios += (ratio.min(u64::from(most)) as u32).max(least);
        self
    }

    /// Judges the copies of the call before: however many they were, they count as much as all that was known. The
    /// oftener copies have been found slow, the rarer that is looked at again.
    pub(super) fn judge_copies(&mut self) {
        let Some(seen) = self.timed_ratios.checked_div(self.timed) else { return };
        self.copy_ratio = if self.trust == 0 { seen } else { (self.copy_ratio + seen).div_ceil(2) };
        self.trust = if seen < LoanStats::SLOW { 1 } else { (2 * self.trust).clamp(2, LoanStats::TRUST_MAX) };
        (self.timed, self.timed_ratios, self.trusted) = (0, 0, 0);
    }
}

impl Default for LoanStats {
    /// Nothing was lent, and copies take what was measured.
    fn default() -> LoanStats {
        LoanStats {
            cow_penalty_cycles: 0,
            lent: 0,
            copied: 0,
            copy_ratio: LoanStats::AS_MEASURED,
            timed: 0,
            timed_ratios: 0,
            trusted: 0,
            trust: 0,
        }
    }
}

/// The statistics of one process, kept between its calls. Atomic because the process is shared, with those that signal
/// it and wait for it; they do not look here, so no lock is needed.
#[derive(Debug)]
pub(crate) struct KeptStats {
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
