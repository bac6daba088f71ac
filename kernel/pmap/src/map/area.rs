//! The communication area: memory that processes hand to each other, and what attaches it to them.
//!
//! # What it holds
//! A run of addresses at the end of user space, the same in every address space, and as many bytes of physical memory
//! behind it, in a row, which the kernel has in its arena for ever. Page `i` of the area is page `i` of that memory in
//! every space that has it at all: what moves between processes keeps its address, and its colour in a virtually
//! indexed cache. Nothing else is mapped there ([`Pmaps::user_range`]).
//!
//! A page is *attached* to a space in one of two ways. By a **page-table entry** like any other; then the TLB is filled
//! by misses, and detaching has to find what the TLB has. Or by a **reserved entry** of the TLB and nothing else: the
//! entry is the mapping, no table says so, and a miss in the area is the protection fault: the refill handler tests the
//! address and looks no further. (Yamauchi et al., 2.3.)
//!
//! # Tags
//! A reserved entry carries its space's tag. A tag may be taken away, and given to another space when all have been
//! given (`tlb::asid`): the entries are written anew when the space comes to run under another tag, and cleared
//! when tags begin anew.
//!
//! # Locks
//! `ReservedEntries` over the reserved entries, above all but the scheduler's: a switch takes it. It is free on
//! machines with several CPUs, where nothing can be reserved. Attaching by a page table takes the space's lock.
//!
//! # What can fail
//! Attaching by a page table, for want of a frame for the table. A reserved entry is the caller's to choose, and free.

use crate::config::{AreaPage, FrameSource};
use crate::counter::PmapCounter;
use crate::defect::AreaDefect;
use crate::error::PmapError;
use crate::flush::TlbFlush;
use crate::pmap::{Pmap, Pmaps};
use crate::tables::area::ReservedEntry;
use crate::tables::radix::{self, Walk, walk, walk_or_grow};
use core::sync::atomic::Ordering::SeqCst;
use pageferry_hal::{
    Asid, Attr, Flush, Machine, Mmu, PAGE_SHIFT, PAGE_SIZE, Pfn, Slot, SpaceId, SpinLock, StructVa, Tte, Va,
    VaRange,
};

/// What a reserved entry maps is used and stored to: a miss that notes it has no place.
const ATTACHED: Attr = Attr::USER.union(Attr::WRITE).union(Attr::REFERENCED).union(Attr::MODIFIED);

impl<M: Machine> Pmaps<M> {
    /// The user's addresses that are not the communication area's.
    pub fn user_range(&self) -> VaRange {
        let layout = &self.kernel.layout;
        let end = self.area.as_ref().map_or(layout.user_end, |area| area.range.start());
        VaRange::new(layout.user_start, end)
    }

    /// The addresses of the communication area, in every space; `None` when this kernel has none.
    pub fn area_range(&self) -> Option<VaRange> {
        self.area.as_ref().map(|area| area.range)
    }

    /// Where the kernel has page `page` of the area.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn area_kernel_va(&self, page: usize) -> StructVa {
        let area = self.area();
        area.at.element(area.va(page).0 as usize - area.range.start().0 as usize, 1)
    }

    /// The frame of page `page` of the area.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn area_frame(&self, page: usize) -> Pfn {
        let area = self.area();
        _ = area.va(page);
        area.frame(page)
    }

    // ------------------------------------------------------------------------------------------- by page tables

    /// Attaches a page of the area by the space's page table.
    ///
    /// # Errors
    /// [`PmapError::NoFrame`].
    ///
    /// # Locks
    /// Takes the space's lock; `frames` is called without it.
    ///
    /// # Panics
    /// When it is attached already.
    #[track_caller]
    pub fn area_enter(&self, frames: &dyn FrameSource, pmap: &Pmap<M>, page: usize) -> Result<(), PmapError> {
        let (m, format, area) = (&self.machine, &self.kernel.format, self.area());
        let (va, new) = (area.va(page), Tte::page(area.frame(page), ATTACHED));
        m.execute(area.config.paths.table);
        m.count(PmapCounter::IcaAttachments, 1);
        self.with_tables(frames, |spare| {
            let mut tables = pmap.shared.tables.lock();
            let slot = walk_or_grow(m, format, &mut tables, va, spare)?;
            assert!(radix::load(m, format, slot).is_none(), "{va:?} of the area is attached already");
            radix::store(m, format, slot, new);
            m.mapping_changed(pmap.id(), va, None, Some(new), None);
            tables.resident += 1;
            pmap.shared.attached.fetch_add(1, SeqCst);
            Ok(())
        })
    }

    /// Detaches a page of the area that its page table attaches to the space, and takes it out of the TLBs.
    ///
    /// # Locks
    /// Takes the space's lock, and that of shootdowns.
    ///
    /// # Panics
    /// When it is not attached.
    #[track_caller]
    pub fn area_remove(&self, pmap: &Pmap<M>, page: usize) {
        let (m, format, area) = (&self.machine, &self.kernel.format, self.area());
        let va = area.va(page);
        m.execute(area.config.paths.table);
        m.count(PmapCounter::IcaDetachments, 1);
        let mut flush = TlbFlush::new();
        {
            let mut tables = pmap.shared.tables.lock();
            let Walk::Leaf(slot) = walk(m, format, pmap.shared.root, va) else {
                panic!("{va:?} of the area is detached, and has no page table");
            };
            let old = radix::swap(m, format, slot, None);
            assert!(old.is_some(), "{va:?} of the area is detached, and was not attached");
            m.mapping_changed(pmap.id(), va, old, None, Some(flush.window(m)));
            self.forget_hashed(pmap.shared.hash_tag(), va);
            flush.list(pmap.id(), pmap.shared.tags.as_ref(), va, old);
            tables.resident -= 1;
            pmap.shared.attached.fetch_sub(1, SeqCst);
        }
        if self.area_defect().is(AreaDefect::DetachKeepsEntry) {
            return flush.not_cached(self);
        }
        if area.config.searches && self.tag_here(m.cpu(), pmap.id()).is_some_and(|asid| self.search(asid, va))
        {
            return flush.not_cached(self);
        }
        flush.flush(self);
    }

    /// Looks through all of the TLB for the page, and deletes its entry. False when software cannot, or another CPU may
    /// have it in its own.
    fn search(&self, asid: Asid, va: Va) -> bool {
        if self.active.len() > 1 || !matches!(self.machine.board().mmu, Mmu::Soft { is_readable: true, .. }) {
            return false;
        }
        if self.machine.tlb_search(asid, va).is_some() {
            self.flush_own(Flush::Page(asid, va));
        }
        true
    }

    // ------------------------------------------------------------------------------------------- by reserved entries

    /// Attaches what `what` says to the space that runs here, by reserved entry `slot`.
    ///
    /// # Panics
    /// When there is no such entry, it is in use, or another space runs here.
    #[track_caller]
    pub fn wire(&self, pmap: &Pmap<M>, slot: usize, what: AreaPage) {
        let (m, area) = (&self.machine, self.area());
        let (page, shared) = (what.offset_bytes >> PAGE_SHIFT, &pmap.shared);
        let va = area.va(page) + (what.offset_bytes & (PAGE_SIZE - 1));
        let tte = Tte { frame: area.frame(page), shift: what.shift, attr: ATTACHED };
        assert!(va.0.trailing_zeros() >= u32::from(what.shift), "{what:?} is not aligned to its size");
        let (space, _, asid) = self.active[m.cpu().index()].context();
        assert_eq!(space, shared.id, "an entry is written for a space that does not run here");
        m.execute(area.config.paths.wire);
        m.count(PmapCounter::IcaAttachments, 1);
        let mut held = area.held.lock();
        let place = held.get_mut(slot).unwrap_or_else(|| panic!("entry {slot} is not reserved"));
        assert!(place.is_none(), "reserved entry {slot} is in use");
        m.mapping_changed(shared.id, va, None, Some(tte), None);
        *place = Some(ReservedEntry { shared: shared.clone(), va, tte });
        shared.wired.fetch_add(1, SeqCst);
        self.write_reserved(slot, asid, va, tte);
        if self.area_defect().is(AreaDefect::EntryTwice) {
            m.tlb_load(Slot::Replace, asid, va, tte);
        }
        shared.wired_asid.store(asid.0, SeqCst);
    }

    /// Detaches what reserved entry `slot` attaches.
    ///
    /// # Panics
    /// When it is not in use.
    #[track_caller]
    pub fn unwire(&self, slot: usize) {
        let (m, area) = (&self.machine, self.area());
        m.execute(area.config.paths.unwire);
        m.count(PmapCounter::IcaDetachments, 1);
        m.count(PmapCounter::ReservedWrites, 1);
        let mut all = area.held.lock();
        let held = all.get_mut(slot).and_then(Option::take);
        let ReservedEntry { shared, va, tte } =
            held.unwrap_or_else(|| panic!("reserved entry {slot} is not in use"));
        let window = m.open_flush_window();
        m.mapping_changed(shared.id, va, Some(tte), None, Some(&window));
        let asid = Asid(shared.wired_asid.load(SeqCst));
        let kept = self.area_defect().is(AreaDefect::DetachKeepsEntry);
        let wrong = self.area_defect().is(AreaDefect::DetachOfOtherTag);
        if asid != Asid::KERNEL && !kept {
            self.flush_own(Flush::Page(if wrong { Asid(asid.0 ^ 1) } else { asid }, va));
        }
        m.close_flush_window(window);
        if shared.wired.fetch_sub(1, SeqCst) == 1 {
            shared.wired_asid.store(Asid::KERNEL.0, SeqCst);
        }
    }

    /// True for a miss in the area where reserved entries attach: what is attached is in the TLB, so it is an access to
    /// what is not.
    pub(crate) fn misses_what_is_not_attached(&self, va: Va) -> bool {
        let Some(area) = self.area.as_ref().filter(|area| area.config.reserved > 0) else { return false };
        self.machine.execute(area.config.paths.bounds);
        let begins = va >= area.range.start() || self.area_defect().is(AreaDefect::BelowRefused);
        begins && va < area.range.end()
    }

    /// What reserved entry `slot` maps, and for whom; `None` when it is free.
    pub fn wired(&self, slot: usize) -> Option<(SpaceId, Va, Tte)> {
        let held = self.area().held.lock();
        held[slot].as_ref().map(|held| (held.shared.id, held.va, held.tte))
    }
}
