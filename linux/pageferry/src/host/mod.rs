//! What this host's kernel can do for the library.
//!
//! # What it holds
//! [`Host`]: one answer for each trick that the library uses, tried once in a process on scratch memory and
//! never guessed from a version. What is missing falls back, and [`Host::items`] says to what, and which
//! setting would change it.
//!
//! # What can fail
//! Nothing: a trial that fails for whatever reason is a trick that is not used.

mod doctor;
mod files;
mod works;

pub use doctor::{Item, Verdict};

use crate::sys::map::Region;
use crate::sys::{self, pages};
use std::sync::OnceLock;
use works::Works;

/// What works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    huge_page_bytes: usize,
    works: Works,
    overcommit_never: bool,
}

impl Host {
    /// What works here; tried at the first call.
    pub fn get() -> &'static Host {
        static HOST: OnceLock<Host> = OnceLock::new();
        HOST.get_or_init(Host::probe)
    }

    /// Tries everything anew: for tests that have calls fail, and for `doctor`.
    pub fn probe() -> Host {
        let huge_page_bytes = pages::huge_page_bytes();
        let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
        Host {
            huge_page_bytes,
            works: Works::tried(huge_page_bytes),
            overcommit_never: overcommit.is_ok_and(|text| text.trim() == "2"),
        }
    }

    /// Bytes that slots are multiples of.
    pub(crate) fn slot_align(&self) -> usize {
        match self.huge_page_bytes {
            0 => pages::MAX_SLOT_ALIGN,
            bytes => bytes.min(pages::MAX_SLOT_ALIGN),
        }
    }

    fn has(&self, works: Works) -> bool {
        self.works.contains(works)
    }

    /// Huge pages can be had.
    pub(crate) fn huge(&self) -> bool {
        self.has(Works::COLLAPSE)
    }

    /// What was mapped anew, private, can be the pool's again.
    pub(crate) fn alias(&self) -> bool {
        self.has(Works::ALIAS)
    }

    /// Loans can be protected by the MMU.
    pub(crate) fn can_freeze(&self) -> bool {
        self.has(Works::FREEZE.union(Works::PRIVATE).union(Works::FUTURE_WRITE).union(Works::DONT_NEED))
    }

    /// Memory can be sealed for good.
    pub(crate) fn can_seal(&self) -> bool {
        self.has(Works::SEAL_WRITE)
    }

    /// Memory of a receiver can be opened for writing, and frozen again.
    pub(crate) fn can_be_leased(&self) -> bool {
        self.has(Works::PROC.union(Works::PRIVATE))
    }

    /// This process can lease its memory, and has the time to save it when a lease is broken.
    pub(crate) fn can_lease(&self) -> bool {
        let seconds = sys::lease::break_seconds();
        let time = seconds.is_some_and(|seconds| seconds >= sys::lease::MIN_BREAK_SECONDS);
        self.has(Works::LEASE.union(Works::PRIVATE).union(Works::DONT_NEED)) && time && !self.overcommit_never
    }

    /// The kernel counts the readers of memory.
    pub(crate) fn can_count(&self) -> bool {
        self.has(Works::COUNT.union(Works::PROC).union(Works::PRIVATE))
    }

    /// /proc is there.
    pub(crate) fn proc(&self) -> bool {
        self.has(Works::PROC)
    }

    /// The kernel says which pages were written.
    pub(crate) fn scan(&self) -> bool {
        self.has(Works::SCAN)
    }

    /// Whether huge pages map all of the part, as far as the kernel can say.
    pub(crate) fn is_huge(&self, region: &Region, offset: usize, len: usize) -> bool {
        if !self.huge() {
            return false;
        }
        let huge = if self.scan() { pages::huge_bytes(region, offset, len).ok() } else { None };
        huge.or_else(|| sys::trials::huge_bytes_by_smaps(region.at(offset) as usize, len))
            .is_some_and(|huge| huge == len as u64)
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        sys::page_bytes()
    }

    /// Bytes of a huge page; 0 where the kernel has none.
    pub fn huge_page_bytes(&self) -> usize {
        self.huge_page_bytes
    }
}
