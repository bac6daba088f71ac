//! Ephemeral mappings: `[ephemeral]` of a kernel's file.
//!
//! A file says how they are made, or leaves it to the machine (`native`). What a scheme asks of the rest of the kernel
//! is checked with the whole file.

use super::words::{FlushAtName, FlushByName, RuleName};
use pageferry_ephemeral::{FlushPolicy, Scheme};
use pageferry_hal::Board;
use pageferry_sourced::Sourced;
use serde::{Deserialize, Serialize};

/// Addresses of all colours together beside a direct map: as many buffers as FreeBSD 5 has on sparc64 with up to 64 MB,
/// 512 + 16 * maxusers of which there are 32 (vm_machdep.c, param.c).
const MAX_COLOURED: usize = 1024;

/// Processes that have a cache of mappings of their own: all of an experiment.
const PROCESS_CACHES: usize = 32;

/// How ephemeral mappings are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchemeName {
    /// The best that the machine offers: the direct map where there is one, else the cache; and both where pages have
    /// colours.
    Native,
    /// The cache of mappings.
    Cache,
    /// The direct map of all memory.
    Direct,
    /// The direct map where colours agree, else the cache.
    Hybrid,
    /// An address allocated and a mapping changed for every use.
    Original,
    /// The same with addresses from magazines.
    Vmem,
    /// A cache of mappings for each process.
    PerProcess,
}

/// Where the scheme `original` has its addresses from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressesName {
    /// The kernel's general allocator, at each use.
    Allocator,
    /// A list of addresses that were taken at boot.
    FreeList,
}

/// Ephemeral mappings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EphemeralFile {
    /// How they are made.
    pub scheme: Sourced<SchemeName>,
    /// Entries of the cache, where there is one.
    pub entries: Sourced<u64>,
    /// The accessed-bit rule of the cache.
    pub accessed_rule: Sourced<RuleName>,
    /// False: the private option is ignored.
    pub honour_private: Sourced<bool>,
    /// Where the scheme `original` has its addresses from.
    pub addresses: Sourced<AddressesName>,
    /// How many addresses are in the list, where there is one.
    pub list_entries: Sourced<u64>,
    /// At which change a mapping is flushed that is made and unmade for each use: of the schemes `original` and `vmem`,
    /// and of addresses that their user keeps.
    pub flush_at: Sourced<FlushAtName>,
    /// How many pages are changed and flushed at once, where one user maps several.
    pub flush_by: Sourced<FlushByName>,
}

impl EphemeralFile {
    /// How mappings are flushed that are made for each use.
    pub fn flush(&self) -> FlushPolicy {
        FlushPolicy { at: self.flush_at.value.into(), by: self.flush_by.value.into() }
    }

    /// The scheme of ephemeral mappings on such a machine.
    pub fn scheme_on(&self, board: &Board) -> Scheme {
        let rule = self.accessed_rule.value.into();
        let entries = self.entries.value as usize;
        let cache = Scheme::Cache { entries, rule };
        let hybrid = Scheme::Hybrid { entries: (entries.min(MAX_COLOURED) / board.colours as usize).max(1) };
        match (self.scheme.value, board.layout.direct_map.is_some()) {
            (SchemeName::Native, false) | (SchemeName::Cache, _) => cache,
            (SchemeName::Native, true) if board.colours > 1 => hybrid,
            (SchemeName::Native, true) | (SchemeName::Direct, _) => Scheme::Direct,
            (SchemeName::Hybrid, _) => hybrid,
            (SchemeName::Original, _) => match self.addresses.value {
                AddressesName::Allocator => Scheme::Original,
                AddressesName::FreeList => Scheme::FreeList { entries: self.list_entries.value as usize },
            },
            (SchemeName::Vmem, _) => Scheme::Vmem,
            (SchemeName::PerProcess, _) => {
                Scheme::PerProcess { entries: (entries / PROCESS_CACHES).max(1), caches: PROCESS_CACHES }
            }
        }
    }
}
