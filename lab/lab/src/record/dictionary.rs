//! The data dictionary: every metric that a run can have, its unit, and what it means.
//!
//! A metric has one name and one meaning in all tables. Counts of the kernel and causes of cycles say themselves what
//! they are; what several workloads measure, and the machine, is listed here, and the rest with its workload.

use pageferry_hal::Cause;
use pageferry_sourced::nearest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a metric is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its name in `results.csv`; those of cycles by cause begin with `cycles.`.
    pub metric: String,
    /// Its unit; `count` for events.
    pub unit: String,
    /// What it means.
    pub about: String,
}

/// A metric of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    is_in_each_run: bool,
}

/// A metric: its name, with the unit last; its unit; what it means. Each run of the workload that lists it has to leave
/// it, unless it is one for [some runs](Metric::of_some_runs).
pub const fn metric(name: &'static str, unit: &'static str, about: &'static str) -> Metric {
    Metric { name, unit, about, is_in_each_run: true }
}

impl Metric {
    /// The same, where there are runs that do not have it.
    #[must_use]
    pub const fn of_some_runs(self) -> Metric {
        Metric { is_in_each_run: false, ..self }
    }

    /// Its name.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }
}

/// What is wrong with the `results` that a run left, where its workload lists `own` beside what is common: one that it
/// does not list, or one that it lists and did not leave.
pub(crate) fn check_results<T>(own: &[Metric], results: &BTreeMap<String, T>) -> Result<(), String> {
    let known = || {
        let counted = pageferry_kernel::metrics().map(|counter| counter.name());
        COMMON.iter().chain(own).map(|metric| metric.name).chain(counted)
    };
    if let Some(name) = results.keys().find(|name| known().all(|known| known != *name)) {
        let near =
            nearest(name, known()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(format!("a run left the result `{name}`, which `metrics()` does not list{near}"));
    }
    let missing = own.iter().find(|metric| metric.is_in_each_run && !results.contains_key(metric.name));
    match missing.map(|metric| metric.name) {
        Some(name) => Err(format!(
            "`metrics()` lists `{name}`, and a run left no such result (`of_some_runs` is for what not each run has)"
        )),
        None => Ok(()),
    }
}

/// What several workloads measure, and what the machine counts.
const COMMON: [Metric; 33] = [
    metric(
        "bandwidth_mb_s",
        "MB/s",
        "Payload through the whole path in modelled time; an MB is 1,000,000 bytes.",
    ),
    metric("busy_cycles_per_page", "cycles", "Cycles in which a CPU was not idle, for each page of payload."),
    metric("elapsed_cycles_per_page", "cycles", "Modelled time for each page of payload."),
    metric("elapsed_us", "us", "Modelled time of the measured part."),
    metric(
        "ephemeral_hit_rate_percent",
        "%",
        "Allocations from the cache of ephemeral mappings that found the page mapped.",
    ),
    metric(
        "ephemeral_invalidations",
        "count",
        "Of tlb_invalidations those for ephemeral mappings: neither for buffers that stay mapped nor for raw reads and \
         writes of disks.",
    ),
    metric(
        "tlb_invalidations",
        "count",
        "Pages invalidated in the own TLB, and pages whose invalidation was requested of others.",
    ),
    metric(
        "time_us",
        "us",
        "Modelled time of one step, from the sender's call to the receiver's first access.",
    ),
    metric(
        "round_us",
        "us",
        "Modelled time of a request, its return, and what the application does beside them.",
    ),
    metric("tlb_misses_per_round", "count", "Misses of the TLB for data in all of that."),
    metric("tlb_misses_per_step", "count", "Misses of the TLB in one step, of data and of instructions."),
    metric("requests_per_s", "1/s", "Requests answered, a second of modelled time."),
    metric("tlb_lookups", "count", "Look-ups in TLBs for data."),
    metric("tlb_hits", "count", "Look-ups in TLBs for data that found an entry, in either level."),
    metric(
        "tlb_second_level_hits",
        "count",
        "Look-ups in TLBs for data that found an entry in the second level.",
    ),
    metric("tlb_misses", "count", "Look-ups in TLBs for data that found no entry."),
    metric("walks", "count", "Walks of page tables by hardware."),
    metric("accesses", "count", "Accesses to memory, each of a cache line."),
    metric("page_invalidations", "count", "Invalidations of one page that a CPU executed."),
    metric("ipis_sent", "count", "Interprocessor interrupts sent, one for each CPU."),
    metric("interrupts", "count", "Interrupts taken."),
    metric("bytes_copied_by_hardware", "bytes", "Bytes that copies by CPUs moved."),
    metric("context_switches", "count", "Switches of contexts, the idle ones among them."),
    metric(
        "stale_uses_in_window",
        "count",
        "Uses of translations that a flush under way was about to remove: no errors.",
    ),
    metric("stale_uses", "count", "Uses of stale translations: errors."),
    metric(
        "fetch_tlb_lookups",
        "count",
        "Look-ups in TLBs for instructions, where a machine describes them.",
    ),
    metric("fetch_tlb_hits", "count", "Look-ups in TLBs for instructions that found an entry."),
    metric("fetch_tlb_misses", "count", "Look-ups in TLBs for instructions that found none."),
    metric("icache_lookups", "count", "Look-ups in instruction caches, where a machine describes them."),
    metric("icache_hits", "count", "Look-ups in instruction caches that found the line."),
    metric("icache_misses", "count", "Look-ups in instruction caches that did not find the line."),
    metric("cycles.total", "cycles", "Cycles of all CPUs over the measured part: what all causes sum to."),
    metric("payload_ok", "0 or 1", "Every byte arrived as it was sent."),
];

/// All metrics, by name: those of every run, and those of workloads.
pub fn common_dictionary(of_workloads: Vec<Metric>) -> Vec<Entry> {
    let entry = |metric: &str, unit: &str, about: &str| Entry {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        about: about.to_owned(),
    };
    let listed = COMMON.iter().chain(&of_workloads).map(|m| entry(m.name, m.unit, m.about));
    let counted = pageferry_kernel::metrics().map(|c| entry(c.name(), c.unit(), c.about()));
    let spent = Cause::ALL.iter().map(|c| entry(&format!("cycles.{}", c.name()), "cycles", c.about()));
    let mut all: Vec<Entry> = listed.chain(counted).chain(spent).collect();
    all.sort_by(|a, b| a.metric.cmp(&b.metric));
    all.dedup_by(|a, b| a.metric == b.metric);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_leaves_what_it_lists() {
        const OWN: [Metric; 2] = [
            metric("fork_us", "us", "Of a fork."),
            metric("late_us", "us", "Of one that is late.").of_some_runs(),
        ];
        let told = |names: &[&str]| {
            check_results(&OWN, &names.iter().map(|name| ((*name).to_owned(), 1.0)).collect())
        };
        assert_eq!(told(&["fork_us", "elapsed_us"]), Ok(()));
        assert_eq!(told(&["fork_us", "late_us"]), Ok(()));
        let said = told(&["fork_u", "fork_us"]).expect_err("not listed");
        assert!(said.contains("`fork_u`") && said.ends_with("did you mean `fork_us`?"), "{said}");
        let said = told(&["elapsed_us"]).expect_err("never left");
        assert!(said.starts_with("`metrics()` lists `fork_us`"), "{said}");
    }
}
