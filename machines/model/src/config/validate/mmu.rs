//! What nothing that translates addresses could be.

use super::checks::{fault, power_of_two};
use crate::config::machine::{ArchName, MachineConfig};
use crate::config::mmu::{ReplaceName, WalkerName};
use pageferry_sourced::Fault;

/// Bits of a tag, in the root register.
const fn tag_bits(arch: ArchName) -> Option<u64> {
    match arch {
        ArchName::Amd64 => Some(12),
        ArchName::Arm64 => Some(16),
        _ => None,
    }
}

impl MachineConfig {
    pub(super) fn validate_mmu(&self) -> Result<(), Fault> {
        let mmu = &self.mmu;
        match (mmu.walker, &mmu.soft) {
            (None, None) => {
                return fault("mmu", "nothing fills the TLB, expected `walker` or a table [mmu.soft]");
            }
            (Some(_), Some(_)) => {
                return fault(
                    "mmu.soft",
                    "the TLB is filled twice, expected only one of `walker` and [mmu.soft]",
                );
            }
            _ => {}
        }
        let walks = mmu.walker == Some(WalkerName::Radix);
        let fits = match self.arch {
            ArchName::I386 | ArchName::Amd64 | ArchName::Arm64 => walks,
            ArchName::PowerPc => !walks,
            ArchName::Sh4 | ArchName::Sparc64 | ArchName::Alpha | ArchName::Ia64 => mmu.soft.is_some(),
        };
        if !fits {
            let (key, arch) = (if mmu.soft.is_some() { "mmu.soft" } else { "mmu.walker" }, self.arch);
            return fault(key, format!("expected something else: no {arch:?} fills its TLB so"));
        }
        match (&mmu.refill, walks) {
            (Some(_), true) => return fault("mmu.refill", "expected none: hardware walks page tables"),
            (None, false) => return fault("mmu", "expected a table [mmu.refill]: the kernel fills the TLB"),
            _ => {}
        }
        self.validate_tags(walks)?;
        if mmu.walker == Some(WalkerName::Hash) && mmu.asid_bits.is_none() {
            return fault("mmu", "expected asid_bits: a hash table holds all address spaces");
        }
        if let Some(soft) = &mmu.soft {
            let (entries, reserved) = (&self.tlb.data.entries, &soft.reserved_entries);
            if reserved.value >= entries.value {
                let (entries, reserved) = (entries.value, reserved.value);
                return fault(
                    "mmu.soft.reserved_entries",
                    format!("{reserved}, expected fewer than the {entries} entries that there are"),
                );
            }
            // A copy needs both of its translations at once.
            let room = match self.tlb.data.ways.value {
                0 => entries.value - reserved.value,
                ways => ways,
            };
            if room < 2 {
                return fault(
                    "tlb.data.entries",
                    "expected room for two translations of any two pages: a copy needs both at once",
                );
            }
            if reserved.value > 0 && self.tlb.data.ways.value != 0 {
                return fault("mmu.soft.reserved_entries", "expected 0: the TLB is not fully associative");
            }
            if soft.replace.value == ReplaceName::Counter && self.tlb.data.ways.value != 0 {
                return fault(
                    "mmu.soft.replace",
                    "expected \"lru\": a counter names an entry of the whole TLB",
                );
            }
        }
        self.validate_invalidation(walks)?;
        if self.tlb.second.is_some() && !walks {
            return fault("tlb.second", "expected none: only page tables are walked behind two levels");
        }
        if let Some(blocks) = &mmu.blocks {
            power_of_two("mmu.blocks.min_bytes", &blocks.min_bytes)?;
            power_of_two("mmu.blocks.max_bytes", &blocks.max_bytes)?;
            let (min, max) = (blocks.min_bytes.value, blocks.max_bytes.value);
            if max < min {
                return fault("mmu.blocks.max_bytes", format!("{max}, expected {min} to {}", 1u64 << 32));
            }
            let layout = self.layout();
            if layout.region != pageferry_hal::Region::Blocks {
                return fault("mmu.blocks", format!("expected none: {:?} has no such registers", self.arch));
            }
            let room = layout.paged_base.map_or(u64::MAX, |paged| paged.0 - layout.kernel_base.0);
            if self.memory_bytes().next_multiple_of(min) > room {
                return fault(
                    "mmu.blocks.min_bytes",
                    format!(
                        "blocks of {min:#x} bytes over all of memory, expected no more than {room:#x} bytes: pages \
                         begin there"
                    ),
                );
            }
        }
        self.validate_areas()
    }

    fn validate_tags(&self, walks: bool) -> Result<(), Fault> {
        let mmu = &self.mmu;
        let tagged = mmu.asid_bits.as_ref().filter(|_| walks);
        if let Some(bits) = tagged {
            let Some(max) = tag_bits(self.arch) else {
                let problem = format!("expected none: the TLB of an {:?} has no tags", self.arch);
                return fault("mmu.asid_bits", format!("{}, {problem}", bits.value));
            };
            if bits.value > max {
                let problem = format!("expected 1 to {max}: the root register has no more for a tag");
                return fault("mmu.asid_bits", format!("{}, {problem}", bits.value));
            }
        }
        match (&mmu.invalidate_other_cycles, tagged) {
            (None, Some(_)) => fault("mmu", "expected invalidate_other_cycles: entries have tags"),
            (Some(cycles), None) => {
                let problem = "expected none: no hardware here walks page tables and tags its entries";
                fault("mmu.invalidate_other_cycles", format!("{}, {problem}", cycles.value))
            }
            _ => Ok(()),
        }
    }

    fn validate_invalidation(&self, walks: bool) -> Result<(), Fault> {
        let mmu = &self.mmu;
        if let (Some(cycles), false) = (&mmu.hash_probe_cycles, mmu.walker == Some(WalkerName::Hash)) {
            let problem = "expected none: hardware looks into no hash table here";
            return fault("mmu.hash_probe_cycles", format!("{}, {problem}", cycles.value));
        }
        if mmu.soft.as_ref().is_some_and(|soft| soft.hashes.is_some()) && self.arch != ArchName::PowerPc {
            return fault("mmu.soft.hashes", format!("expected none: no {:?} hashes", self.arch));
        }
        if let (Some(_), true) = (&mmu.invalidates, walks) {
            let problem = format!("expected none: every {:?} drops one page of its own", self.arch);
            return fault("mmu.invalidates", problem);
        }
        match (&mmu.broadcast_page_cycles, &mmu.broadcast_sync_cycles) {
            (Some(_), None) => fault("mmu", "expected broadcast_sync_cycles beside broadcast_page_cycles"),
            (None, Some(_)) => fault("mmu", "expected broadcast_page_cycles beside broadcast_sync_cycles"),
            (Some(_), Some(_)) if mmu.walker.is_none() => {
                fault("mmu.broadcast_page_cycles", "expected none: each CPU loads its own TLB")
            }
            _ => Ok(()),
        }
    }

    fn validate_areas(&self) -> Result<(), Fault> {
        let areas = &self.mmu.area;
        for (i, area) in areas.iter().enumerate() {
            let key = |field: &str| format!("mmu.area[{i}].{field}");
            power_of_two(&key("len_bytes"), &area.len_bytes)?;
            for (field, address) in [("va", &area.va), ("pa", &area.pa)] {
                if !address.value.is_multiple_of(area.len_bytes.value) {
                    let (value, len) = (address.value, area.len_bytes.value);
                    return fault(
                        key(field),
                        format!("{value:#x}, expected a multiple of its size, {len:#x}"),
                    );
                }
            }
        }
        let blocks = self.fixed_blocks();
        for (i, block) in blocks.iter().enumerate() {
            if let Some(other) = blocks[..i].iter().position(|b| b.overlaps(block)) {
                return fault(format!("mmu.area[{i}].va"), format!("it overlaps mmu.area[{other}]"));
            }
        }
        let layout = self.layout();
        if layout.region != pageferry_hal::Region::Unmapped {
            return match areas.len() {
                0 => Ok(()),
                _ => fault(
                    "mmu.area",
                    format!("expected none: on {:?} all addresses are translated", self.arch),
                ),
            };
        }
        let paged = layout.paged_base.map_or(0..0, |base| base.0..layout.kernel_end.0);
        for (i, area) in areas.iter().enumerate() {
            let (start, end) = (area.va.value, area.va.value.saturating_add(area.len_bytes.value));
            if start < layout.user_end.0 || (start < paged.end && end > paged.start) {
                let (user, kernel) = (layout.user_end.0, paged.start);
                return fault(
                    format!("mmu.area[{i}].va"),
                    format!(
                        "{start:#x}, expected addresses of no pages: they end below {user:#x}, and begin again at \
                         {kernel:#x}"
                    ),
                );
            }
        }
        // From the base on, area by area: each has to go on where the one before it ends.
        let (mut at, end) = (layout.kernel_base, layout.kernel_base + self.memory_bytes() as usize);
        while at < end {
            let here =
                blocks.iter().find(|b| b.contains(at) && b.translate(at).0 == at.0 - layout.kernel_base.0);
            let Some(block) = here else {
                let base = layout.kernel_base.0;
                return fault(
                    "mmu.area",
                    format!(
                        "nothing maps {:#x}, expected areas that map all of memory from {base:#x} on",
                        at.0
                    ),
                );
            };
            at = block.va + block.len_bytes() as usize;
        }
        Ok(())
    }
}
