//! Kernel mappings, page by page: not managed, global, wired.
//!
//! They take no lock: the owner of the addresses (an allocator's client, an ephemeral mapping) owns their entries.
//! Their tables exist since boot, so nothing here fails or allocates frames.

use crate::flush::TlbFlush;
use crate::pmap::Pmaps;
use crate::tables::cached::Reach;
use crate::tables::radix;
use pageferry_hal::{
    Asid, Attr, Block, Cause, HashTable, Machine, Pa, Pfn, Prot, SpaceId, StructVa, Tte, Va, VaRange,
};

impl<M: Machine> Pmaps<M> {
    /// The blocks by which every CPU has memory mapped for the kernel; none where pages or superpages do it.
    pub fn blocks(&self) -> &[Block] {
        &self.kernel.blocks
    }

    /// The hash table of translations, if hardware or this kernel uses one.
    pub fn hash_table(&self) -> Option<HashTable> {
        self.kernel.hash
    }

    /// Where a kernel structure is in memory: the arena lies there from the first frame on, in a row.
    pub fn arena_pa(&self, at: StructVa) -> Pa {
        Pa((at.0 - self.kernel.layout.kernel_base) as u64)
    }

    /// Where the entry of a kernel page lies, for measurements of what reading it costs.
    ///
    /// # Panics
    /// When the page is not among those of [`crate::Bootstrap::kva`].
    pub fn kernel_entry(&self, va: Va) -> Pa {
        self.kernel.slot(va.page())
    }

    /// What the entry of a kernel page says, as the machine would read it: for measurements of what that costs.
    ///
    /// # Panics
    /// As [`Pmaps::kernel_entry`].
    pub fn read_kernel_entry(&self, va: Va) -> Option<Tte> {
        radix::load(&self.machine, &self.kernel.format, self.kernel_entry(va))
    }

    /// Maps consecutive kernel pages from `va` on (`pmap_qenter`), replacing what was there. The new entries have not
    /// been accessed.
    ///
    /// The flush lists every page, whatever was there before: see [`TlbFlush`].
    ///
    /// # Locks
    /// As [`Pmaps::claim`]: takes none where pages have no colours.
    ///
    /// # Panics
    /// When the pages are not among those of [`crate::Bootstrap::kva`], or `prot` does not permit reading.
    #[track_caller]
    pub fn kenter(&self, va: Va, frames: &[Pfn], prot: Prot) -> TlbFlush<M> {
        assert!(prot.contains(Prot::READ), "a kernel mapping that permits nothing at {va:?}");
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, &self.kernel.format);
        let mut attr = Attr::GLOBAL | Attr::WIRED;
        attr.set(Attr::WRITE, prot.contains(Prot::WRITE));
        let mut flush = TlbFlush::new();
        for (page, frame) in VaRange::pages_from(va, frames.len()).pages().zip(frames) {
            m.execute(self.config.paths.kenter);
            let reach = if prot.contains(Prot::WRITE) { Reach::Write } else { Reach::Read };
            self.claim(*frame, page, reach);
            let slot = self.kernel.slot(page);
            let new = Tte::page(*frame, attr);
            let mut old = radix::load(m, format, slot);
            if old.is_none() {
                radix::store(m, format, slot, new);
                m.mapping_changed(SpaceId::KERNEL, page, None, Some(new), None);
            } else {
                old = radix::swap(m, format, slot, Some(new));
                m.mapping_changed(SpaceId::KERNEL, page, old, Some(new), Some(flush.window(m)));
                self.forget_hashed(Some(Asid::KERNEL), page);
            }
            flush.list(SpaceId::KERNEL, None, page, old);
        }
        flush
    }

    /// Unmaps kernel pages (`pmap_qremove`). The flush lists every page, whatever was there before: see [`TlbFlush`].
    ///
    /// # Locks
    /// Takes none.
    ///
    /// # Panics
    /// When the pages are not among those of [`crate::Bootstrap::kva`].
    #[track_caller]
    pub fn kremove(&self, range: VaRange) -> TlbFlush<M> {
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, &self.kernel.format);
        let mut flush = TlbFlush::new();
        for page in range.pages() {
            m.execute(self.config.paths.kenter);
            let old = radix::swap(m, format, self.kernel.slot(page), None);
            m.mapping_changed(SpaceId::KERNEL, page, old, None, Some(flush.window(m)));
            self.forget_hashed(Some(Asid::KERNEL), page);
            flush.list(SpaceId::KERNEL, None, page, old);
        }
        flush
    }
}
