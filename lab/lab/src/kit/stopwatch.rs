//! The measured part of a workload: when it begins, when it ends, and what is left out of its time on the host.

use super::outcome::Outcome;
use cpu_time::ThreadTime;
use pageferry_hal::{Cycles, Machine as _, PAGE_SIZE};
use pageferry_model::{Model, Snapshot};
use std::time::Duration;

/// Measures a part of a run: modelled time, what happened in it, and time on the host.
pub struct Stopwatch {
    began: Cycles,
    before: Snapshot,
    host: ThreadTime,
    /// Time on the host for filling and checking payloads, which is not the model's.
    aside: Duration,
}

impl Stopwatch {
    /// Begins the measured part.
    pub fn start(model: &Model) -> Stopwatch {
        Stopwatch {
            began: model.now(),
            before: model.begin_measuring(),
            host: ThreadTime::now(),
            aside: Duration::ZERO,
        }
    }

    /// Leaves what was done on the host since `began` out of its time.
    pub fn leave_out(&mut self, began: ThreadTime) {
        self.aside += began.elapsed();
    }

    /// Ends the measured part, in which `total_bytes` were moved.
    pub fn stop(&self, model: &Model, clock_mhz: f64, total_bytes: u64, outcome: &mut Outcome) {
        let elapsed_cycles = self.stop_cycles(model, outcome);
        let elapsed_us = elapsed_cycles / clock_mhz;
        let results = [
            ("elapsed_us", elapsed_us),
            ("bandwidth_mb_s", total_bytes as f64 / elapsed_us),
            ("elapsed_cycles_per_page", elapsed_cycles / (total_bytes as f64 / PAGE_SIZE as f64)),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }

    /// Ends the measured part; how many cycles it took.
    pub fn stop_cycles(&self, model: &Model, outcome: &mut Outcome) -> f64 {
        // Where the seed decides, the process may be on a CPU whose clock is behind: then times mean nothing.
        let elapsed_cycles = model.now().saturating_sub(self.began).0 as f64;
        outcome.measured_s = self.host.elapsed().saturating_sub(self.aside).as_secs_f64();
        outcome.measured = Some(model.end_measuring().since(&self.before));
        elapsed_cycles
    }
}
