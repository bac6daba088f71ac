//! The table of frames: one `vm_page` for each frame of physical memory (UVM paper, 3.1).
//!
//! A frame is in exactly one state, and the state is its owner: none (free), the kernel, one anon, one page of an
//! object, or none although it is still in use (orphan: its owner released it while it was wired or lent; it is freed
//! with its last wire and loan, UVM paper, 4.1.2). Owners are weak references, so that the page daemon, which starts
//! from a frame, can find the owner's lock. Frames name owners and owners name frames, as in NetBSD; the types of anon
//! and object know nothing of this table, so the circle is one of values and not of files. Beside the owner stand the
//! wire count (the frame must stay where it is) and the loan count (its bytes must stay as they are).
//!
//! Everything lies under one lock of class `PageQueues`; no call here takes another lock. The only failure is that no
//! frame is free. Where pages have colours there is a free list for each (`free`), and a frame is taken, if there is
//! one, of the colour of the page that it is for: where caches are looked up by addresses, the kernel's address of it
//! and the user's agree then ([`Pmaps::claim`](pageferry_pmap::Pmaps::claim)); where they are not, pages that follow
//! each other lie beside each other in a cache. A frame comes off the free list with the bytes of its last owner:
//! the caller that allocates it must clear or overwrite all of it. Before a frame is given back, no mapping of it
//! stands and none is cached in a TLB.

use super::hash::PageHash;
use crate::anon::Anon;
use crate::config::{FreeLists, LoanLocking, PagingConfig, VmConfig, VmPaths};
use crate::counter::VmCounter;
use crate::error::VmError;
use crate::object::Object;
use crate::probe::{Probes, VmDefect};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use pageferry_hal::{
    Access, Board, Cause, IndexList, Level, Links, LockClass, Machine, MemoryUse, Pfn, SpinLock, StructArena,
    StructVa,
};
use pageferry_pmap::FrameSource;

/// What the kernel uses a frame for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelUse {
    /// It was in use before this floor came up: the arena of structures, the first page tables.
    Boot,
    /// A page table.
    PageTable,
    /// Data on its way: clusters of mbufs, a driver's buffers.
    Data,
    /// Memory that the kernel allocated for itself.
    Memory,
}

/// The state of a frame, without its owner's identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameState {
    /// On the free list.
    Free,
    /// The kernel's.
    Kernel(KernelUse),
    /// An anon's.
    Anon,
    /// An object's.
    Object,
    /// Without an owner, and freed with its last wire and loan.
    Orphan,
}

/// What the table says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameInfo {
    /// Its state.
    pub state: FrameState,
    /// Reasons why it must stay resident.
    pub wire_count: u32,
    /// Borrowers of its contents.
    pub loan_count: u32,
}

/// The paging queue that a frame is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Queue {
    /// None of them.
    #[default]
    None,
    /// That of frames in use.
    Active,
    /// That of frames to be taken next, unless they are used before.
    Inactive,
}

/// The owner of a frame.
pub(crate) enum Owner<M: Machine> {
    Free,
    Kernel(KernelUse),
    Anon(Weak<Anon<M>>),
    /// The object, and the page of it.
    Object(Weak<Object<M>>, u64),
    Orphan,
}

impl<M: Machine> Owner<M> {
    fn state(&self) -> FrameState {
        match self {
            Owner::Free => FrameState::Free,
            Owner::Kernel(kernel_use) => FrameState::Kernel(*kernel_use),
            Owner::Anon(_) => FrameState::Anon,
            Owner::Object(..) => FrameState::Object,
            Owner::Orphan => FrameState::Orphan,
        }
    }

    /// What a frame of this owner is for; none where that does not change.
    fn memory_use(&self) -> Option<MemoryUse> {
        match self {
            Owner::Free | Owner::Orphan => None,
            Owner::Kernel(KernelUse::Boot) => Some(MemoryUse::Data),
            Owner::Kernel(KernelUse::PageTable) => Some(MemoryUse::Tables),
            Owner::Kernel(KernelUse::Data | KernelUse::Memory) => Some(MemoryUse::Buffers),
            Owner::Anon(_) => Some(MemoryUse::Programs),
            Owner::Object(..) => Some(MemoryUse::Files),
        }
    }
}

/// The `vm_page`.
pub(crate) struct Frame<M: Machine> {
    pub(crate) owner: Owner<M>,
    pub(crate) wire_count: u32,
    /// Loans to the kernel, each with a wire, and one for the borrower.
    pub(crate) loan_count: u32,
    /// The anon that has this frame on loan from the object that owns it.
    pub(crate) borrower: Option<Weak<Anon<M>>>,
    /// It is being filled or written out, or was just made; until that is over it is not taken, wired or lent, and only
    /// the thread that works on it frees it.
    pub(crate) busy: bool,
    /// The kernel knows that its bytes are not those of its place on the disk. (Stores through user mappings the page
    /// tables know.)
    pub(crate) dirty: bool,
    /// See `queues`.
    pub(crate) queue: Queue,
}

impl<M: Machine> Frame<M> {
    pub(super) fn new(owner: Owner<M>, wire_count: u32) -> Frame<M> {
        Frame {
            owner,
            wire_count,
            loan_count: 0,
            borrower: None,
            busy: false,
            dirty: false,
            queue: Queue::None,
        }
    }

    pub(crate) fn info(&self) -> FrameInfo {
        FrameInfo { state: self.owner.state(), wire_count: self.wire_count, loan_count: self.loan_count }
    }
    /// Loans to the kernel.
    pub(crate) fn kernel_loans(&self) -> u32 {
        self.loan_count - u32::from(self.borrower.is_some())
    }
    /// True when the frame is wired by others than its loans to the kernel: they may be writing it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.wire_count > self.kernel_loans()
    }
    /// True when its object has let it go, and its borrower has not adopted it yet ([`LoanLocking::Published`]).
    pub(crate) fn awaits_adoption(&self) -> bool {
        matches!(self.owner, Owner::Orphan) && self.borrower.is_some()
    }
    /// True when the page daemon may take the frame.
    pub(crate) fn is_pageable(&self) -> bool {
        let owned = matches!(self.owner, Owner::Anon(_) | Owner::Object(..)) || self.awaits_adoption();
        owned && self.wire_count == 0 && !self.busy
    }
    /// True when a wire or a loan still needs the frame.
    pub(super) fn is_held(&self) -> bool {
        self.wire_count > 0 || self.loan_count > 0
    }
}

/// The contents of the table, under its lock.
pub(super) struct Table<M: Machine> {
    /// The frames that were ever in use; those behind them are free, and like `fresh`. So a large memory costs what is
    /// used of it.
    pub(super) frames: Vec<Frame<M>>,
    fresh: Frame<M>,
    /// How many frames there are.
    pub(super) len: usize,
    /// The places of the same frames on the free list or a paging queue: a frame is on one of the three, or on none.
    pub(super) links: Vec<Links>,
    /// By colour.
    pub(super) free: Vec<IndexList>,
    /// The colour that was chosen last for whoever wanted none.
    pub(super) next_colour: u32,
    pub(super) active: IndexList,
    pub(super) inactive: IndexList,
    /// The frame from which on the next row of free ones is looked for.
    pub(super) next_row: usize,
    /// Wires that callers hold (as against those that stand for the kernel's own frames).
    pub(super) held_wires: u64,
}

/// The table, its lock, and what its accounting needs.
pub(crate) struct Frames<M: Machine> {
    pub(super) machine: M,
    pub(super) paths: VmPaths,
    /// Where the array of `vm_page` lies.
    array: StructVa,
    page_bytes: usize,
    pub(super) hash: Option<PageHash>,
    /// How many colours pages have. See `colour`.
    pub(crate) colours: u32,
    /// They have them by their addresses, and not by what they belong to.
    pub(super) by_address: bool,
    /// The colour of the next object's first page.
    pub(super) first_colour: AtomicU32,
    pub(super) lists: FreeLists,
    pub(super) loan_locking: LoanLocking,
    pub(super) probes: Probes,
    /// `None`: no page daemon will look, and paging queues are not kept.
    paging: Option<PagingConfig>,
    /// The length of the free list, to be looked at without the lock.
    free_now: AtomicUsize,
    /// Allocations that were refused because too few frames are free.
    refusals: AtomicU32,
    table: M::Lock<Table<M>>,
}

/// The table, locked.
pub(crate) struct FramesGuard<'a, M: Machine> {
    pub(super) frames: &'a Frames<M>,
    pub(super) table: <M::Lock<Table<M>> as SpinLock<Table<M>>>::Guard<'a>,
}

/// Which free frame is to be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WantedFrame {
    /// The first one.
    First {
        /// Of this colour, if there is one; of none, of the next one in turn.
        colour: Option<u32>,
        /// It is going to be cleared.
        clear: bool,
    },
    /// This one.
    This(Pfn),
}

impl WantedFrame {
    /// For whoever has no colour: the kernel itself, as a rule.
    pub(crate) const ANY: WantedFrame = WantedFrame::First { colour: None, clear: false };

    /// One of a colour, where pages have colours, for bytes that are there.
    pub(crate) fn of(colour: Option<u32>) -> WantedFrame {
        WantedFrame::First { colour, clear: false }
    }

    /// One that is going to be cleared.
    pub(crate) fn clear(colour: Option<u32>) -> WantedFrame {
        WantedFrame::First { colour, clear: true }
    }
}

/// Where wire and loan count lie in a `vm_page`: one line of it, not all, is touched for them.
const COUNTS_OFFSET: usize = 40;
const COUNTS_BYTES: usize = 8;

impl<M: Machine> Frames<M> {
    /// A table in which the frames from `first_free` on are free; lower numbers are used first.
    pub(crate) fn new(
        machine: M,
        config: &VmConfig,
        board: Board,
        arena: &mut StructArena,
        first_free: Pfn,
        probes: Probes,
    ) -> Result<Frames<M>, VmError> {
        let page_bytes = config.sizes_on(board).page_bytes;
        if first_free.index() >= board.frames {
            return Err(VmError::NoMemory);
        }
        let array = arena.array("vm_page", board.frames, page_bytes)?;
        let hash = if config.has_page_hash() { Some(PageHash::new(board, arena)?) } else { None };
        let first_free = first_free.index();
        let mut frames = Vec::with_capacity(board.frames);
        frames.extend((0..first_free).map(|_| Frame::new(Owner::Kernel(KernelUse::Boot), 1)));
        let mut links = Vec::with_capacity(board.frames);
        links.resize(first_free, Links::UNLINKED);
        let VmConfig { paths, paging, lists, loan_locking, .. } = *config;
        let by_address = board.colours > 1;
        let colours = if by_address { board.colours } else { lists.colours.max(1) };
        assert!(colours.is_power_of_two(), "{colours} colours are no power of two");
        let table = Table {
            frames,
            fresh: Frame::new(Owner::Free, 0),
            len: board.frames,
            links,
            free: alloc::vec![IndexList::new(); colours as usize],
            next_colour: 0,
            active: IndexList::new(),
            inactive: IndexList::new(),
            next_row: first_free,
            held_wires: 0,
        };
        let (free_now, refusals) = (AtomicUsize::new(table.free_count()), AtomicU32::new(0));
        machine.trace_level(Level::FreeFrames, table.free_count() as i64);
        let table = machine.new_lock(LockClass::PAGE_QUEUES, table);
        Ok(Frames {
            machine,
            paths,
            array,
            page_bytes,
            hash,
            colours,
            by_address,
            first_colour: AtomicU32::new(0),
            lists,
            loan_locking,
            probes,
            paging,
            free_now,
            refusals,
            table,
        })
    }

    /// Where its `vm_page` lies.
    pub(super) fn page_at(&self, frame: Pfn) -> StructVa {
        self.array.element(frame.index(), self.page_bytes)
    }

    pub(crate) fn lock(&self) -> FramesGuard<'_, M> {
        FramesGuard { frames: self, table: self.table.lock() }
    }

    /// Takes a frame off the free list for `owner`. Its bytes are those of its last owner.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]: also when the one that is wanted is in use.
    pub(crate) fn alloc(&self, owner: Owner<M>, wanted: WantedFrame) -> Result<Pfn, VmError> {
        let _c = self.machine.scope(Cause::Frame);
        if self.probes.failures.due() {
            return Err(VmError::NoMemory);
        }
        self.lock().alloc(owner, wanted)
    }

    /// The owner lets a frame go. No mapping of it may be left in any TLB.
    pub(crate) fn disown(&self, frame: Pfn) {
        let _c = self.machine.scope(Cause::Frame);
        self.lock().disown(frame);
    }

    /// The thread that works on a busy frame gives it back: its maker, before any other can find it, or the page
    /// daemon, with its contents on the disk. No mapping of it may be left in any TLB.
    pub(crate) fn free_busy(&self, frame: Pfn) {
        let _c = self.machine.scope(Cause::Frame);
        self.lock().free_busy(frame);
    }

    /// As [`Frames::disown`], by an anon that owns the frame or has it on loan.
    pub(crate) fn release(&self, frame: Pfn, anon: &Anon<M>) {
        let _c = self.machine.scope(Cause::Frame);
        self.lock().release(frame, anon);
    }

    /// Gives back a frame of the kernel's.
    pub(crate) fn free_kernel(&self, frame: Pfn, kernel_use: KernelUse) {
        let _c = self.machine.scope(Cause::Frame);
        self.lock().free_kernel(frame, kernel_use);
    }

    /// The loan count. While the frame's owner is locked it does not leave zero; it may fall to it.
    pub(crate) fn loan_count(&self, frame: Pfn) -> u32 {
        let table = self.lock();
        table.touch_counts(frame, Access::Read);
        table.get(frame).loan_count
    }

    /// Frames on the free list.
    pub(crate) fn free_count(&self) -> usize {
        self.table.lock().free_count()
    }

    /// Wires that callers hold.
    pub(crate) fn held_wires(&self) -> u64 {
        self.table.lock().held_wires
    }

    /// Frames on the free list a moment ago, without the lock.
    pub(crate) fn free_now(&self) -> usize {
        self.free_now.load(Ordering::Relaxed)
    }

    /// Allocations so far that were refused because too few frames are free: if the number has changed since the caller
    /// read it, a [`VmError::NoMemory`] can be waited out.
    pub(crate) fn refusals(&self) -> u32 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// The maker of a frame has done with it: from here on it can be taken.
    pub(crate) fn publish(&self, frame: Pfn) {
        if self.paging.is_some() {
            self.lock().set_busy(frame, false);
        }
    }
}

impl<M: Machine> FramesGuard<'_, M> {
    /// True when there are paging queues.
    pub(crate) fn keeps_queues(&self) -> bool {
        self.frames.paging.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len
    }

    /// The frames that were ever in use; all others are free.
    pub(crate) fn known(&self) -> impl Iterator<Item = (Pfn, &Frame<M>)> {
        self.table.frames.iter().enumerate().map(|(i, f)| (Pfn(i as u32), f))
    }

    /// Frames that were never in use.
    pub(crate) fn fresh_count(&self) -> usize {
        self.table.fresh_count()
    }

    /// # Panics
    /// When the machine has no such frame.
    pub(crate) fn get(&self, frame: Pfn) -> &Frame<M> {
        assert!(frame.index() < self.table.len, "the machine has no {frame:?}");
        self.table.frames.get(frame.index()).unwrap_or(&self.table.fresh)
    }

    /// # Panics
    /// When the frame was never in use.
    pub(crate) fn get_mut(&mut self, frame: Pfn) -> &mut Frame<M> {
        self.frames.probes.journal.frame(frame);
        &mut self.table.frames[frame.index()]
    }

    pub(super) fn touch(&self, frame: Pfn) {
        let f = self.frames;
        f.machine.touch(f.page_at(frame), f.page_bytes, Access::Write);
    }

    /// Tells the machine what the frame is for, after its owner has changed.
    pub(super) fn tell_use(&self, frame: Pfn) {
        if let Some(what) = self.get(frame).owner.memory_use() {
            self.frames.machine.set_frame_use(frame, what);
        }
    }

    pub(crate) fn touch_counts(&self, frame: Pfn, access: Access) {
        let f = self.frames;
        f.machine.touch(StructVa(f.page_at(frame).0 + COUNTS_OFFSET), COUNTS_BYTES, access);
    }

    pub(super) fn alloc(&mut self, owner: Owner<M>, wanted: WantedFrame) -> Result<Pfn, VmError> {
        assert!(!matches!(owner, Owner::Free | Owner::Orphan), "a frame is allocated for an owner");
        self.frames.machine.execute(self.frames.paths.frame);
        let wired = matches!(owner, Owner::Kernel(_));
        let reserve_pages = match &self.frames.paging {
            Some(paging) if wired => paging.daemon_reserve_pages,
            Some(paging) => paging.kernel_reserve_pages,
            None => 0,
        };
        // Who has the lock has it exactly, and adds up no lists.
        let free = self.frames.free_now();
        if free <= reserve_pages {
            self.frames.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(VmError::NoMemory);
        }
        let frame = match wanted {
            WantedFrame::First { colour, clear } => {
                let lists = self.frames.lists;
                self.table.take_first(&lists, colour, clear)
            }
            WantedFrame::This(frame) => self.unlist(frame)?,
        };
        self.touch(frame);
        let busy = self.keeps_queues() && !wired;
        let f = self.get_mut(frame);
        assert!(matches!(f.owner, Owner::Free) && !f.is_held(), "{frame:?} is on the free list but in use");
        f.owner = owner;
        f.wire_count = u32::from(wired);
        f.busy = busy;
        f.dirty = true;
        self.list_changes(frame);
        self.tell_use(frame);
        self.frames.free_now.store(free - 1, Ordering::Relaxed);
        self.frames.machine.count(VmCounter::FramesAllocated, 1);
        self.frames.machine.trace_level(Level::FreeFrames, -1);
        Ok(frame)
    }

    pub(super) fn push_free(&mut self, frame: Pfn) {
        self.frames.machine.execute(self.frames.paths.frame);
        self.touch(frame);
        self.list_changes(frame);
        let f = self.get_mut(frame);
        assert!(!matches!(f.owner, Owner::Free), "{frame:?} is freed twice");
        assert!(!f.is_held() && f.borrower.is_none(), "{frame:?} is freed while wired or lent");
        assert!(!f.busy, "{frame:?} is freed while busy");
        f.owner = Owner::Free;
        // It leaves its paging queue first: it is on one list at most.
        self.place(frame);
        let lists = self.frames.lists;
        self.table.list_free(&lists, frame);
        self.frames.free_now.store(self.frames.free_now() + 1, Ordering::Relaxed);
        self.frames.machine.count(VmCounter::FramesFreed, 1);
        self.frames.machine.trace_level(Level::FreeFrames, 1);
    }

    pub(crate) fn disown(&mut self, frame: Pfn) {
        let adopts_now = self.frames.loan_locking == LoanLocking::OneStep;
        let (early, forget) = (
            self.frames.probes.planted.is(VmDefect::LentFrameFreed),
            self.frames.probes.planted.is(VmDefect::BorrowerForgotten),
        );
        let f = self.get_mut(frame);
        assert!(matches!(f.owner, Owner::Anon(_) | Owner::Object(..)), "{frame:?} has no owner to let it go");
        assert!(!f.busy, "{frame:?} is released while busy");
        if early && f.wire_count == 0 && f.loan_count > 0 {
            (f.loan_count, f.borrower) = (0, None);
        }
        if forget && f.borrower.take().is_some() {
            f.loan_count -= 1;
        }
        if let Some(borrower) = f.borrower.take_if(|_| adopts_now) {
            assert!(matches!(f.owner, Owner::Object(..)), "{frame:?} is on loan from an object");
            self.list_changes(frame);
            let f = self.get_mut(frame);
            f.owner = Owner::Anon(borrower);
            f.loan_count -= 1;
            self.frames.machine.trace_level(Level::Loans, -1);
            self.touch(frame);
            self.place(frame);
        } else if f.is_held() {
            self.list_changes(frame);
            self.get_mut(frame).owner = Owner::Orphan;
            self.touch(frame);
            self.place(frame);
        } else {
            self.push_free(frame);
        }
    }

    /// Before: the frame is busy, without wire, loan or borrower. After: it is free.
    pub(crate) fn free_busy(&mut self, frame: Pfn) {
        let busy = self.keeps_queues();
        let f = self.get_mut(frame);
        assert!(
            matches!(f.owner, Owner::Anon(_) | Owner::Object(..)),
            "{frame:?} has no owner to give it back"
        );
        assert!(f.busy == busy, "{frame:?} is given back but not busy");
        f.busy = false;
        self.push_free(frame);
    }

    pub(crate) fn release(&mut self, frame: Pfn, anon: &Anon<M>) {
        let kept = self.frames.probes.planted.is(VmDefect::BorrowedOrphanKept);
        let f = self.get_mut(frame);
        let is = |weak: &Weak<Anon<M>>| core::ptr::eq(weak.as_ptr(), anon);
        if matches!(&f.owner, Owner::Anon(owner) if is(owner)) {
            return self.disown(frame);
        }
        assert!(f.borrower.as_ref().is_some_and(is), "{frame:?} is not this anon's");
        f.borrower = None;
        f.loan_count -= 1;
        self.frames.machine.trace_level(Level::Loans, -1);
        self.touch_counts(frame, Access::Write);
        let f = self.get(frame);
        match (&f.owner, f.is_held()) {
            (Owner::Object(..), _) => {}
            (Owner::Orphan, true) => self.place(frame),
            (Owner::Orphan, false) if kept => {}
            (Owner::Orphan, false) => self.push_free(frame),
            (Owner::Free | Owner::Kernel(_) | Owner::Anon(_), _) => {
                panic!("{frame:?} is on loan from nobody")
            }
        }
    }

    /// True when `anon` owns the frame, and does not have it on loan.
    pub(crate) fn is_owned_by(&self, frame: Pfn, anon: &Arc<Anon<M>>) -> bool {
        matches!(&self.get(frame).owner, Owner::Anon(owner) if core::ptr::eq(owner.as_ptr(), Arc::as_ptr(anon)))
    }

    /// Makes an anon's frame the page `page` of an object. With `borrower` the anon has it on loan from then on, and
    /// nothing may map it writable any more.
    pub(crate) fn give_to_object(
        &mut self,
        frame: Pfn,
        object: &Arc<Object<M>>,
        page: u64,
        borrower: Option<&Arc<Anon<M>>>,
    ) {
        let f = self.get_mut(frame);
        assert!(matches!(f.owner, Owner::Anon(_)) && f.borrower.is_none(), "{frame:?} is no anon's own");
        f.owner = Owner::Object(Arc::downgrade(object), page);
        f.dirty = true;
        self.touch(frame);
        self.list_changes(frame);
        if let Some(anon) = borrower {
            self.lend_to_anon(frame, anon);
        }
        self.place(frame);
    }

    /// A frame of one object becomes page `page` of another, and is mapped as it was.
    pub(crate) fn rename(&mut self, frame: Pfn, object: &Arc<Object<M>>, page: u64) {
        let f = self.get_mut(frame);
        assert!(matches!(f.owner, Owner::Object(..)) && f.borrower.is_none(), "{frame:?} is no object's own");
        self.list_changes(frame);
        self.get_mut(frame).owner = Owner::Object(Arc::downgrade(object), page);
        self.touch(frame);
        self.list_changes(frame);
    }

    /// Gives an orphan, or a frame of the kernel's data, to an anon.
    pub(crate) fn adopt(&mut self, frame: Pfn, anon: &Arc<Anon<M>>) {
        let f = self.get_mut(frame);
        match f.owner {
            Owner::Orphan => assert!(f.is_held(), "{frame:?} has neither owner nor user"),
            Owner::Kernel(KernelUse::Data) => {
                assert!(f.wire_count == 1 && f.loan_count == 0, "{frame:?} is still wired or lent");
                f.wire_count = 0;
            }
            _ => panic!("{frame:?} has an owner and cannot be adopted"),
        }
        self.own(frame, anon);
    }

    /// Gives a frame of the kernel's data to an anon. The wire that the kernel had is a caller's from now on.
    pub(crate) fn adopt_wired(&mut self, frame: Pfn, anon: &Arc<Anon<M>>) {
        let f = self.get(frame);
        assert!(
            matches!(f.owner, Owner::Kernel(KernelUse::Data)),
            "{frame:?} is not the kernel's to give away"
        );
        assert!(f.wire_count == 1 && f.loan_count == 0, "{frame:?} is wired twice, or lent");
        self.table.held_wires += 1;
        self.frames.machine.count(VmCounter::FramesWired, 1);
        self.own(frame, anon);
    }

    /// Makes the frame of an anon, of which nothing is mapped any more, the kernel's for data: if it is the anon's own,
    /// and nobody else's. True if so.
    pub(crate) fn reclaim(&mut self, frame: Pfn, anon: &Anon<M>) -> bool {
        let f = self.get_mut(frame);
        let own = matches!(&f.owner, Owner::Anon(owner) if core::ptr::eq(owner.as_ptr(), anon));
        if !own || f.is_held() || f.borrower.is_some() || f.busy {
            return false;
        }
        (f.owner, f.wire_count) = (Owner::Kernel(KernelUse::Data), 1);
        self.touch(frame);
        self.place(frame);
        true
    }

    /// A frame that its owner has let go is the anon's.
    fn own(&mut self, frame: Pfn, anon: &Arc<Anon<M>>) {
        let f = self.get_mut(frame);
        f.owner = Owner::Anon(Arc::downgrade(anon));
        f.dirty = true;
        self.touch(frame);
        self.place(frame);
    }

    fn free_kernel(&mut self, frame: Pfn, kernel_use: KernelUse) {
        let f = self.get_mut(frame);
        assert!(
            matches!(f.owner, Owner::Kernel(u) if u == kernel_use),
            "{frame:?} is no {kernel_use:?} frame"
        );
        assert!(f.wire_count == 1 && f.loan_count == 0, "{frame:?} is still wired or lent");
        f.wire_count = 0;
        self.push_free(frame);
    }

    /// Adds a wire that a caller holds.
    pub(crate) fn wire(&mut self, frame: Pfn) {
        self.frames.machine.execute(self.frames.paths.wire);
        self.touch_counts(frame, Access::Write);
        let f = self.get_mut(frame);
        assert!(!matches!(f.owner, Owner::Free), "{frame:?} is free and cannot be wired");
        f.wire_count = f.wire_count.checked_add(1).expect("wire count overflows");
        self.place(frame);
        self.table.held_wires += 1;
        self.frames.machine.count(VmCounter::FramesWired, 1);
    }

    /// Takes one such wire off; an orphan is freed with the last one.
    pub(crate) fn unwire(&mut self, frame: Pfn) {
        if self.drop_wire(frame) {
            self.push_free(frame);
        }
    }

    /// Takes one such wire off; true when the frame has neither owner nor user any more.
    pub(super) fn drop_wire(&mut self, frame: Pfn) -> bool {
        self.frames.machine.execute(self.frames.paths.wire);
        self.touch_counts(frame, Access::Write);
        let f = self.get_mut(frame);
        assert!(f.wire_count > 0, "{frame:?} is unwired but not wired");
        assert!(!matches!(f.owner, Owner::Free | Owner::Kernel(_)), "{frame:?} is not wired for a caller");
        f.wire_count -= 1;
        let last_of_orphan = matches!(f.owner, Owner::Orphan) && !f.is_held();
        self.table.held_wires -= 1;
        self.frames.machine.count(VmCounter::FramesUnwired, 1);
        if !last_of_orphan {
            self.place(frame);
        }
        last_of_orphan
    }

    /// Length of the free list, walked, with the frames that were never in use.
    ///
    /// # Panics
    /// When the list is linked wrongly, or leads to a frame that is not free.
    pub(crate) fn walk_free(&self) -> usize {
        let mut listed = 0;
        for (colour, free) in self.table.free.iter().enumerate() {
            listed += free.check(&self.table.links).expect("the free list is one");
            for frame in free.iter(&self.table.links).map(Pfn) {
                assert!(matches!(self.get(frame).owner, Owner::Free), "{frame:?} is on the free list");
                assert!(
                    frame.index() % self.table.free.len() == colour,
                    "{frame:?} is on the list of a colour"
                );
            }
        }
        self.fresh_count() + listed
    }

    pub(crate) fn free_count(&self) -> usize {
        self.table.free_count()
    }

    pub(crate) fn held_wires(&self) -> u64 {
        self.table.held_wires
    }
}

/// Page tables take their frames here.
impl<M: Machine> FrameSource for Frames<M> {
    /// # Locks
    /// Takes the page queues; no lock of a higher class may be held.
    fn take(&self) -> Option<Pfn> {
        self.alloc(Owner::Kernel(KernelUse::PageTable), WantedFrame::clear(None)).ok()
    }

    fn give(&self, frame: Pfn) {
        self.free_kernel(frame, KernelUse::PageTable);
    }
}
