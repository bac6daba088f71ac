//! What no machine could be.

mod checks;
mod fetch;
mod mmu;
mod nic;

use super::cache::WritePolicy;
use super::machine::{ArchName, MachineConfig};
use super::ranges::{MAX_COST, RANGES};
use crate::cache::aliases;
use checks::{fault, power_of_two, tags_suffice, tlb_geometry};
use pageferry_hal::CpuSet;
use pageferry_sourced::{Constant, Fault, nearest};

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
        self.validate_complex()?;
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
            let max = CpuSet::MAX_CPUS;
            return fault("cpu.threads_per_package", format!("{cpus} CPUs in all, expected at most {max}"));
        }
        Ok(())
    }

    fn validate_tlb(&self) -> Result<(), Fault> {
        let data = &self.tlb.data;
        tlb_geometry("tlb.data", &data.entries, &data.ways)?;
        let has_huge_pages = matches!(self.arch, ArchName::Amd64 | ArchName::Arm64);
        if let (Some(entries), false) = (&data.gigabyte_entries, has_huge_pages) {
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
            let colours = if i == 0 { self.colours() } else { 1 };
            if !tags_suffice(self, sets, level.line_bytes.value, colours) {
                return fault(key("size_bytes"), "too few sets for this much memory");
            }
        }
        Ok(())
    }

    /// What a shared last level asks of the rest of the machine.
    fn validate_complex(&self) -> Result<(), Fault> {
        const KEY: &str = "complex.packages";
        if self.complex.is_none() {
            return Ok(());
        }
        let (last, own) = self.cache.split_last().expect("there are caches");
        if !own.iter().any(|level| level.write_policy.value == WritePolicy::Back) {
            return fault(KEY, "expected none: no cache of a package's own holds what it has written");
        }
        if last.exclusive.value {
            return fault(KEY, "expected none: the last cache is exclusive");
        }
        if self.icache.is_some() {
            return fault(KEY, "expected none: instructions are fetched past no cache that is shared");
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
            let max = aliases::MAX_COLOURS;
            return fault(KEY, format!("pages have {colours} colours; expected {max} at most"));
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

    fn validate_memory(&self) -> Result<(), Fault> {
        // Without PAE i386 has 32-bit physical addresses; the Opteron has 40 bits.
        let max_mb = match self.arch {
            ArchName::I386 => 4096,
            // Page tables are those of a machine of 32 bits.
            ArchName::Sparc64 | ArchName::Alpha | ArchName::Ia64 => 4096,
            ArchName::Amd64 | ArchName::Arm64 => 1 << 20,
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
        self.validate_streams()?;
        self.validate_clocks()
    }

    /// What streams cost is said, and once.
    fn validate_streams(&self) -> Result<(), Fault> {
        let m = &self.memory;
        let told = [
            ("memory.stream_load_cycles", &m.stream_load_cycles),
            ("memory.stream_store_cycles", &m.stream_store_cycles),
            ("memory.writeback_cycles", &m.writeback_cycles),
        ];
        let Some(dram) = &m.dram else {
            return match told.iter().find(|(_, cycles)| cycles.is_none()) {
                Some((key, _)) => fault(*key, "missing: expected this, or the parts of it in [memory.dram]"),
                None => Ok(()),
            };
        };
        if let Some((key, _)) = told.iter().find(|(_, cycles)| cycles.is_some()) {
            return fault(*key, "expected none: [memory.dram] has the parts of it");
        }
        if !self.cache.iter().any(|level| level.write_policy.value == WritePolicy::Back) {
            return fault("memory.dram", "expected none: no cache holds what it has written");
        }
        let line_bytes = self.cache[0].line_bytes.value;
        if dram.beat_bytes.value > line_bytes {
            let problem =
                format!("{}, expected 1 to {line_bytes}, a line of the caches", dram.beat_bytes.value);
            return fault("memory.dram.beat_bytes", problem);
        }
        if self.dram_line_cycles(dram) == 0 {
            return fault("memory.dram.beat_clocks", "0, expected more: no line comes in no time");
        }
        let longest = self.dram_line_cycles(dram) + self.dram_row_cycles(dram);
        if longest > MAX_COST as u64 {
            let problem = format!("a line of another row takes {longest} cycles, and may take {MAX_COST}");
            return fault("memory.dram", problem);
        }
        Ok(())
    }

    /// What is counted by the clock of memory is not too much in cycles of the CPU's.
    fn validate_clocks(&self) -> Result<(), Fault> {
        let Some(clock) = &self.memory.clock_mhz else { return Ok(()) };
        let (m, ipi) = (&self.memory, &self.ipi);
        let told = [&m.latency_cycles, &m.stream_load_cycles, &m.stream_store_cycles, &m.writeback_cycles];
        let counted = (told.into_iter().flatten())
            .chain([&m.transfer_cycles, &m.stream_transfer_cycles])
            .chain([&m.upgrade_cycles, &m.stream_upgrade_cycles])
            .chain([&ipi.deliver_same_package_cycles, &ipi.deliver_other_package_cycles]);
        let max = counted.map(|cycles| self.outside_cycles(cycles)).max().unwrap_or(0);
        if max > MAX_COST as u64 {
            let (counted, cpu) = (clock.value, self.cpu.clock_mhz.value);
            let problem = format!(
                "{counted}, expected more: what is counted by it takes up to {max} cycles of a CPU of {cpu} MHz, and \
                 may take {MAX_COST}"
            );
            return fault("memory.clock_mhz", problem);
        }
        Ok(())
    }

    /// What is read somewhere names a document of the bibliography; what is reasoned need not.
    fn validate_sources(&self, constants: &[Constant]) -> Result<(), Fault> {
        for Constant { key, source, kind, .. } in constants {
            if !kind.cites() {
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
