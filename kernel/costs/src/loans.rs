//! What the choice between copying and lending remembers of a process: what its loans and its copies have cost.
//!
//! [`LoanStats`] are plain values, a few estimates and counts. Who chooses for a process keeps them between its calls,
//! and hands them in with each.

use crate::MoveCosts;

/// What became of pages that were lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Pages that their owner wrote to, and faulted.
    pub refused_writes: u32,
    /// Of these, pages that were still on loan, and were copied.
    pub broken: u32,
}

/// What is known of the loans and the copies of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoanStats {
    /// What a later write to a page that was lent costs, on average over the pages lent; kept up to 1,048,575.
    pub cow_penalty_cycles: u64,
    /// Pages that were lent and are not judged yet.
    pub lent: u32,
    /// Pages copied since one was lent as a probe, kept up to 65,535.
    pub copied: u32,
    /// What a copy takes, in sixteenths of what was measured for its working set; 1 to 255.
    pub copy_ratio: u32,
    /// Pages copied and timed that are not judged yet.
    pub timed: u32,
    /// The ratios of them all.
    pub timed_ratios: u32,
    /// Pages lent only because copies take long, since one was copied; kept up to 65,535.
    pub trusted: u32,
    /// After how many such pages one is copied; 0 while no copy was judged.
    pub trust: u32,
}

impl LoanStats {
    /// The copy ratio of what was measured.
    pub const AS_MEASURED: u32 = 16;
    /// From this ratio on copies take longer than measured. Below, the guess at the working set may be as wrong as
    /// that.
    pub const SLOW: u32 = 2 * LoanStats::AS_MEASURED;
    /// The ratio of a page that was copied is taken to be no less and no more: it may have waited for the disk.
    const MIN_RATIO: u64 = 4;
    const MAX_RATIO: u64 = 128;
    /// Of so many pages that are lent because copies take long, at least one is copied.
    const TRUST_MAX: u32 = 256;

    /// True for a process that has written to more than a quarter of what it lent, where each such write costs
    /// `rewrite_cycles`: it has its data in the cache.
    pub fn is_warm(&self, rewrite_cycles: u64) -> bool {
        self.cow_penalty_cycles.saturating_mul(4) > rewrite_cycles
    }

    /// A page was copied that should have taken `expected_cycles`.
    pub fn timed(mut self, expected_cycles: u64, cycles: u64) -> LoanStats {
        let ratio = u64::from(LoanStats::AS_MEASURED).saturating_mul(cycles) / expected_cycles.max(1);
        self.timed += 1;
        self.timed_ratios += ratio.clamp(LoanStats::MIN_RATIO, LoanStats::MAX_RATIO) as u32;
        self
    }

    /// Judges the copies of the call before: however many they were, they count as much as all that was known. The
    /// oftener copies have been found slow, the rarer that is looked at again.
    pub fn judge_copies(&mut self) {
        let Some(seen) = self.timed_ratios.checked_div(self.timed) else { return };
        self.copy_ratio = if self.trust == 0 { seen } else { (self.copy_ratio + seen).div_ceil(2) };
        self.trust = if seen < LoanStats::SLOW { 1 } else { (2 * self.trust).clamp(2, LoanStats::TRUST_MAX) };
        (self.timed, self.timed_ratios, self.trusted) = (0, 0, 0);
    }

    /// Judges the pages that were lent, by what became of them.
    pub fn judge_loans(&mut self, costs: &MoveCosts, outcome: Outcome) {
        let rewritten = u64::from(outcome.refused_writes.min(self.lent));
        let broken = u64::from(outcome.broken.min(self.lent)).min(rewritten);
        let cost = (costs.rewrite_cycles.saturating_mul(rewritten - broken))
            .saturating_add(costs.break_cycles.saturating_mul(broken));
        if self.lent > 0 {
            self.cow_penalty_cycles = self.cow_penalty_cycles.saturating_add(cost / u64::from(self.lent)) / 2;
            self.lent = 0;
        }
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
