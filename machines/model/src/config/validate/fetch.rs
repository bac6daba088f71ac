//! What nothing that instructions are fetched through could be.

use super::checks::{fault, power_of_two, tags_suffice, tlb_geometry};
use crate::config::fetch::InstructionCacheConfig;
use crate::config::machine::MachineConfig;
use pageferry_sourced::Fault;

impl MachineConfig {
    pub(super) fn validate_fetch(&self) -> Result<(), Fault> {
        if let Some(tlb) = &self.tlb.instruction {
            tlb_geometry("tlb.instruction", &tlb.entries, &tlb.ways)?;
            if let (Some(cycles), None) = (&tlb.data_hit_cycles, &self.mmu.soft) {
                return fault(
                    "tlb.instruction.data_hit_cycles",
                    format!("{}, expected none: hardware fills either TLB by itself", cycles.value),
                );
            }
        }
        self.icache.as_ref().map_or(Ok(()), |cache| self.validate_icache(cache))
    }

    fn validate_icache(&self, cache: &InstructionCacheConfig) -> Result<(), Fault> {
        let (ways, line_bytes) = (cache.ways.value, cache.line_bytes.value);
        power_of_two("icache.line_bytes", &cache.line_bytes)?;
        let data = self.cache[0].line_bytes.value;
        if line_bytes != data {
            return fault(
                "icache.line_bytes",
                format!("{line_bytes}, expected {data}, as in the first level"),
            );
        }
        let sets = cache.size_bytes.value / (ways * line_bytes);
        if sets * ways * line_bytes != cache.size_bytes.value || !sets.is_power_of_two() {
            let problem = format!("expected ways x line_bytes ({}) times a power of two", ways * line_bytes);
            return fault("icache.size_bytes", problem);
        }
        if !tags_suffice(self, sets, line_bytes, cache.colours()) {
            return fault("icache.size_bytes", "too few sets for this much memory");
        }
        Ok(())
    }
}
