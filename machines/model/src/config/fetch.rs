//! What instructions are fetched through: an instruction TLB, an instruction cache, either or none.

use super::validate::{MAX_TAGS, fault, power_of_two, tlb_geometry};
use super::{MachineConfig, Number};
use pageferry_sourced::{Fault, Sourced};
use serde::{Deserialize, Serialize};

/// A TLB for instructions. Looking into it costs nothing; a miss is filled as one of the TLB for data is. Without one,
/// fetches look into no TLB.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstructionTlbConfig {
    /// Entries, for pages of every size.
    pub entries: Number,
    /// Associativity; 0 means fully associative.
    pub ways: Number,
    /// A miss that hits in the TLB for data, where that has all translations and this one copies of a few; software
    /// then loads that one only. Absent where the two know nothing of each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_hit_cycles: Option<Number>,
}

/// A cache for instructions, beside the first level for data; the siblings of a package share it. A hit costs nothing;
/// a miss costs what a dependent load costs in the second level, and what lies behind that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstructionCacheConfig {
    /// Capacity.
    pub size_bytes: Number,
    /// Associativity.
    pub ways: Number,
    /// Bytes in a line; as in the caches for data.
    pub line_bytes: Number,
    /// Indexed by virtual addresses: a line is in it once for each colour that it is fetched by. By physical ones if
    /// this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_index: Option<Sourced<bool>>,
}

impl InstructionCacheConfig {
    /// Colours of pages in it: pages of a way, if it is indexed by virtual addresses; else 1.
    pub(crate) fn colours(&self) -> u32 {
        super::colours(self.virtual_index.as_ref(), &self.size_bytes, &self.ways)
    }
}

impl MachineConfig {
    /// True when this file describes what instructions are fetched through.
    pub fn fetches(&self) -> bool {
        self.tlb.instruction.is_some() || self.icache.is_some()
    }

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
        if self.lines_behind(sets, line_bytes) * u64::from(cache.colours()) > MAX_TAGS {
            return fault("icache.size_bytes", "too few sets for this much memory");
        }
        Ok(())
    }
}
