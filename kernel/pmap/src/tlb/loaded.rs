//! What one CPU has loaded into which entry of its TLB, where the kernel chooses entries; written by that CPU alone.

use crate::config::EntryChoice;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use pageferry_hal::{Asid, Board, Mmu, Va};

/// What one CPU has loaded where.
pub(crate) struct Loaded(pub(crate) Box<[AtomicU64]>);

/// A page with its tag; never 0.
pub(crate) fn pack(asid: Asid, va: Va) -> u64 {
    u64::from(asid.0) << 44 | va.page().0 | 1
}

impl Loaded {
    pub(crate) fn new(board: &Board, choice: EntryChoice) -> Loaded {
        let entries = match board.mmu {
            Mmu::Soft { entries, .. } if choice == EntryChoice::UnusedFirst => entries,
            _ => 0,
        };
        Loaded((0..entries).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn forget(&self, goes: impl Fn(u64) -> bool) {
        self.0.iter().filter(|entry| goes(entry.load(SeqCst))).for_each(|entry| entry.store(0, SeqCst));
    }
}
