//! Memory: `[frames]`, `[shadows]` and `[paging]` of a kernel's file.
//!
//! In which order frames are used again, what anonymous memory is made of, and what takes back frames that are used no
//! longer. A kernel without the second has amaps and anons; one without the third has memory that stays full when it is
//! full.

use super::words::FreedToName;
use pageferry_hal::CodePath;
use pageferry_sourced::Sourced;
use pageferry_vm::{Anonymous, FreedTo, PagingConfig, PagingPaths, ShadowConfig, ShadowPaths};
use serde::{Deserialize, Serialize};

/// Physical memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FramesFile {
    /// To the head of the free list, where they are taken from, or to its tail.
    pub freed_to: Sourced<FreedToName>,
}

impl FramesFile {
    /// What a file that has this table, or none, says.
    pub(super) fn freed_to(table: Option<&FramesFile>) -> FreedTo {
        table.map_or(FreedTo::Head, |frames| frames.freed_to.value.into())
    }
}

/// Chains of shadow objects, in place of amaps and anons. See [`ShadowConfig`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowsFile {
    /// The most neighbouring pages of one object that go to the swap area in one request.
    pub cluster_pages: Sourced<u64>,
    /// Instructions of looking for a page in one object of a chain.
    pub search: Sourced<u32>,
    /// Instructions of putting a new object before another.
    pub shadow: Sourced<u32>,
    /// Instructions of marking one page at a fork.
    pub mark: Sourced<u32>,
    /// Instructions of one page that a collapse or a bypass looks at.
    pub collapse: Sourced<u32>,
}

impl ShadowsFile {
    /// What a file that has this table, or none, says.
    pub(super) fn anonymous(table: Option<&ShadowsFile>) -> Anonymous {
        table.map_or(Anonymous::Amaps, |shadows| {
            Anonymous::Shadows(ShadowConfig {
                cluster_pages: shadows.cluster_pages.value as usize,
                paths: ShadowPaths {
                    search: CodePath::of(shadows.search.value),
                    shadow: CodePath::of(shadows.shadow.value),
                    mark: CodePath::of(shadows.mark.value),
                    collapse: CodePath::of(shadows.collapse.value),
                },
            })
        })
    }
}

/// The page daemon and its swap area. See [`PagingConfig`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagingFile {
    /// The swap area, in MB (of 2^20 bytes), at the start of the disk.
    pub swap_mb: Sourced<u64>,
    /// Fewer free frames wake the page daemon.
    pub free_min_pages: Sourced<u64>,
    /// It goes on until so many are free.
    pub free_target_pages: Sourced<u64>,
    /// The last free frames, for the kernel only.
    pub kernel_reserve_pages: Sourced<u64>,
    /// The last of these, for the page daemon only.
    pub daemon_reserve_pages: Sourced<u64>,
    /// The part of pageable frames that is kept inactive.
    pub inactive_percent: Sourced<u64>,
    /// The most pages in one request.
    pub cluster_pages: Sourced<u64>,
    /// The most pages that come in behind one of a file.
    pub read_ahead_pages: Sourced<u64>,
    /// The part of memory that processes may lock.
    pub lock_limit_percent: Sourced<u64>,
    /// Instructions of the page daemon's look at one frame.
    pub scan: Sourced<u32>,
    /// Instructions of one request to the disk, and of taking its answer.
    pub io: Sourced<u32>,
}

impl PagingFile {
    pub(super) fn config(&self) -> PagingConfig {
        PagingConfig {
            swap_pages: (self.swap_mb.value << 20 >> pageferry_hal::PAGE_SHIFT) as u32,
            free_min_pages: self.free_min_pages.value as usize,
            free_target_pages: self.free_target_pages.value as usize,
            kernel_reserve_pages: self.kernel_reserve_pages.value as usize,
            daemon_reserve_pages: self.daemon_reserve_pages.value as usize,
            inactive_percent: self.inactive_percent.value as usize,
            cluster_pages: self.cluster_pages.value as usize,
            read_ahead_pages: self.read_ahead_pages.value as usize,
            lock_limit_percent: self.lock_limit_percent.value as usize,
            paths: PagingPaths { scan: CodePath::of(self.scan.value), io: CodePath::of(self.io.value) },
        }
    }
}
