//! What no machine could be, and what the numbers of a machine file may be.

use super::{ArchName, MachineConfig, Number, WritePolicy};
use crate::cache::aliases;
use pageferry_hal::{CpuSet, PAGE_SIZE};
use pageferry_sourced::{Constant, Fault, Ranges, SourceKind, nearest, range};

impl MachineConfig {
    /// Refuses what no machine could be.
    ///
    /// # Errors
    /// The first offending key, and what is expected there.
    pub fn validate(&self) -> Result<(), Fault> {
        if self.name.is_empty() || self.name.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
            return fault("name", "expected letters, digits and dashes");
        }
        RANGES.config(self)?;
        self.validate_cpu()?;
        self.validate_tlb()?;
        self.validate_caches()?;
        self.validate_colours()?;
        self.validate_fetch()?;
        self.validate_memory()?;
        self.validate_mmu()?;
        self.validate_nic()?;
        self.validate_sources(&self.constants())
    }

    fn validate_cpu(&self) -> Result<(), Fault> {
        if self.cpus() > CpuSet::MAX_CPUS {
            let cpus = self.cpus();
            let most = CpuSet::MAX_CPUS;
            return fault("cpu.threads_per_package", format!("{cpus} CPUs in all, expected at most {most}"));
        }
        Ok(())
    }

    fn validate_tlb(&self) -> Result<(), Fault> {
        let data = &self.tlb.data;
        tlb_geometry("tlb.data", &data.entries, &data.ways)?;
        if let (Some(entries), true) = (&data.gigabyte_entries, self.arch != ArchName::Amd64) {
            let (entries, arch) = (entries.value, self.arch);
            let problem = format!("{entries}, expected none: {arch:?} has no pages of 1 GB");
            return fault("tlb.data.gigabyte_entries", problem);
        }
        match &self.tlb.second {
            Some(second) => tlb_geometry("tlb.second", &second.entries, &second.ways),
            None => Ok(()),
        }
    }

    fn validate_caches(&self) -> Result<(), Fault> {
        if self.cache.is_empty() || self.cache.len() > 4 {
            return fault("cache", format!("{} levels, expected 1 to 4", self.cache.len()));
        }
        for (i, level) in self.cache.iter().enumerate() {
            let key = |field: &str| format!("cache[{i}].{field}");
            if level.name.is_empty() || self.cache[..i].iter().any(|above| above.name == level.name) {
                return fault(key("name"), "expected a name that no other level has");
            }
            power_of_two(&key("line_bytes"), &level.line_bytes)?;
            if level.line_bytes.value != self.cache[0].line_bytes.value {
                let first = self.cache[0].line_bytes.value;
                return fault(key("line_bytes"), format!("expected {first}, as in the first level"));
            }
            let way_set_bytes = level.ways.value * level.line_bytes.value;
            let sets = level.size_bytes.value / way_set_bytes;
            if sets * way_set_bytes != level.size_bytes.value || !sets.is_power_of_two() {
                return fault(
                    key("size_bytes"),
                    format!("expected ways x line_bytes ({way_set_bytes}) times a power of two"),
                );
            }
            if level.exclusive.value && (i != 1 || self.cache[0].write_policy.value == WritePolicy::Through) {
                return fault(
                    key("exclusive"),
                    "expected false: only the second level, behind a write-back first one, can be exclusive",
                );
            }
            if i > 0
                && level.write_policy.value == WritePolicy::Through
                && self.cache[i - 1].write_policy.value == WritePolicy::Back
            {
                return fault(key("write_policy"), "expected \"back\", as the level above writes back");
            }
            if i > 0
                && let Some(index) = &level.virtual_index
                && index.value
            {
                return fault(key("virtual_index"), "expected false: only the first level can be indexed so");
            }
            if let (Some(cycles), true) = (&level.purge_line_cycles, i > 0 || self.colours() == 1) {
                let problem =
                    format!("{}, expected in a first level whose pages have colours only", cycles.value);
                return fault(key("purge_line_cycles"), problem);
            }
            let colours = if i == 0 { u64::from(self.colours()) } else { 1 };
            if self.lines_behind(sets, level.line_bytes.value) * colours > MAX_TAGS {
                return fault(key("size_bytes"), "too few sets for this much memory");
            }
        }
        Ok(())
    }

    /// What pages with colours ask of the rest of the machine.
    fn validate_colours(&self) -> Result<(), Fault> {
        const KEY: &str = "cache[0].virtual_index";
        let (colours, first) = (self.colours(), &self.cache[0]);
        if colours == 1 {
            return Ok(());
        }
        if colours > aliases::MAX_COLOURS {
            let most = aliases::MAX_COLOURS;
            return fault(KEY, format!("pages have {colours} colours; expected {most} at most"));
        }
        if self.cpus() > 1 {
            return fault(KEY, "expected false: a machine with several CPUs has no such cache here");
        }
        if first.write_policy.value == WritePolicy::Back && self.cache.len() > 1 {
            return fault(KEY, "expected a first level that writes through, or that is the only one");
        }
        if first.purge_line_cycles.is_none() {
            let problem =
                "missing: pages have colours, and what it costs to write back and drop a line is not said";
            return fault("cache[0].purge_line_cycles", problem);
        }
        Ok(())
    }

    /// Lines of memory that share one set.
    pub(super) fn lines_behind(&self, sets: u64, line_bytes: u64) -> u64 {
        self.memory.size_mb.value.saturating_mul(1 << 20) / line_bytes / sets
    }

    fn validate_memory(&self) -> Result<(), Fault> {
        // Without PAE i386 has 32-bit physical addresses; the Opteron has 40 bits.
        let max_mb = match self.arch {
            ArchName::I386 => 4096,
            // Page tables are those of a machine of 32 bits.
            ArchName::Sparc64 => 4096,
            ArchName::Amd64 => 1 << 20,
            // What the blocks or the area map that lead to memory.
            ArchName::PowerPc | ArchName::Sh4 => 512,
        };
        let size_mb = self.memory.size_mb.value;
        if size_mb > max_mb {
            let arch = self.arch;
            return fault(
                "memory.size_mb",
                format!("{size_mb} MiB, expected 1 to {max_mb}: {arch:?} addresses no more"),
            );
        }
        if let Some(io) = &self.io {
            power_of_two("io.frame_buffer_bytes", &io.frame_buffer_bytes)?;
            if !self.memory_bytes().is_multiple_of(io.frame_buffer_bytes.value) {
                let (bytes, mb) = (io.frame_buffer_bytes.value, size_mb);
                let problem =
                    format!("{bytes}, expected a divisor of the {mb} MiB of memory, behind which it lies");
                return fault("io.frame_buffer_bytes", problem);
            }
        }
        match (&self.memory.latency_cycles, &self.memory.latency_ns) {
            (Some(_), Some(_)) => {
                return fault("memory.latency_ns", "expected only one of latency_cycles and latency_ns");
            }
            (None, None) => return fault("memory", "expected latency_cycles or latency_ns"),
            _ => {}
        }
        self.validate_clocks()
    }

    /// What is counted by the clock of memory is not too much in cycles of the CPU's.
    fn validate_clocks(&self) -> Result<(), Fault> {
        let Some(clock) = &self.memory.clock_mhz else { return Ok(()) };
        let (m, ipi) = (&self.memory, &self.ipi);
        let counted =
            [&m.stream_load_cycles, &m.stream_store_cycles, &m.writeback_cycles, &m.transfer_cycles]
                .into_iter()
                .chain([&m.stream_transfer_cycles, &m.upgrade_cycles, &m.stream_upgrade_cycles])
                .chain([&ipi.deliver_same_package_cycles, &ipi.deliver_other_package_cycles])
                .chain(m.latency_cycles.iter().chain(&m.row_change_cycles));
        let most = counted.map(|cycles| self.outside_cycles(cycles)).max().unwrap_or(0);
        if most > MAX_COST as u64 {
            let (counted, cpu) = (clock.value, self.cpu.clock_mhz.value);
            let problem = format!(
                "{counted}, expected more: what is counted by it takes up to {most} cycles of a CPU of {cpu} MHz, and \
                 may take {MAX_COST}"
            );
            return fault("memory.clock_mhz", problem);
        }
        Ok(())
    }

    /// What is read somewhere names a document of the bibliography; what is reasoned need not.
    fn validate_sources(&self, constants: &[Constant]) -> Result<(), Fault> {
        for Constant { key, source, kind, .. } in constants {
            if matches!(kind, SourceKind::Calibrated | SourceKind::Assumed | SourceKind::Yours) {
                continue;
            }
            let cited = source.split([',', ':']).next().unwrap_or("").trim();
            if !self.sources.contains_key(cited) {
                return Err(Fault {
                    suggestion: nearest(cited, self.sources.keys().map(String::as_str)).map(str::to_owned),
                    problem: format!("source `{cited}` is not in [sources]"),
                    key: key.clone(),
                });
            }
        }
        Ok(())
    }
}

/// The tags of the model have 29 bits.
pub(super) const MAX_TAGS: u64 = 1 << 29;

/// The largest cost of one action: far above what any takes, and small enough for a run to come to its end with it.
const MAX_COST: i64 = 1_000_000;

/// What the numbers of a machine file may be. What they mean is said at the fields of [`MachineConfig`].
pub const RANGES: Ranges = Ranges(&[
    range("cpu.clock_mhz", 1, 100_000),
    range("cpu.packages", 1, CpuSet::MAX_CPUS as i64),
    range("cpu.threads_per_package", 1, CpuSet::MAX_CPUS as i64),
    range("cpu.cpi_milli", 1, 1_000_000),
    range("cpu.smt_slowdown_milli", 1000, 100_000),
    range("memory.clock_mhz", 1, 100_000),
    range("memory.latency_cycles", 1, MAX_COST),
    range("*_cycles", 0, MAX_COST),
    range("memory.latency_ns", 1, MAX_COST / 10),
    range("memory.size_mb", 1, 1 << 16),
    range("tlb.*.entries", 1, 1 << 16),
    range("tlb.*.ways", 0, 1 << 16),
    range("tlb.data.superpage_entries", 0, 1 << 16),
    range("tlb.data.gigabyte_entries", 0, 1 << 16),
    range("mmu.asid_bits", 1, 20),
    range("mmu.soft.reserved_entries", 0, 1 << 16),
    range("mmu.blocks.registers", 1, 16),
    range("mmu.blocks.instruction_registers", 1, 16),
    range("mmu.blocks.*_bytes", PAGE_SIZE as i64, 1 << 32),
    range("mmu.area.len_bytes", PAGE_SIZE as i64, 1 << 32),
    // Of 32 bits: no machine with wider addresses has areas.
    range("mmu.area.*", 0, (1 << 32) - 1),
    // The model keeps the order of use of a set in one word.
    range("*cache.ways", 1, 16),
    range("*cache.size_bytes", 1, 1 << 30),
    range("*cache.line_bytes", 8, 4096),
    range("io.register_pages", 1, 1 << 12),
    range("io.frame_buffer_bytes", 1 << 17, 1 << 26),
    range("disk.size_mb", 1, 1 << 22),
    range("disk.access_us", 0, 10_000_000),
    range("disk.bandwidth_mb_s", 1, 100_000),
    range("audio.bytes_per_s", 1000, 100_000_000_000),
    range("audio.card_pages", 1, 1024),
    range("nic.link_mbit_s", 1, 1_000_000),
    // What every link has to carry (RFC 791), and jumbo frames.
    range("nic.mtu_bytes", 68, 9216),
    range("nic.*_slots", 2, 4096),
    range("nic.transmit_fragments", 1, 256),
    range("nic.interrupt_gap_ns", 0, 1_000_000_000),
    range("nic.dma_latency_ns", 0, 1_000_000),
    range("nic.dma_mb_s", 1, 1_000_000),
    range("nic.register_*_ns", 0, 1_000_000),
]);

pub(super) fn fault<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { key: key.into(), problem: problem.into(), suggestion: None })
}

pub(super) fn power_of_two(key: &str, number: &Number) -> Result<(), Fault> {
    if number.value.is_power_of_two() {
        return Ok(());
    }
    fault(key, format!("{}, expected a power of two", number.value))
}

pub(super) fn tlb_geometry(table: &str, entries: &Number, ways: &Number) -> Result<(), Fault> {
    let ways_key = format!("{table}.ways");
    if ways.value == 0 {
        return Ok(());
    }
    if ways.value > entries.value {
        return fault(ways_key, format!("{}, expected 0 to {}", ways.value, entries.value));
    }
    if !entries.value.is_multiple_of(ways.value) || !(entries.value / ways.value).is_power_of_two() {
        let entries = entries.value;
        return fault(
            ways_key,
            format!("{}, expected {entries} entries / ways to be a power of two", ways.value),
        );
    }
    Ok(())
}
