//! One entry of the TLB for pages in a row: where a refill finds that what was missed lies among pages that one larger
//! page would map as well, it loads that.
//!
//! The page tables know nothing of larger pages. As many entries as a larger page has are compared at each refill, so
//! nothing has to be split when one of them changes: what differs is not loaded, and an invalidation of any page drops
//! the entry that it lies in. All must lie in a row from a frame on that is aligned as the page is, and permit the
//! same. All are noted as used then, and as modified when one is: hardware tells no more of them apart. (Linux does
//! the same where an arm64 TLB takes 16 entries for one, `contpte`; there hardware is told by a bit of each.)
//!
//! # Locks
//! None, as the refill handler. What another CPU changes meanwhile, its shootdown drops.

use crate::config::MAX_ROW;
use crate::counter::PmapCounter;
use crate::defect::PmapDefect;
use crate::pmap::Pmaps;
use crate::tables::radix::{self, Walk, walk};
use pageferry_hal::{Asid, Attr, Flush, Machine, Mmu, PAGE_SHIFT, PAGE_SIZE, Pa, Pfn, SpaceId, Tte, Va};

impl<M: Machine> Pmaps<M> {
    /// log2 of the bytes of the larger pages that a refill loads for user memory, if it does.
    pub(crate) fn row_shift(&self) -> Option<u8> {
        if !self.config.refill.rows {
            return None;
        }
        match self.machine.board().mmu {
            Mmu::Soft { large: [shift, ..], .. } => Some(*shift),
            _ => None,
        }
    }

    /// The first page of the row that a page lies in; the page itself where the kernel loads no rows.
    pub(crate) fn row_of(&self, va: Va) -> Va {
        match self.row_shift() {
            Some(shift) if va < self.kernel.layout.user_end => Va(va.0 >> shift << shift),
            _ => va.page(),
        }
    }

    /// What is to be loaded for a user page, of which the page tables say `tte`, and from where on: all of its row, or
    /// the page. The own TLB has no entry of the row then, if all of it is to be loaded.
    pub(crate) fn in_row(&self, (space, root, asid): (SpaceId, Pa, Asid), va: Va, tte: Tte) -> (Va, Tte) {
        let alone = (va.page(), tte);
        let first = self.row_of(va);
        let Some(shift) = self.row_shift().filter(|_| va < self.kernel.layout.user_end) else { return alone };
        let pages = 1_usize << (u32::from(shift) - PAGE_SHIFT);
        let at = (va.page() - first) / PAGE_SIZE;
        // Most are told by this.
        let aligned = tte.frame.index() >= at && (tte.frame.index() - at).is_multiple_of(pages);
        if !aligned || usize::from(tte.shift) != PAGE_SHIFT as usize {
            return alone;
        }
        let frame = Pfn(tte.frame.0 - at as u32);
        if !self.note_row((space, root), first, Tte { frame, ..tte }, pages) {
            return alone;
        }
        if !self.config.defect.is(PmapDefect::RowOverPages) {
            for page in 0..pages {
                self.flush_own(Flush::Page(asid, first + page * PAGE_SIZE));
            }
        }
        self.machine.count(PmapCounter::RowLoads, 1);
        (first, Tte { frame, shift, ..tte })
    }

    /// Notes the use of all pages of a row that `wanted` is the first of; false when they are not one.
    fn note_row(&self, (space, root): (SpaceId, Pa), first: Va, wanted: Tte, pages: usize) -> bool {
        let (m, format) = (&self.machine, &self.kernel.format);
        let Walk::Leaf(slot) = walk(m, format, root, first) else { return false };
        let slot_of = |page: usize| slot + page * format.width.bytes();
        let noted = Attr::REFERENCED | Attr::MODIFIED;
        let compared = if self.config.defect.is(PmapDefect::RowHalfCompared) { pages / 2 } else { pages };
        let mut found = [None; MAX_ROW];
        for (page, found) in found.iter_mut().enumerate().take(pages) {
            m.execute(self.config.refill.beside.row);
            *found = radix::load(m, format, slot_of(page));
            let of_row = found.is_some_and(|tte| {
                tte.frame.0 == wanted.frame.0 + page as u32
                    && tte.attr.difference(noted) == wanted.attr.difference(noted)
            });
            if !of_row && page < compared {
                return false;
            }
        }
        for (page, old) in found.into_iter().enumerate() {
            let Some(old) = old else { continue };
            let new = Tte { attr: old.attr | wanted.attr & noted, ..old };
            if new == old {
                continue;
            }
            if !radix::replace(m, format, slot_of(page), old, new) {
                return false;
            }
            m.mapping_changed(space, first + page * PAGE_SIZE, Some(old), Some(new), None);
        }
        true
    }
}
