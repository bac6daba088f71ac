//! Accounts: what every CPU spent its cycles on, and what was counted.

use pageferry_hal::{Cause, LockClass, MemoryUse, Metric};

/// How often TLBs are sampled: cycles of each CPU's clock.
pub const SAMPLE_CYCLES: u64 = 10_000;

/// Ticks by which a kernel finds out how much of the time a CPU is idle: some 1,000 a second, each so many periods of
/// an interval timer of [`TICK_TIMER_HZ`] (Linux 2.6 on i386: `LATCH` and `CLOCK_TICK_RATE`, with `HZ` = 1000).
pub const TICK_PERIODS: u64 = 1_193;
/// The interval timer's frequency.
pub const TICK_TIMER_HZ: u64 = 1_193_182;

/// Events by what their address is for: by the [position](MemoryUse::index) of that.
pub type UseCounts = [u64; MemoryUse::COUNT];

/// How locks of a class were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockUse {
    /// The class.
    pub class: LockClass,
    /// Locks of it that were made.
    pub made: u32,
    /// Acquisitions.
    pub acquisitions: u64,
    /// Of these, those that had to wait for another CPU.
    pub contended: u64,
    /// How long they did, all CPUs together, with the interrupts that were taken meanwhile.
    pub wait_cycles: u64,
}

impl LockUse {
    pub(crate) fn new(class: LockClass) -> LockUse {
        LockUse { class, made: 0, acquisitions: 0, contended: 0, wait_cycles: 0 }
    }

    fn since(&self, earlier: Option<&LockUse>) -> LockUse {
        let before = earlier.copied().unwrap_or(LockUse::new(self.class));
        LockUse {
            class: self.class,
            made: self.made - before.made,
            acquisitions: self.acquisitions - before.acquisitions,
            contended: self.contended - before.contended,
            wait_cycles: self.wait_cycles - before.wait_cycles,
        }
    }
}

/// Events that the modelled hardware counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hardware {
    /// Look-ups in data TLBs, one for each cache line accessed through an address.
    pub tlb_lookups: u64,
    /// Look-ups that found an entry, in either level.
    pub tlb_hits: u64,
    /// Of these, found only in the second level.
    pub tlb_second_level_hits: u64,
    /// Look-ups that had to walk the page tables.
    pub tlb_misses: u64,
    /// Look-ups in instruction TLBs, one for each page that a run of instructions enters.
    pub fetch_lookups: u64,
    /// Look-ups that found an entry: there, or in a TLB for data that has all translations.
    pub fetch_hits: u64,
    /// Look-ups that had to be filled.
    pub fetch_misses: u64,
    /// Misses of both TLBs, by what the missing address is for.
    pub misses_by_use: UseCounts,
    /// Those at kernel addresses that fetches had: the kernel's text.
    pub kernel_fetch_misses: u64,
    /// Entries of both TLBs that were in use when they were sampled, all samples together: on machines whose hardware
    /// walks no page tables, every [`SAMPLE_CYCLES`].
    pub sampled_entries: u64,
    /// Those of them that the kernel's addresses had.
    pub sampled_kernel_entries: u64,
    /// All of them, by what they map.
    pub sampled_by_use: UseCounts,
    /// Look-ups in instruction caches, one for each line of a run of instructions.
    pub icache_lookups: u64,
    /// Look-ups that found the line.
    pub icache_hits: u64,
    /// Look-ups that did not.
    pub icache_misses: u64,
    /// Page-table walks: misses, and stores that had to set a dirty bit.
    pub walks: u64,
    /// Memory accesses, counted in cache lines: data, page tables and kernel structures.
    pub accesses: u64,
    /// Of these, lines that copies and clears streamed through; the others are accesses that the next step waits for.
    pub lines_streamed: u64,
    /// Lines written back and dropped by software, held or not, since the cache has them by another colour.
    pub lines_purged: u64,
    /// Instructions charged.
    pub instructions: u64,
    /// Locked instructions: those that take and release locks, and those that paths count.
    pub locked_instructions: u64,
    /// Entries invalidated by instruction, one page at a time.
    pub page_invalidations: u64,
    /// Interprocessor interrupts sent.
    pub ipis_sent: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// Bytes moved by copies.
    pub bytes_copied: u64,
    /// Context switches.
    pub switches: u64,
    /// Ticks of the CPUs' clocks, one every [`TICK_PERIODS`] of each.
    pub ticks: u64,
    /// Those that found their CPU idle.
    pub idle_ticks: u64,
    /// Uses of stale translations inside declared windows.
    pub stale_uses_in_window: u64,
    /// Uses of stale translations outside any window: errors.
    pub stale_uses: u64,
}

/// What is at the kernel's addresses.
fn of_kernel(counts: &UseCounts) -> u64 {
    counts.iter().sum::<u64>() - counts[MemoryUse::Users.index()]
}

impl Hardware {
    /// Misses at kernel addresses, of the TLBs for data and for instructions.
    pub fn kernel_misses(&self) -> u64 {
        of_kernel(&self.misses_by_use)
    }

    fn since(&self, e: &Hardware) -> Hardware {
        Hardware {
            tlb_lookups: self.tlb_lookups - e.tlb_lookups,
            tlb_hits: self.tlb_hits - e.tlb_hits,
            tlb_second_level_hits: self.tlb_second_level_hits - e.tlb_second_level_hits,
            tlb_misses: self.tlb_misses - e.tlb_misses,
            fetch_lookups: self.fetch_lookups - e.fetch_lookups,
            fetch_hits: self.fetch_hits - e.fetch_hits,
            fetch_misses: self.fetch_misses - e.fetch_misses,
            kernel_fetch_misses: self.kernel_fetch_misses - e.kernel_fetch_misses,
            misses_by_use: since_by_use(&self.misses_by_use, &e.misses_by_use),
            sampled_by_use: since_by_use(&self.sampled_by_use, &e.sampled_by_use),
            sampled_entries: self.sampled_entries - e.sampled_entries,
            sampled_kernel_entries: self.sampled_kernel_entries - e.sampled_kernel_entries,
            icache_lookups: self.icache_lookups - e.icache_lookups,
            icache_hits: self.icache_hits - e.icache_hits,
            icache_misses: self.icache_misses - e.icache_misses,
            walks: self.walks - e.walks,
            accesses: self.accesses - e.accesses,
            lines_streamed: self.lines_streamed - e.lines_streamed,
            lines_purged: self.lines_purged - e.lines_purged,
            instructions: self.instructions - e.instructions,
            locked_instructions: self.locked_instructions - e.locked_instructions,
            page_invalidations: self.page_invalidations - e.page_invalidations,
            ipis_sent: self.ipis_sent - e.ipis_sent,
            interrupts: self.interrupts - e.interrupts,
            bytes_copied: self.bytes_copied - e.bytes_copied,
            switches: self.switches - e.switches,
            ticks: self.ticks - e.ticks,
            idle_ticks: self.idle_ticks - e.idle_ticks,
            stale_uses_in_window: self.stale_uses_in_window - e.stale_uses_in_window,
            stale_uses: self.stale_uses - e.stale_uses,
        }
    }
}

fn since_by_use(later: &UseCounts, earlier: &UseCounts) -> UseCounts {
    std::array::from_fn(|i| later[i] - earlier[i])
}

/// The accounts of a machine at one moment, or between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Cycles per CPU.
    pub clocks: Vec<u64>,
    /// Cycles per CPU and [`Cause`].
    pub cycles: Vec<[u64; Cause::COUNT]>,
    /// Events that the kernel counts, by the number of each [`Metric`], all CPUs together.
    pub counters: [u64; Metric::MAX],
    /// Of those that it counts by address, how many were at what: by counter, in the order of the first of each.
    pub counted_by_use: Vec<(Metric, UseCounts)>,
    /// Events that the hardware counted.
    pub hardware: Hardware,
    /// Spin locks, by class, in the order in which the first of each was made.
    pub locks: Vec<LockUse>,
}

impl Snapshot {
    /// What happened after `earlier`.
    ///
    /// # Panics
    /// When `earlier` is not an earlier moment of the same machine.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        assert_eq!(self.clocks.len(), earlier.clocks.len(), "snapshots of different machines");
        let sub = |a: &u64, b: &u64| a.checked_sub(*b).expect("the other snapshot is later");
        Snapshot {
            clocks: self.clocks.iter().zip(&earlier.clocks).map(|(a, b)| sub(a, b)).collect(),
            cycles: (self.cycles.iter().zip(&earlier.cycles))
                .map(|(a, b)| std::array::from_fn(|i| sub(&a[i], &b[i])))
                .collect(),
            counters: std::array::from_fn(|i| sub(&self.counters[i], &earlier.counters[i])),
            counted_by_use: (self.counted_by_use.iter())
                .map(|(counter, counts)| (*counter, since_by_use(counts, &earlier.at_uses(*counter))))
                .collect(),
            hardware: self.hardware.since(&earlier.hardware),
            locks: self.locks.iter().enumerate().map(|(i, used)| used.since(earlier.locks.get(i))).collect(),
        }
    }

    /// Cycles of all CPUs spent on `cause`.
    pub fn cause(&self, cause: Cause) -> u64 {
        self.cycles.iter().map(|c| c[cause.index()]).sum()
    }

    /// Events counted.
    pub fn counter(&self, counter: impl Into<Metric>) -> u64 {
        self.counters[counter.into().index()]
    }

    /// Events counted by address, by what that is for; zeros where they are counted without.
    pub fn at_uses(&self, counter: impl Into<Metric>) -> UseCounts {
        let counter = counter.into();
        let counted = self.counted_by_use.iter().find(|(other, _)| *other == counter);
        counted.map_or([0; MemoryUse::COUNT], |(_, counts)| *counts)
    }

    /// The laws that hold for every machine at every moment.
    ///
    /// # Errors
    /// The law that is broken, in words.
    pub fn check(&self) -> Result<(), String> {
        for (cpu, (clock, causes)) in self.clocks.iter().zip(&self.cycles).enumerate() {
            let sum: u64 = causes.iter().sum();
            if sum != *clock {
                return Err(format!("cpu{cpu}: causes sum to {sum} cycles, the clock shows {clock}"));
            }
        }
        let h = &self.hardware;
        for (what, hits, misses, lookups) in [
            ("TLB", h.tlb_hits, h.tlb_misses, h.tlb_lookups),
            ("instruction TLB", h.fetch_hits, h.fetch_misses, h.fetch_lookups),
            ("instruction cache", h.icache_hits, h.icache_misses, h.icache_lookups),
        ] {
            if hits + misses != lookups {
                return Err(format!("{what}: {hits} hits and {misses} misses are not {lookups} look-ups"));
            }
        }
        if h.tlb_second_level_hits > h.tlb_hits {
            return Err("TLB: more hits in the second level than hits".into());
        }
        self.check_uses()
    }

    /// What is counted by use is all that is counted.
    fn check_uses(&self) -> Result<(), String> {
        let h = &self.hardware;
        let of_all = |counts: &UseCounts| counts.iter().sum::<u64>();
        let (misses, entries) = (&h.misses_by_use, &h.sampled_by_use);
        let hardware = [
            ("misses of the TLBs", of_all(misses), h.tlb_misses + h.fetch_misses),
            ("entries in samples of the TLBs", of_all(entries), h.sampled_entries),
            ("entries of the kernel in samples", of_kernel(entries), h.sampled_kernel_entries),
        ];
        let counted = self
            .counted_by_use
            .iter()
            .map(|(counter, counts)| (counter.name(), of_all(counts), self.counter(*counter)));
        match hardware.into_iter().chain(counted).find(|(_, by_use, all)| by_use != all) {
            Some((what, by_use, all)) => Err(format!("{what}: {by_use} by what they are at, {all} in all")),
            None => Ok(()),
        }
    }
}
