//! Misses and entries by what they are of: which part of the kernel's share of the TLB is text, data, stacks or
//! devices.
//!
//! The machine tells it by the address ([`MemoryUse`]); here it gets its names.

use crate::record::{Metric, metric};
use pageferry_hal::MemoryUse;
use pageferry_model::UseCounts;
use std::collections::BTreeMap;

/// What is counted by use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    TlbMisses,
    /// In percent of them.
    HashMisses,
    /// In percent of the entries in use.
    Entries,
}

/// The metrics of a use, by what is counted.
fn names(what: MemoryUse) -> [Metric; 3] {
    macro_rules! of {
        ($name:literal, $of:literal) => {
            [
                metric(
                    concat!("tlb_misses_", $name),
                    "count",
                    concat!("Of the misses of both TLBs, those at ", $of, "."),
                ),
                metric(
                    concat!("hash_misses_", $name, "_percent"),
                    "%",
                    concat!("Of the misses of the hash table, those at ", $of, "."),
                ),
                metric(
                    concat!("tlb_share_", $name, "_percent"),
                    "%",
                    concat!("Entries of both TLBs in use that map ", $of, ", in samples."),
                ),
            ]
        };
    }
    match what {
        MemoryUse::Users => of!("users", "addresses of programs"),
        MemoryUse::Text => of!("text", "the kernel's text"),
        MemoryUse::Data => of!("data", "the kernel's structures"),
        MemoryUse::Stacks => of!("stacks", "stacks in the kernel"),
        MemoryUse::Tables => of!("tables", "page tables and the hash table, which handlers in C read"),
        MemoryUse::Files => of!("files", "pages of files, at the kernel's addresses"),
        MemoryUse::Programs => {
            of!("programs", "pages of programs, at the kernel's addresses: it clears and copies them")
        }
        MemoryUse::Buffers => of!("buffers", "what the kernel maps page by page: buffers of pipes"),
        MemoryUse::Devices => of!("devices", "the memory of devices"),
    }
}

/// The name of what is counted at a use.
pub(super) fn name(what: MemoryUse, counted: Counted) -> &'static str {
    names(what)[counted as usize].name()
}

/// All of them.
pub(super) fn metrics() -> impl Iterator<Item = Metric> {
    MemoryUse::ALL.into_iter().flat_map(names)
}

/// Adds the results of such counts.
pub(super) fn add(results: &mut BTreeMap<String, f64>, counted: Counted, counts: &UseCounts) {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    for what in MemoryUse::ALL {
        let count = counts[what.index()] as f64;
        let value = if counted == Counted::TlbMisses { count } else { 100.0 * count / all };
        results.insert(name(what, counted).to_owned(), value);
    }
}
