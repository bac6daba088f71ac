//! Which entry of the TLB a refill takes, where the kernel loads it; and the flushes of the own TLB, which have to
//! know.
//!
//! Hardware has a counter that names an entry, in use or not. A kernel that remembers what it has put where finds an
//! entry that is not in use, and takes the counter's word only when there is none (Yamauchi et al., 2.3). What it
//! remembers may say that an entry is in use that is not, and the reverse: then a load takes a worse place, and nothing
//! is wrong.
//!
//! # What it holds
//! For each CPU and entry the page and tag that were loaded there last; written by that CPU alone.

use crate::area::AreaDefect;
use crate::pmap::Pmaps;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use pageferry_hal::{Asid, Board, Flush, Machine, Mmu, Slot, Va};

/// How a refill chooses the entry of the TLB that it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EntryChoice {
    /// As hardware says: by its counter, or by use.
    #[default]
    Hardware,
    /// One that is not in use; by hardware's counter where all are. Only where there is one, and any entry may hold any
    /// page.
    UnusedFirst,
}

impl EntryChoice {
    /// Whether a kernel on this board can choose so.
    pub const fn is_possible(self, board: &Board) -> bool {
        match self {
            EntryChoice::Hardware => true,
            EntryChoice::UnusedFirst => {
                matches!(board.mmu, Mmu::Soft { is_fully_associative: true, has_counter: true, .. })
            }
        }
    }
}

/// What one CPU has loaded where.
pub(crate) struct Loaded(Box<[AtomicU64]>);

/// A page with its tag; never 0.
fn pack(asid: Asid, va: Va) -> u64 {
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

    fn forget(&self, goes: impl Fn(u64) -> bool) {
        self.0.iter().filter(|entry| goes(entry.load(SeqCst))).for_each(|entry| entry.store(0, SeqCst));
    }
}

impl<M: Machine> Pmaps<M> {
    /// Invalidates in the own TLB.
    #[track_caller]
    pub(crate) fn flush_own(&self, what: Flush) {
        let drops = self.area_defect() == AreaDefect::FlushDropsReserved && !matches!(what, Flush::Page(..));
        self.machine.tlb_flush(if drops { Flush::Everything } else { what });
        self.forget_loaded(what);
    }

    /// The own TLB was flushed.
    pub(crate) fn forget_loaded(&self, what: Flush) {
        let loaded = &self.loaded[self.machine.cpu().index()];
        if loaded.0.is_empty() {
            return;
        }
        match what {
            Flush::Page(asid, va) => loaded.forget(|entry| entry == pack(asid, va)),
            Flush::Context(asid) => loaded.forget(|entry| entry >> 44 == u64::from(asid.0)),
            Flush::All | Flush::Everything => loaded.forget(|_| true),
        }
    }

    /// The entry that the refill of this page is to take.
    pub(crate) fn choose_entry(&self, asid: Asid, va: Va) -> Slot {
        let loaded = &self.loaded[self.machine.cpu().index()];
        if loaded.0.is_empty() {
            return Slot::Replace;
        }
        self.machine.execute(self.config.refill.paths.choose);
        let reserved = self.reserved_entries();
        let unused = loaded.0.iter().skip(reserved).position(|entry| entry.load(SeqCst) == 0);
        let slot = unused.map_or_else(|| self.machine.tlb_random(), |unused| reserved + unused);
        loaded.0[slot].store(pack(asid, va), SeqCst);
        Slot::Chosen(slot)
    }
}
