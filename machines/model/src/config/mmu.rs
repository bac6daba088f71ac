//! What translates addresses: `[mmu]` of a machine file.

use super::number::Number;
use pageferry_sourced::Sourced;
use serde::{Deserialize, Serialize};

/// What translates addresses: exactly one of `walker` and `soft`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmuConfig {
    /// Hardware that looks for what is not in the TLB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walker: Option<WalkerName>,
    /// A TLB that the kernel loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<SoftConfig>,
    /// What the kernel's refill handler costs besides its own instructions and accesses; for every machine but those
    /// whose hardware walks page tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<RefillConfig>,
    /// Bits of the tag that tells address spaces apart in the TLB; absent where entries carry none. Where hardware
    /// walks page tables, a kernel has the choice not to use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asid_bits: Option<Number>,
    /// For hardware that walks page tables and has tags: invalidating a page, or all, of another tag than the one in
    /// use (INVPCID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalidate_other_cycles: Option<Number>,
    /// For hardware that looks into a hash table: one further entry of a line that was just fetched. Without it each
    /// entry costs what a load of it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_probe_cycles: Option<Number>,
    /// What an invalidation of a page drops; that page alone if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalidates: Option<Sourced<InvalidatesName>>,
    /// Where one CPU can invalidate a page in the TLBs of all: what each page costs it (INVLPGB, tlbie, TLBI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast_page_cycles: Option<Number>,
    /// And to wait once until all have done what it has broadcast (TLBSYNC, tlbsync, DSB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast_sync_cycles: Option<Number>,
    /// Registers that map blocks before any page is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlocksConfig>,
    /// Areas that are mapped by the machine itself, before any block register.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub area: Vec<AreaConfig>,
}

impl MmuConfig {
    /// Where one CPU invalidates for all: the cycles of a page, and those of waiting for it.
    pub(crate) fn broadcast(&self) -> Option<(u64, u64)> {
        Some((self.broadcast_page_cycles.as_ref()?.value, self.broadcast_sync_cycles.as_ref()?.value))
    }
}

/// Hardware that looks for translations in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WalkerName {
    /// It walks page tables in levels (i386, amd64).
    Radix,
    /// It looks into a hash table (PowerPC).
    Hash,
}

/// What an invalidation of a page drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InvalidatesName {
    /// The entry of that page.
    Page,
    /// All entries of its set, in the TLB for data and in that for instructions, whatever their page and tag.
    Class,
}

/// A TLB that the kernel loads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftConfig {
    /// At a miss hardware names the groups of a hash table that the page belongs to, so that the kernel may keep one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashes: Option<Sourced<bool>>,
    /// Which entry a load takes.
    pub replace: Sourced<ReplaceName>,
    /// Entries that are set aside from the start, for the kernel to load one by one.
    pub reserved_entries: Number,
    /// One entry that software reads and compares when it looks for a page; absent where it cannot read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search_cycles: Option<Number>,
    /// Writing a reserved entry, where that takes other than a load; as a load if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_load_cycles: Option<Number>,
}

/// Which entry of the TLB a load by software takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplaceName {
    /// The way that hardware proposes: a free one, or the one used longest ago.
    Lru,
    /// The one that a counter of look-ups names.
    Counter,
}

/// The exception that calls the kernel's refill handler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefillConfig {
    /// From the access to the handler's first instruction.
    pub enter_cycles: Number,
    /// From the handler's last instruction back to the access.
    pub exit_cycles: Number,
    /// One load of the TLB by software; 0 where hardware does that.
    pub tlb_load_cycles: Number,
}

/// Registers that map blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlocksConfig {
    /// How many.
    pub registers: Number,
    /// As many more for instructions; without, fetches look into those for data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction_registers: Option<Number>,
    /// The smallest block: a power of two.
    pub min_bytes: Number,
    /// The largest block: a power of two.
    pub max_bytes: Number,
    /// Setting one.
    pub set_cycles: Number,
}

/// An area that is mapped by the machine itself, for the kernel alone. Its size is a power of two, to which both ends
/// are aligned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaConfig {
    /// First address.
    pub va: Number,
    /// Where it leads.
    pub pa: Number,
    /// Its size.
    pub len_bytes: Number,
}
