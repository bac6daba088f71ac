//! The refill handler: what the kernel does when its machine cannot translate an access by itself.
//!
//! It walks the page tables of the space that runs, or the kernel's; notes that the page is used, and modified if it is a
//! store; and loads the TLB, or puts an entry into the hash table and lets hardware look again. It runs on whatever it
//! interrupts, with interrupts off: it reads and writes page tables by physical addresses only, so that it cannot miss
//! itself, and takes no lock but that of the hash table.
//!
//! Page tables are changed under locks that it does not take. So it notes by compare-and-swap, and what it has loaded and
//! another CPU is changing, that CPU's shootdown drops: interrupts wait until the handler is through. A leaf table that it
//! has found stays, because a space's tables go only when nothing runs in it.

use crate::pmap::Pmaps;
use crate::radix::{self, Walk, walk};
use pageferry_hal::{
    Access, Asid, Attr, Flush, Machine, Miss, MissKind, Mmu, Mode, Pa, Slot, SpaceId, SpinLock, TrapKind, Tte,
};

impl<M: Machine> Pmaps<M> {
    /// To be set as the machine's refill handler, by [`Machine::set_refill`].
    ///
    /// # Errors
    /// Why the access cannot be made.
    pub fn handle_miss(&self, miss: Miss) -> Result<(), TrapKind> {
        let m = &self.machine;
        m.execute(self.config.paths.refill);
        let va = miss.va;
        let (space, root, asid) = match va >= self.kernel.layout.user_end {
            true => (SpaceId::KERNEL, self.kernel.root, Asid::KERNEL),
            false => self.active[m.cpu().index()].context(),
        };
        match &self.second {
            Some(second) => {
                let mut victim = second.victim.lock();
                let tte = self.note(space, root, miss)?;
                second.insert(m, &mut victim, asid, va, tte);
                drop(victim);
                if miss.kind != MissKind::Absent {
                    m.tlb_flush(Flush::Page(asid, va));
                }
            }
            None => {
                let tte = self.note(space, root, miss)?;
                if miss.kind != MissKind::Absent {
                    m.tlb_flush(Flush::Page(asid, va));
                }
                let slot = if miss.access == Access::Fetch { Slot::Instruction } else { Slot::Replace };
                m.tlb_load(slot, asid, va.page(), tte);
            }
        }
        Ok(())
    }

    /// The mapping that the access needs, with its use noted in the page table.
    fn note(&self, space: SpaceId, root: Pa, miss: Miss) -> Result<Tte, TrapKind> {
        let (m, format) = (&self.machine, &self.kernel.format);
        debug_assert!(!matches!(m.board().mmu, Mmu::Radix(_)));
        if !format.is_canonical(miss.va) {
            return Err(TrapKind::NotPresent);
        }
        let Walk::Leaf(slot) = walk(m, format, root, miss.va) else { return Err(TrapKind::NotPresent) };
        loop {
            let old = radix::load(m, format, slot).ok_or(TrapKind::NotPresent)?;
            let write = miss.access == Access::Write;
            let user_only = miss.mode == Mode::User && !old.attr.contains(Attr::USER);
            if user_only || (write && !old.attr.contains(Attr::WRITE)) {
                return Err(TrapKind::Protection);
            }
            let mut new = old;
            new.attr |= Attr::REFERENCED;
            new.attr.set(Attr::MODIFIED, write || old.attr.contains(Attr::MODIFIED));
            if new == old {
                return Ok(new);
            }
            if radix::replace(m, format, slot, old, new) {
                m.mapping_changed(space, miss.va.page(), Some(old), Some(new), None);
                return Ok(new);
            }
        }
    }
}
