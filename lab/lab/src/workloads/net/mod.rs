//! Programs that use the Internet protocols: over loopback, or through the card to a host at the far end of its wire.
//!
//! * `netperf`: a stream over loopback (sf_buf paper, 6.5.1).
//! * `web`: a web server, and clients that ask for the files of a trace (sf_buf paper, 6.5.2).
//! * `flip_receive`: a stream from the wire, received by copy or by taking pages over (page-flip paper).
//! * `receive_ways`: the same by what became of flips: a window that shows pages.
//! * `zero_copy_receive`: the same where the card's pages have ephemeral mappings (sf_buf paper, 2.3).

pub mod flip_receive;
pub mod netperf;
pub mod receive_ways;
pub(crate) mod web;
pub mod zero_copy_receive;

use crate::kit::Outcome;
use crate::record::{Metric, metric};
use cpu_time::ThreadTime;
use pageferry_hal::{Cause, Machine as _, PAGE_SIZE};
use pageferry_kernel::User;
use pageferry_model::{Model, Snapshot};
use std::time::Duration;

/// What is measured of a stream.
pub(super) const METRICS: [Metric; 7] = [
    metric(
        "cpu_percent",
        "%",
        "Time in which CPUs were not idle, in percent of one CPU: 200 is two that were always busy.",
    ),
    metric(
        "efficiency_mbit_per_cpu_percent",
        "Mbit/s/%",
        "Throughput by CPU use, for each percent of one CPU.",
    ),
    metric(
        "flush_cycles_per_page",
        "cycles",
        "Cycles of TLB invalidations, the CPU's own and those of others, for each page of payload.",
    ),
    metric(
        "lock_cycles_per_page",
        "cycles",
        "Cycles of locks and of waiting for them, for each page of payload.",
    ),
    metric(
        "moving_cycles_per_page",
        "cycles",
        "Cycles of what moves pages instead of bytes, for each page of payload: locks and waiting for them, page \
         tables, frames, TLB invalidations and misses, and the rest of virtual memory.",
    ),
    metric(
        "sampled_cpu_percent",
        "%",
        "The same as cpu_percent by what a clock's ticks find, some 1,000 a second of each CPU: what sar shows. It \
         says little where a run is short, or what uses the CPU comes as often as the ticks, or a multiple of that.",
    ),
    metric(
        "throughput_mbit_s",
        "Mbit/s",
        "Payload through the whole path in modelled time, in 1,000,000 bits.",
    ),
];

/// A segment takes some hundred modelled steps beside its pages.
fn weight(total_bytes: u64, warmup_bytes: u64) -> u64 {
    total_bytes.saturating_add(warmup_bytes) / 4096 * 10
}

/// What it costs that translations go.
const FLUSHES: [Cause; 3] = [Cause::InvalidateLocal, Cause::ShootdownSent, Cause::ShootdownReceived];

/// What it takes besides to move pages.
const MOVES: [Cause; 5] = [Cause::Lock, Cause::PteWork, Cause::Frame, Cause::Vm, Cause::TlbMiss];

/// How much of the time CPUs were busy when their clocks ticked, in percent of one CPU.
fn sampled_percent(measured: &Snapshot) -> f64 {
    let (ticks, idle) = (measured.hardware.ticks, measured.hardware.idle_ticks);
    100.0 * (ticks - idle) as f64 * measured.clocks.len() as f64 / ticks.max(1) as f64
}

/// When a measured stream began, and what the machine had done by then.
pub(super) struct Began {
    at: u64,
    before: Snapshot,
    host: ThreadTime,
}

impl Began {
    pub(super) fn now(user: &User<Model>, model: &Model) -> Began {
        Began { at: user.machine().now().0, before: model.begin_measuring(), host: ThreadTime::now() }
    }

    /// Ends the measured part, in which `bytes` were moved; `aside` of the host's time went into checking them.
    pub(super) fn ended(
        self,
        user: &User<Model>,
        model: &Model,
        clock_mhz: f64,
        bytes: u64,
        aside: Duration,
        outcome: &mut Outcome,
    ) {
        let elapsed_us = user.machine().now().0.saturating_sub(self.at) as f64 / clock_mhz;
        let measured = model.end_measuring().since(&self.before);
        let clocks = measured.clocks.iter().sum::<u64>() as f64;
        let busy = clocks - measured.cause(Cause::Idle) as f64;
        let throughput = bytes as f64 * 8.0 / elapsed_us;
        let cpu_percent = 100.0 * busy * measured.clocks.len() as f64 / clocks;
        let pages = bytes as f64 / PAGE_SIZE as f64;
        let per_page =
            |causes: &[Cause]| causes.iter().map(|cause| measured.cause(*cause)).sum::<u64>() as f64 / pages;
        let results = [
            ("elapsed_us", elapsed_us),
            ("throughput_mbit_s", throughput),
            ("cpu_percent", cpu_percent),
            ("efficiency_mbit_per_cpu_percent", throughput / cpu_percent),
            ("sampled_cpu_percent", sampled_percent(&measured)),
            ("busy_cycles_per_page", busy / pages),
            ("lock_cycles_per_page", per_page(&[Cause::Lock])),
            ("flush_cycles_per_page", per_page(&FLUSHES)),
            ("moving_cycles_per_page", per_page(&FLUSHES) + per_page(&MOVES)),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        outcome.measured_s = self.host.elapsed().saturating_sub(aside).as_secs_f64();
        outcome.measured = Some(measured);
    }
}
