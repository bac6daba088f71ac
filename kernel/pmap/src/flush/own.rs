//! Which entry of the TLB a refill takes, where the kernel loads it; and the flushes of the own TLB, which have to
//! know.
//!
//! Hardware has a counter that names an entry, in use or not. A kernel that remembers what it has put where finds an
//! entry that is not in use, and takes the counter's word only when there is none (Yamauchi et al., 2.3). What it
//! remembers may say that an entry is in use that is not, and the reverse: then a load takes a worse place, and nothing
//! is wrong.

use crate::config::EntryChoice;
use crate::defect::AreaDefect;
use crate::pmap::{Pmap, Pmaps};
use crate::preload::SlotList;
use crate::tlb::loaded::pack;
use core::sync::atomic::Ordering::SeqCst;
use pageferry_hal::{Asid, Flush, Machine, Slot, Va};

impl<M: Machine> Pmaps<M> {
    /// Invalidates in the own TLB.
    #[track_caller]
    pub(crate) fn flush_own(&self, what: Flush) {
        let single = matches!(what, Flush::Page(..) | Flush::Broadcast(..) | Flush::Synchronise);
        let drops = self.area_defect().is(AreaDefect::FlushDropsReserved) && !single;
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
            Flush::Page(asid, va) | Flush::Broadcast(asid, va) => {
                let (page, row) = (pack(asid, va), pack(asid, self.row_of(va)));
                if loaded.forget(|entry| entry == page || entry == row) {
                    self.left_by_flush(page);
                }
            }
            Flush::Context(asid) => _ = loaded.forget(|entry| entry >> 44 == u64::from(asid.0)),
            Flush::All | Flush::Everything => _ = loaded.forget(|_| true),
            Flush::Synchronise => {}
        }
    }

    /// The entry that the refill of this page is to take, the first that this call of the handler loads.
    pub(crate) fn choose_entry(&self, asid: Asid, va: Va, taken: &mut SlotList) -> Slot {
        match self.loaded[self.machine.cpu().index()].0.is_empty() {
            true => Slot::Replace,
            false => self.choose_apart(asid, va, taken).expect("two entries at least are not reserved"),
        }
    }

    /// An entry that is not in use, if the kernel looks for such, and there is one.
    pub(crate) fn unused_entry(&self) -> Option<usize> {
        if self.config.choice != EntryChoice::UnusedFirst {
            return None;
        }
        self.machine.execute(self.config.refill.paths.choose);
        let reserved = self.reserved_entries();
        let loaded = self.loaded[self.machine.cpu().index()].0.iter().enumerate().skip(reserved);
        loaded.into_iter().find(|(_, entry)| entry.load(SeqCst) == 0).map(|(slot, _)| slot)
    }

    /// Entries that the own TLB has of the space: reserved ones, and those that refills have loaded, as far as the
    /// kernel counts them ([`crate::RefillConfig::counts`]). Some may have gone meanwhile.
    pub fn live_entries(&self, pmap: &Pmap<M>) -> usize {
        let cpu = self.machine.cpu();
        let numbers = &self.active[cpu.index()].numbers;
        let tag = pmap.shared.tags.as_ref().and_then(|tags| tags.given(cpu, numbers));
        let loaded = tag.map_or(0, |asid| self.loaded[cpu.index()].of_tag(asid));
        loaded + pmap.shared.wired.load(SeqCst) as usize
    }
}
