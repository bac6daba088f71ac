//! How the two ends of a pipe are placed: on one CPU, where each waits for the other, or on two, where both work at a
//! time. A kernel that moves threads changes from one to the other, and a result is a mixture of both.
//!
//! Time and bytes between two arrivals are those of the placement that the later one finds: where the reader runs, and
//! where the writer wrote last. What lies before the measured part is left out.

use crate::record::{Metric, metric};
use pageferry_hal::{CpuId, Cycles};
use std::cell::Cell;

/// Time and bytes of both placements.
pub(super) struct Regimes {
    clock_mhz: f64,
    cpus: usize,
    writer: Cell<Option<CpuId>>,
    /// When the last bytes came, once the measured part has begun.
    since: Cell<Option<Cycles>>,
    /// Cycles and bytes: on one CPU, and on two.
    spent: [Cell<(u64, u64)>; 2],
}

pub(super) fn metrics() -> Vec<Metric> {
    vec![
        metric(
            "one_cpu_time_percent",
            "%",
            "Share of the measured time in which both ends of the pipe were on one CPU: the reader where it ran, the \
             writer where it wrote last.",
        )
        .of_some_runs(),
        metric("one_cpu_mb_s", "MB/s", "Bandwidth while both ends of the pipe were on one CPU.").of_some_runs(),
        metric("two_cpus_mb_s", "MB/s", "Bandwidth while the ends of the pipe were on two CPUs.").of_some_runs(),
    ]
}

impl Regimes {
    /// On a machine with so many CPUs.
    pub(super) fn new(clock_mhz: f64, cpus: usize) -> Regimes {
        let spent = <[Cell<(u64, u64)>; 2]>::default();
        Regimes { clock_mhz, cpus, writer: Cell::new(None), since: Cell::new(None), spent }
    }

    /// The writer is about to write, on this CPU.
    pub(super) fn sends(&self, on: CpuId) {
        self.writer.set(Some(on));
    }

    /// The measured part begins.
    pub(super) fn begins(&self, now: Cycles) {
        self.since.set(Some(now));
    }

    /// The reader has bytes, on this CPU.
    pub(super) fn arrived(&self, on: CpuId, now: Cycles, len: usize) {
        let (Some(since), Some(writer)) = (self.since.get(), self.writer.get()) else { return };
        self.since.set(Some(now));
        let spent = &self.spent[usize::from(writer != on)];
        let (cycles, bytes) = spent.get();
        spent.set((cycles + now.saturating_sub(since).0, bytes + len as u64));
    }

    /// What of this was measured; nothing where there is one CPU.
    pub(super) fn results(&self) -> Vec<(&'static str, f64)> {
        let [one, two] = [self.spent[0].get(), self.spent[1].get()];
        if self.cpus < 2 || one.0 + two.0 == 0 {
            return Vec::new();
        }
        let share = 100.0 * one.0 as f64 / (one.0 + two.0) as f64;
        let rate = |name, (cycles, bytes): (u64, u64)| {
            (cycles > 0).then(|| (name, bytes as f64 / (cycles as f64 / self.clock_mhz)))
        };
        let rates = [rate("one_cpu_mb_s", one), rate("two_cpus_mb_s", two)];
        [Some(("one_cpu_time_percent", share))].into_iter().chain(rates).flatten().collect()
    }
}
