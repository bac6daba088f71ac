//! What one CPU has loaded into which entry of its TLB, where the kernel wants to know; written by that CPU alone.

use crate::config::PmapConfig;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use pageferry_hal::{Asid, Board, Mmu, Va};

/// What one CPU has loaded where.
pub(crate) struct Loaded(pub(crate) Box<[AtomicU64]>);

/// A page with its tag; never 0. See [`page_of`].
pub(crate) fn pack(asid: Asid, va: Va) -> u64 {
    u64::from(asid.0) << 44 | va.page().0 | 1
}

/// The page that [`pack`] packed.
pub(crate) fn page_of(packed: u64) -> Va {
    Va(packed & ((1 << 44) - 1)).page()
}

impl Loaded {
    pub(crate) fn new(board: &Board, config: &PmapConfig) -> Loaded {
        let entries = match board.mmu {
            Mmu::Soft { entries, .. } if config.notes_loads() => entries,
            _ => 0,
        };
        Loaded((0..entries).map(|_| AtomicU64::new(0)).collect())
    }

    /// Entries that this tag's pages have.
    pub(crate) fn of_tag(&self, asid: Asid) -> usize {
        self.0
            .iter()
            .filter(|entry| entry.load(SeqCst) >> 44 == u64::from(asid.0) && entry.load(SeqCst) != 0)
            .count()
    }

    /// Forgets the entries that `goes` names; true when there was one.
    pub(crate) fn forget(&self, goes: impl Fn(u64) -> bool) -> bool {
        let mut any = false;
        for entry in self.0.iter().filter(|entry| entry.load(SeqCst) != 0 && goes(entry.load(SeqCst))) {
            entry.store(0, SeqCst);
            any = true;
        }
        any
    }
}
