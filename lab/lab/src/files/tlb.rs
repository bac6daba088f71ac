//! What a kernel makes of the contents of its TLB: `[tlb]` of a kernel's file.
//!
//! All of it needs a TLB that the kernel loads, any entry for any page; what is wanted elsewhere is refused where the
//! kernel boots. Without this table, and with `none` and 0, nothing is done.

use super::words::PreloadName;
use pageferry_hal::{Board, CodePath, Mmu, PAGE_SHIFT};
use pageferry_kernel::{ByTlb, Planted};
use pageferry_pmap::{Preload, PreloadPaths, RefillConfig};
use pageferry_sourced::Sourced;
use serde::{Deserialize, Serialize};

/// What is made of the TLB's contents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbFile {
    /// What a refill loads beside what was missed.
    pub preload: Sourced<PreloadName>,
    /// Instructions: see [`PreloadPaths`].
    pub preload_stack: Sourced<u32>,
    /// As the one before.
    pub preload_neighbour: Sourced<u32>,
    /// Anonymous memory is made by as many pages as the machine's next larger page has, in frames in a row, and a
    /// refill loads such a row by one entry.
    pub large_pages: Sourced<bool>,
    /// Instructions: comparing one entry of a row with the one before.
    pub large_entry: Sourced<u32>,
    /// Of threads of a level the one runs whose space the TLB has most of; the one that has waited longest is passed
    /// over no more often than this. 0: always that one.
    pub sched_passes: Sourced<u32>,
    /// Instructions: looking at one thread that waits.
    pub sched_look: Sourced<u32>,
    /// Instructions of a refill: counting the entries of spaces.
    pub sched_count: Sourced<u32>,
}

impl TlbFile {
    /// `refill`, with what it does beside. What is not done has no place in the kernel's text.
    pub(super) fn beside(&self, refill: RefillConfig) -> RefillConfig {
        let preload = Preload::from(self.preload.value);
        let counts = self.sched_passes.value > 0;
        let path = |on: bool, of: &Sourced<u32>| CodePath::of(if on { of.value } else { 0 });
        let loads = preload != Preload::None;
        let beside = PreloadPaths {
            count: path(counts, &self.sched_count),
            stack: path(loads, &self.preload_stack),
            neighbour: path(loads, &self.preload_neighbour),
            row: path(self.large_pages.value, &self.large_entry),
        };
        RefillConfig { preload, rows: self.large_pages.value, counts, beside, ..refill }
    }

    /// Pages of anonymous memory that are made at once. A machine that has no larger pages is refused elsewhere.
    pub(super) fn zero_fill_pages(table: Option<&TlbFile>, board: &Board) -> usize {
        match board.mmu {
            Mmu::Soft { large: [shift, ..], .. } if table.is_some_and(|tlb| tlb.large_pages.value) => {
                1 << (u32::from(*shift) - PAGE_SHIFT)
            }
            _ => 1,
        }
    }

    /// How the scheduler uses it.
    pub(super) fn by_tlb(&self) -> Option<ByTlb> {
        let passes = self.sched_passes.value;
        let look = CodePath::of(self.sched_look.value);
        (passes > 0).then_some(ByTlb { passes, look, defect: Planted::NONE })
    }
}
