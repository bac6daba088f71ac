//! The reserved entries of the own TLB: written anew when a space comes to run under another tag, cleared when tags
//! begin anew.

use crate::counter::PmapCounter;
use crate::defect::AreaDefect;
use crate::pmap::Pmaps;
use crate::tables::space::Shared;
use core::sync::atomic::Ordering::SeqCst;
use pageferry_hal::{Asid, Flush, Machine, Slot, SpinLock, Tte, Va};

impl<M: Machine> Pmaps<M> {
    pub(crate) fn write_reserved(&self, slot: usize, asid: Asid, va: Va, tte: Tte) {
        self.machine.count(PmapCounter::ReservedWrites, 1);
        self.machine.tlb_load(Slot::Reserved(slot), asid, va, tte);
    }

    /// Tags have begun anew: what the reserved entries say of spaces is out of date.
    pub(crate) fn clear_reserved(&self) {
        let Some(area) = self.area.as_ref().filter(|area| area.config.reserved > 0) else { return };
        if self.area_defect().is(AreaDefect::ReservedKeepTags) {
            return;
        }
        let held = area.held.lock();
        for held in held.iter().flatten() {
            let asid = Asid(held.shared.wired_asid.load(SeqCst));
            if asid != Asid::KERNEL {
                self.machine.count(PmapCounter::ReservedWrites, 1);
                self.flush_own(Flush::Page(asid, held.va));
            }
        }
        held.iter().flatten().for_each(|held| held.shared.wired_asid.store(Asid::KERNEL.0, SeqCst));
    }

    /// The space comes to run under `asid`: its reserved entries have to say so.
    pub(crate) fn rewire(&self, shared: &Shared<M>, asid: Asid) {
        if shared.wired.load(SeqCst) == 0 || shared.wired_asid.load(SeqCst) == asid.0 {
            return;
        }
        if self.area_defect().is(AreaDefect::ReservedKeepTags) {
            return;
        }
        let area = self.area();
        let held = area.held.lock();
        for (slot, held) in held.iter().enumerate() {
            if let Some(held) = held.as_ref().filter(|held| held.shared.id == shared.id) {
                self.machine.execute(area.config.paths.wire);
                self.write_reserved(slot, asid, held.va, held.tte);
            }
        }
        shared.wired_asid.store(asid.0, SeqCst);
    }

    /// Reserves what the area wants of the own TLB.
    pub(crate) fn reserve_entries(&self) {
        if let Some(area) = self.area.as_ref().filter(|area| area.config.reserved > 0) {
            self.machine.tlb_reserve(area.config.reserved);
        }
    }
}
