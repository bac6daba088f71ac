//! Kernel mappings, page by page: not managed, global, wired.
//!
//! They take no lock: who owns the addresses (an allocator's client, an ephemeral mapping) owns their entries. Their
//! tables exist since boot, so nothing here fails or allocates frames.

use crate::change::Change;
use crate::pmap::{PmapId, Pmaps};
use pageferry_hal::x86::{PTE_G, PTE_P, PTE_W, PTE_WIRED};
use pageferry_hal::{Cause, Machine, PAGE_SHIFT, Pa, Pfn, Prot, Va, VaRange};

impl<M: Machine> Pmaps<M> {
    /// The address of a frame in the direct map, if the machine has one (sf_buf paper, 4.3).
    pub fn direct_va(&self, frame: Pfn) -> Option<Va> {
        let base = self.kernel.layout.direct_map?;
        assert!(frame.index() < self.machine.topology().frames, "{frame:?} is no frame of this machine");
        Some(base + (frame.index() << PAGE_SHIFT))
    }

    /// Where the entry of a kernel page lies, for measurements of what reading it costs.
    ///
    /// # Panics
    /// When the page is not among those of [`crate::Bootstrap::kva`].
    pub fn kernel_entry(&self, va: Va) -> Pa {
        self.kernel.slot(va.page())
    }

    /// Maps consecutive kernel pages from `va` on (`pmap_qenter`), replacing what was there. The new entries have not
    /// been accessed.
    ///
    /// The change lists every page, whatever was there before: see [`Change`].
    ///
    /// # Locks
    /// Takes none.
    ///
    /// # Panics
    /// When the pages are not among those of [`crate::Bootstrap::kva`], or `prot` does not permit reading.
    #[track_caller]
    pub fn kenter(&self, va: Va, frames: &[Pfn], prot: Prot) -> Change<M> {
        assert!(prot.contains(Prot::READ), "a kernel mapping that permits nothing at {va:?}");
        let _c = self.machine.scope(Cause::PteWork);
        let (m, width) = (&self.machine, self.kernel.format.width);
        let bits = PTE_P | PTE_G | PTE_WIRED | if prot.contains(Prot::WRITE) { PTE_W } else { 0 };
        let mut change = Change::new();
        for (page, frame) in VaRange::pages_from(va, frames.len()).pages().zip(frames) {
            m.execute(self.config.paths.kenter);
            let slot = self.kernel.slot(page);
            let value = frame.pa().0 | bits;
            let mut old = m.pte_load(slot, width);
            if old & PTE_P == 0 {
                m.pte_fill(slot, width, value);
            } else {
                old = m.pte_change(slot, width, value, change.window(m));
            }
            change.list(PmapId::KERNEL, page, old);
        }
        change
    }

    /// Unmaps kernel pages (`pmap_qremove`). The change lists every page, whatever was there before: see [`Change`].
    ///
    /// # Locks
    /// Takes none.
    ///
    /// # Panics
    /// When the pages are not among those of [`crate::Bootstrap::kva`].
    #[track_caller]
    pub fn kremove(&self, range: VaRange) -> Change<M> {
        let _c = self.machine.scope(Cause::PteWork);
        let (m, width) = (&self.machine, self.kernel.format.width);
        let mut change = Change::new();
        for page in range.pages() {
            m.execute(self.config.paths.kenter);
            let old = m.pte_change(self.kernel.slot(page), width, 0, change.window(m));
            change.list(PmapId::KERNEL, page, old);
        }
        change
    }
}
