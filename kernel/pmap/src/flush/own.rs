//! Which entry of the TLB a refill takes, where the kernel loads it; and the flushes of the own TLB, which have to
//! know.
//!
//! Hardware has a counter that names an entry, in use or not. A kernel that remembers what it has put where finds an
//! entry that is not in use, and takes the counter's word only when there is none (Yamauchi et al., 2.3). What it
//! remembers may say that an entry is in use that is not, and the reverse: then a load takes a worse place, and nothing
//! is wrong.

use crate::defect::AreaDefect;
use crate::pmap::Pmaps;
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
                loaded.forget(|entry| entry == pack(asid, va))
            }
            Flush::Context(asid) => loaded.forget(|entry| entry >> 44 == u64::from(asid.0)),
            Flush::All | Flush::Everything => loaded.forget(|_| true),
            Flush::Synchronise => {}
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
