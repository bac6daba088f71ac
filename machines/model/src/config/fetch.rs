//! What instructions are fetched through: an instruction TLB, an instruction cache, either or none.

use super::cache::colours;
use super::number::Number;
use pageferry_sourced::Sourced;
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
        colours(self.virtual_index.as_ref(), &self.size_bytes, &self.ways)
    }
}
