//! What a measured part was, in the words of a record: counters, cycles by cause, counts of the hardware; and its laws.

use crate::record::{CpuCycles, Cycles, Law, LockCounts};
use pageferry_ephemeral::{EphemeralCounter, MappingUser};
use pageferry_hal::{Cause, Metric};
use pageferry_kernel::KernelCounter;
use pageferry_model::Snapshot;
use pageferry_pmap::PmapCounter;
use std::collections::BTreeMap;

/// Results that every workload has.
pub(crate) fn derive(counters: &BTreeMap<String, u64>, results: &mut BTreeMap<String, f64>) {
    let count = |counter: Metric| counters.get(counter.name()).copied().unwrap_or(0) as f64;
    let (hits, misses) =
        (count(EphemeralCounter::EphemeralHits.metric()), count(EphemeralCounter::EphemeralMisses.metric()));
    if hits + misses > 0.0 {
        results.insert("ephemeral_hit_rate_percent".into(), 100.0 * hits / (hits + misses));
    }
    let invalidations = count(PmapCounter::TlbInvalidationsLocal.metric())
        + count(PmapCounter::TlbInvalidationsRemoteIssued.metric());
    results.insert("tlb_invalidations".into(), invalidations);
    let ephemeral = MappingUser::ALL.into_iter().filter(|user| user.is_ephemeral());
    let invalidations = ephemeral.map(|user| count(user.invalidations().metric())).sum();
    results.insert("ephemeral_invalidations".into(), invalidations);
}

/// The kernel's counters, and misses of the TLB.
pub fn counters(measured: &Snapshot) -> BTreeMap<String, u64> {
    let mut counters: BTreeMap<String, u64> =
        pageferry_kernel::metrics().map(|c| (c.name().to_owned(), measured.counter(c))).collect();
    counters.insert("tlb_misses".into(), measured.hardware.tlb_misses);
    counters
}

/// The stacks of causes.
pub fn cycles(measured: &Snapshot) -> Cycles {
    let mut stack = Cycles { total: measured.clocks.iter().sum(), ..Cycles::default() };
    for cause in Cause::ALL {
        let sum = measured.cycles.iter().map(|cpu| cpu[cause.index()]).sum();
        stack.by_cause.insert(cause.name().to_owned(), sum);
    }
    for (cpu, (clock, causes)) in measured.clocks.iter().zip(&measured.cycles).enumerate() {
        let spent = Cause::ALL.iter().filter(|c| causes[c.index()] > 0);
        let by_cause = spent.map(|c| (c.name().to_owned(), causes[c.index()])).collect();
        stack.per_cpu.push(CpuCycles { cpu, total: *clock, by_cause });
    }
    stack
}

pub(crate) fn hardware(measured: &Snapshot) -> BTreeMap<String, u64> {
    let h = &measured.hardware;
    // Only of machines that describe what instructions are fetched through.
    let fetches = [
        ("fetch_tlb_lookups", h.fetch_lookups),
        ("fetch_tlb_hits", h.fetch_hits),
        ("fetch_tlb_misses", h.fetch_misses),
        ("icache_lookups", h.icache_lookups),
        ("icache_hits", h.icache_hits),
        ("icache_misses", h.icache_misses),
    ];
    let fetches = fetches.into_iter().filter(|_| h.fetch_lookups + h.icache_lookups > 0);
    [
        ("tlb_lookups", h.tlb_lookups),
        ("tlb_hits", h.tlb_hits),
        ("tlb_second_level_hits", h.tlb_second_level_hits),
        ("tlb_misses", h.tlb_misses),
        ("walks", h.walks),
        ("accesses", h.accesses),
        ("page_invalidations", h.page_invalidations),
        ("ipis_sent", h.ipis_sent),
        ("interrupts", h.interrupts),
        ("bytes_copied_by_hardware", h.bytes_copied),
        ("context_switches", h.switches),
        ("stale_uses_in_window", h.stale_uses_in_window),
        ("stale_uses", h.stale_uses),
    ]
    .into_iter()
    .chain(fetches)
    .map(|(name, count)| (name.to_owned(), count))
    .collect()
}

pub(crate) fn locks(measured: &Snapshot) -> BTreeMap<String, LockCounts> {
    let mut by_class = BTreeMap::<String, LockCounts>::new();
    for used in measured.locks.iter().filter(|used| used.acquisitions > 0) {
        // Of two classes with one name, as of two interrupt levels, the sum.
        let counts = by_class.entry(used.class.name().to_owned()).or_default();
        counts.acquisitions += used.acquisitions;
        counts.contended += used.contended;
        counts.wait_cycles += used.wait_cycles;
    }
    by_class
}

/// The laws of the measured part.
pub(crate) fn conservation(measured: &Snapshot) -> Vec<Law> {
    let h = &measured.hardware;
    let lookups = (h.tlb_hits + h.tlb_misses == h.tlb_lookups)
        .then_some(())
        .ok_or_else(|| format!("{} + {} is not {}", h.tlb_hits, h.tlb_misses, h.tlb_lookups));
    let mapped = [
        EphemeralCounter::EphemeralHits,
        EphemeralCounter::EphemeralMisses,
        EphemeralCounter::EphemeralDirect,
        EphemeralCounter::RunPages,
    ];
    let mapped: u64 = mapped.into_iter().map(|counter| measured.counter(counter)).sum();
    let by_users: u64 = MappingUser::ALL.into_iter().map(|user| measured.counter(user.mappings())).sum();
    let users = (mapped == by_users)
        .then_some(())
        .ok_or_else(|| format!("{mapped} pages mapped, {by_users} by users that are known"));
    // Where the measured part begins and ends, each other CPU may have counted what it is about to send to all.
    let cpus = measured.clocks.len() as u64;
    let under_way = (cpus - 1) * (cpus - 1);
    let (sent, ipis) = (
        measured.counter(PmapCounter::ShootdownIpis) + measured.counter(KernelCounter::ReschedIpis),
        h.ipis_sent,
    );
    vec![
        Law::new("the causes of measured cycles sum to the measured time", measured.check()),
        Law::new("TLB hits and misses sum to look-ups", lookups),
        Law::new("every ephemeral mapping and page of a run was made for a user", users),
        Law::new(
            "interprocessor interrupts sent are those that the kernel counted",
            (sent.abs_diff(ipis) <= under_way)
                .then_some(())
                .ok_or_else(|| format!("{ipis} sent, {sent} counted")),
        ),
    ]
}
