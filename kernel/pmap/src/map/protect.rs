//! Protecting the kernel's own memory, page by page, where it is mapped so.
//!
//! What a block maps cannot be protected by page: no page of it is ever looked at. The same goes for superpages, which
//! stay whole here, and for areas that are not translated at all.

use crate::error::{PmapError, Whole};
use crate::flush::TlbFlush;
use crate::pmap::Pmaps;
use crate::tables::radix;
use pageferry_hal::{Asid, Attr, Cause, Machine, Prot, Region, SpaceId, Va, VaRange};

impl<M: Machine> Pmaps<M> {
    /// Takes write permission from pages of the kernel's own memory, at the addresses at which all of it is mapped for
    /// ever, or gives it back. Other addresses of the same frames keep theirs.
    ///
    /// # Errors
    /// [`PmapError::MappedWhole`] where one of the pages is not mapped by a page; then nothing has changed.
    ///
    /// # Locks
    /// Takes that of the hash table, where there is one. The caller sees to it that nobody else protects the same
    /// pages.
    ///
    /// # Panics
    /// When `prot` does not permit reading, or a page is not of that memory.
    #[track_caller]
    pub fn kernel_protect(&self, range: VaRange, prot: Prot) -> Result<TlbFlush<M>, PmapError> {
        assert!(prot.contains(Prot::READ), "the kernel's memory is to permit nothing at {range:?}");
        if let Some((page, by)) = range.pages().find_map(|page| Some((page, self.mapped_whole(page)?))) {
            return Err(PmapError::MappedWhole { page, by });
        }
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, &self.kernel.format);
        let mut flush = TlbFlush::new();
        for page in range.pages() {
            m.execute(self.config.paths.kenter);
            let slot = self.kernel.slot(page);
            // All that can be noted in a permanent entry is noted from boot on: nothing changes it meanwhile.
            let old = radix::load(m, format, slot).filter(|old| !old.attr.contains(Attr::WIRED));
            let old = old.unwrap_or_else(|| panic!("{page:?} is no page of the kernel's own memory"));
            let mut new = old;
            new.attr.set(Attr::WRITE, prot.contains(Prot::WRITE));
            if new == old {
                continue;
            }
            radix::swap(m, format, slot, Some(new));
            m.mapping_changed(SpaceId::KERNEL, page, Some(old), Some(new), Some(flush.window(m)));
            self.forget_hashed(Some(Asid::KERNEL), page);
            flush.list(SpaceId::KERNEL, None, page, Some(old));
        }
        Ok(flush)
    }

    /// What maps the kernel's memory at `page`, if that is not a page.
    #[track_caller]
    fn mapped_whole(&self, page: Va) -> Option<Whole> {
        if self.kernel.is_tabled(page) {
            return None;
        }
        let superpage = self.kernel.format.superpage_bytes() as u64;
        let block = || self.kernel.blocks.iter().find(|block| block.contains(page)).copied();
        let whole = match self.kernel.layout.region {
            _ if page < self.kernel.layout.user_end => None,
            Region::Blocks => block().map(Whole::Block),
            Region::Superpages => Some(Whole::Superpage(Va(page.0 & !(superpage - 1)))),
            Region::Unmapped => Some(Whole::Untranslated),
            Region::Computed(_) => self.kernel.computed(page).map(|(va, _)| Whole::Superpage(va)),
            Region::Pages => None,
        };
        Some(whole.unwrap_or_else(|| panic!("{page:?} is no page of the kernel's own memory")))
    }
}
