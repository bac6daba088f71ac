//! Caches for data: `[[cache]]` of a machine file.

use super::number::Number;
use pageferry_hal::PAGE_SIZE;
use pageferry_sourced::Sourced;
use serde::{Deserialize, Serialize};

/// When a cache passes a store on to the next level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WritePolicy {
    /// At once; a store that misses takes no room in this cache.
    Through,
    /// When the line is evicted; a store that misses first fetches the line.
    Back,
}

/// One level of cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// `L1`, `L2` ...
    pub name: String,
    /// Capacity.
    pub size_bytes: Number,
    /// Associativity.
    pub ways: Number,
    /// Bytes in a line; the same at all levels of a machine.
    pub line_bytes: Number,
    /// Load to use, for an access that hits here.
    pub latency_cycles: Number,
    /// One line read by a copy, when it comes from here.
    pub stream_load_cycles: Number,
    /// One line written by a copy, when it is taken in here.
    pub stream_store_cycles: Number,
    /// When stores go on to the next level.
    pub write_policy: Sourced<WritePolicy>,
    /// True for a second level that holds only what the first evicted.
    pub exclusive: Sourced<bool>,
    /// True for a first level that is indexed by virtual addresses. Where a way of it is larger than a page, pages have
    /// colours ([`MachineConfig::colours`](super::MachineConfig::colours)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_index: Option<Sourced<bool>>,
    /// Where pages have colours: software writes back and drops one line, without what the write itself takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_line_cycles: Option<Number>,
}

/// Colours of pages in a cache: pages of a way, if it is indexed by virtual addresses; else 1.
pub(super) fn colours(virtual_index: Option<&Sourced<bool>>, size_bytes: &Number, ways: &Number) -> u32 {
    if !virtual_index.is_some_and(|index| index.value) {
        return 1;
    }
    (size_bytes.value / ways.value / PAGE_SIZE as u64).max(1) as u32
}
