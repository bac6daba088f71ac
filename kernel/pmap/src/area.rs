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
//! entry is the mapping, no table says so, and a miss in the area is the protection fault. (Yamauchi et al., 2.3.)
//!
//! # Tags
//! A reserved entry carries its space's tag. A tag may be taken away, and given to another space when all have been
//! given ([`crate::asid`]): the entries are written anew when the space comes to run under another tag, and cleared
//! when tags begin anew.
//!
//! # Locks
//! `ReservedEntries` over the reserved entries, above all but the scheduler's: a switch takes it. It is free on
//! machines with several CPUs, where nothing can be reserved. Attaching by a page table takes the space's lock.
//!
//! # What can fail
//! Attaching by a page table, for want of a frame for the table. A reserved entry is the caller's to choose, and free.

use crate::config::{FrameSource, PmapError};
use crate::flush::TlbFlush;
use crate::pmap::{Pmap, Pmaps};
use crate::radix::{self, Walk, walk, walk_or_grow};
use crate::space::Shared;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use pageferry_hal::{
    Asid, Attr, Board, Counter, Flush, LockClass, Machine, Mmu, PAGE_SHIFT, PAGE_SIZE, Pfn, Slot, SpinLock,
    StructVa, Tte, Va, VaRange, paths,
};

/// What a reserved entry maps is used and stored to: a miss that notes it has no place.
const ATTACHED: Attr = Attr::USER.union(Attr::WRITE).union(Attr::REFERENCED).union(Attr::MODIFIED);

paths! {
    /// Path lengths of attaching and detaching. Accesses to page tables are accounted by themselves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AreaPaths {
        /// Writing one reserved entry: its number, address, frame and rights into registers.
        pub wire: Path,
        /// Clearing one reserved entry, besides the access to the TLB's array.
        pub unwire: Path,
        /// Writing or clearing one page-table entry of the area.
        pub table: Path,
    }
}

/// A defect of the area to plant: a pmap with one of these must be caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AreaDefect {
    /// Sound.
    #[default]
    None,
    /// What is detached stays in the TLB.
    DetachKeepsEntry,
    /// What is detached is invalidated under another space's tag.
    DetachOfOtherTag,
    /// What a reserved entry attaches is loaded into another entry as well.
    EntryTwice,
    /// Reserved entries keep the tag of a space that has been given another.
    ReservedKeepTags,
    /// A flush of an address space, or of all, drops reserved entries, too.
    FlushDropsReserved,
}

impl AreaDefect {
    /// All that can be planted.
    pub const ALL: &[AreaDefect] = &[
        AreaDefect::DetachKeepsEntry,
        AreaDefect::DetachOfOtherTag,
        AreaDefect::EntryTwice,
        AreaDefect::ReservedKeepTags,
        AreaDefect::FlushDropsReserved,
    ];

    /// What it does.
    pub const fn sentence(self) -> &'static str {
        match self {
            AreaDefect::None => "no defect",
            AreaDefect::DetachKeepsEntry => "what is detached stays in the TLB",
            AreaDefect::DetachOfOtherTag => "what is detached is invalidated under another space's tag",
            AreaDefect::EntryTwice => "what a reserved entry attaches is loaded into another as well",
            AreaDefect::ReservedKeepTags => {
                "reserved entries keep the tag of a space that has been given another"
            }
            AreaDefect::FlushDropsReserved => "a flush drops reserved entries, too",
        }
    }
}

/// The communication area of a kernel that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaConfig {
    /// Its size, in whole pages.
    pub len_bytes: usize,
    /// Entries of the TLB that are reserved for it: the first ones.
    pub reserved: usize,
    /// A page-table entry's detachment looks through the TLB by software, one entry after the other, where software can
    /// read it.
    pub searches: bool,
    /// Path lengths.
    pub paths: AreaPaths,
    /// A defect to plant; [`AreaDefect::None`] but in tests.
    pub defect: AreaDefect,
}

impl AreaConfig {
    /// The area is aligned as the largest page is that may map it.
    pub const LARGEST_PAGE: usize = 1 << 20;
}

/// What a reserved entry maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaPage {
    /// Where in the area it begins.
    pub offset_bytes: usize,
    /// log2 of the bytes that it maps.
    pub shift: u8,
}

/// A reserved entry in use.
struct Held<M: Machine> {
    shared: Arc<Shared<M>>,
    va: Va,
    tte: Tte,
}

/// The area, and its reserved entries.
pub(crate) struct Area<M: Machine> {
    config: AreaConfig,
    range: VaRange,
    at: StructVa,
    first: Pfn,
    held: M::Lock<Vec<Option<Held<M>>>>,
}

/// Where the area lies in user space; the same for all who ask.
fn range_of(board: &Board, len_bytes: usize) -> VaRange {
    let end = board.layout.user_end.0 & !(AreaConfig::LARGEST_PAGE as u64 - 1);
    let len = len_bytes.next_multiple_of(AreaConfig::LARGEST_PAGE.min(len_bytes.next_power_of_two()));
    let start = Va((end - len as u64) & !(AreaConfig::LARGEST_PAGE as u64 - 1));
    VaRange::pages_from(start, len_bytes / PAGE_SIZE)
}

impl<M: Machine> Area<M> {
    /// # Errors
    /// [`PmapError::BadArea`], [`PmapError::TooManyReserved`], [`PmapError::NoReserved`], [`PmapError::ArenaTooSmall`].
    pub(crate) fn new(
        machine: &M,
        config: AreaConfig,
        arena: &mut pageferry_hal::StructArena,
    ) -> Result<Area<M>, PmapError> {
        let board = machine.board();
        let AreaConfig { len_bytes, reserved, .. } = config;
        if len_bytes == 0 || !len_bytes.is_multiple_of(PAGE_SIZE) || len_bytes > 64 << 20 {
            return Err(PmapError::BadArea { len_bytes });
        }
        match board.reservable_entries() {
            Some(entries) if reserved > 0 && reserved + 2 > entries => {
                return Err(PmapError::TooManyReserved { reserved, entries });
            }
            None if reserved > 0 => return Err(PmapError::NoReserved { reserved }),
            _ => {}
        }
        let at = arena.aligned_array("communication area", len_bytes, AreaConfig::LARGEST_PAGE)?;
        let first = pageferry_hal::Pa((at.0 - board.layout.kernel_base) as u64).pfn();
        let held = machine.new_lock(LockClass::RESERVED_ENTRIES, (0..reserved).map(|_| None).collect());
        Ok(Area { config, range: range_of(&board, len_bytes), at, first, held })
    }

    fn va(&self, page: usize) -> Va {
        assert!(page < self.range.len_pages(), "page {page} of an area of {}", self.range.len_pages());
        self.range.start() + (page << PAGE_SHIFT)
    }

    fn frame(&self, page: usize) -> Pfn {
        Pfn(self.first.0 + page as u32)
    }
}

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

    fn area(&self) -> &Area<M> {
        self.area.as_ref().expect("this kernel has a communication area")
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
        m.count(Counter::IcaAttachments, 1);
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
        m.count(Counter::IcaDetachments, 1);
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
        if self.area_defect() == AreaDefect::DetachKeepsEntry {
            return flush.not_cached(self);
        }
        if area.config.searches && self.tag_here(m.cpu(), pmap.id()).is_some_and(|asid| self.search(asid, va))
        {
            return flush.not_cached(self);
        }
        flush.flush(self);
    }

    /// Looks through the TLB for the page, and deletes its entry. False when software cannot, or another CPU may have
    /// it in its own.
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
        m.count(Counter::IcaAttachments, 1);
        let mut held = area.held.lock();
        let place = held.get_mut(slot).unwrap_or_else(|| panic!("entry {slot} is not reserved"));
        assert!(place.is_none(), "reserved entry {slot} is in use");
        m.mapping_changed(shared.id, va, None, Some(tte), None);
        *place = Some(Held { shared: shared.clone(), va, tte });
        shared.wired.fetch_add(1, SeqCst);
        self.write_reserved(slot, asid, va, tte);
        if self.area_defect() == AreaDefect::EntryTwice {
            m.tlb_load(Slot::Replace, asid, va, tte);
        }
        shared.wired_asid.store(asid.0, SeqCst);
    }

    fn write_reserved(&self, slot: usize, asid: Asid, va: Va, tte: Tte) {
        self.machine.count(Counter::ReservedWrites, 1);
        self.machine.tlb_load(Slot::Reserved(slot), asid, va, tte);
    }

    /// Detaches what reserved entry `slot` attaches.
    ///
    /// # Panics
    /// When it is not in use.
    #[track_caller]
    pub fn unwire(&self, slot: usize) {
        let (m, area) = (&self.machine, self.area());
        m.execute(area.config.paths.unwire);
        m.count(Counter::IcaDetachments, 1);
        m.count(Counter::ReservedWrites, 1);
        let mut all = area.held.lock();
        let held = all.get_mut(slot).and_then(Option::take);
        let Held { shared, va, tte } = held.unwrap_or_else(|| panic!("reserved entry {slot} is not in use"));
        let window = m.open_flush_window();
        m.mapping_changed(shared.id, va, Some(tte), None, Some(&window));
        let asid = Asid(shared.wired_asid.load(SeqCst));
        let kept = self.area_defect() == AreaDefect::DetachKeepsEntry;
        let wrong = self.area_defect() == AreaDefect::DetachOfOtherTag;
        if asid != Asid::KERNEL && !kept {
            self.flush_own(Flush::Page(if wrong { Asid(asid.0 ^ 1) } else { asid }, va));
        }
        m.close_flush_window(window);
        if shared.wired.fetch_sub(1, SeqCst) == 1 {
            shared.wired_asid.store(Asid::KERNEL.0, SeqCst);
        }
    }

    /// Tags have begun anew: what the reserved entries say of spaces is out of date.
    pub(crate) fn clear_reserved(&self) {
        let Some(area) = self.area.as_ref().filter(|area| area.config.reserved > 0) else { return };
        if self.area_defect() == AreaDefect::ReservedKeepTags {
            return;
        }
        let held = area.held.lock();
        for held in held.iter().flatten() {
            let asid = Asid(held.shared.wired_asid.load(SeqCst));
            if asid != Asid::KERNEL {
                self.machine.count(Counter::ReservedWrites, 1);
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
        if self.area_defect() == AreaDefect::ReservedKeepTags {
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

    /// What reserved entry `slot` maps, and for whom; `None` when it is free.
    pub fn wired(&self, slot: usize) -> Option<(pageferry_hal::SpaceId, Va, Tte)> {
        let held = self.area().held.lock();
        held[slot].as_ref().map(|held| (held.shared.id, held.va, held.tte))
    }

    /// Reserves what the area wants of the own TLB.
    pub(crate) fn reserve_entries(&self) {
        if let Some(area) = self.area.as_ref().filter(|area| area.config.reserved > 0) {
            self.machine.tlb_reserve(area.config.reserved);
        }
    }

    pub(crate) fn area_defect(&self) -> AreaDefect {
        self.area.as_ref().map_or(AreaDefect::None, |area| area.config.defect)
    }

    /// Entries of the TLB that are reserved.
    pub fn reserved_entries(&self) -> usize {
        self.area.as_ref().map_or(0, |area| area.config.reserved)
    }
}
