//! Pagers: moving an object's pages between frames and the disk (`uvm_pagerops`, UVM paper, 3.1).
//!
//! The *home* of a page is where its contents are when no frame has them: a slot of the swap area, a block of a file,
//! or nowhere yet, when it is clear or a [`crate::Pager`] supplies it. *Get* brings a page in, with those behind it
//! whose homes follow on the disk. *Put* for a file writes pages to their blocks; it is `clean` here, for `msync`, and
//! the page daemon's for pages that it takes. A file has all its blocks from the moment in which it grows: so putting a
//! page never fails for want of room.
//!
//! Nothing here is called with a lock held; everything may sleep. A page is busy as long as it moves. The disk can
//! fail: then a page that was to come is not there, and one that was to go stays, dirty.
//!
//! To clean a page takes no write permission from it. Its modified bits are cleared and flushed first; a store while
//! the disk reads sets them again, and the page is written again next time. (Its frame is wired meanwhile.)

use super::object::{Backing, Block, Object, ObjectPageError, ObjectState, Store, VnodePager};
use crate::error::VmError;
use crate::page::{Owner, SwapSlot, WantedFrame, Wired};
use crate::vm::Vm;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Pfn, Prot, Threads, Transfer};
use pageferry_pmap::TlbFlush;

/// Where a page's contents are on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    Slot(SwapSlot),
    Block(u64),
    /// With a file system, wherever that has it.
    Vnode,
}

impl Home {
    fn block(self) -> Option<u64> {
        match self {
            Home::Slot(slot) => Some(slot.block()),
            Home::Block(at) => Some(at),
            Home::Vnode => None,
        }
    }
}

/// Pages that move together: the number of the first, and the frames.
struct Run {
    first: u64,
    /// Where the first is on the disk; nothing for a page that a file system has, which moves alone.
    block: Option<u64>,
    frames: Vec<Pfn>,
}

impl Run {
    fn pages(&self) -> Range<u64> {
        self.first..self.first + self.frames.len() as u64
    }
}

impl<M: Machine> Object<M> {
    /// Where page `page` is on the disk; `None` when it is clear or a pager supplies it.
    fn home(&self, state: &ObjectState, page: u64) -> Option<Home> {
        if let Some(&slot) = state.swap.get(&page) {
            return Some(Home::Slot(slot));
        }
        match &self.store {
            Store::Vnode(_) => Some(Home::Vnode),
            Store::Disk => {
                let block = state.blocks.get(page as usize)?;
                block.written.then_some(Home::Block(block.at))
            }
            Store::Memory(_) | Store::Device | Store::Window | Store::Internal => None,
        }
    }

    /// True when bringing `page` in means waiting for the disk.
    pub(crate) fn is_on_disk(&self, state: &ObjectState, page: u64) -> bool {
        self.home(state, page).is_some()
    }

    /// Sees to it that `page` is resident, or was: on return the caller retries. Up to `read_ahead` pages behind it
    /// come along.
    ///
    /// # Errors
    /// [`VmError::Io`]; [`VmError::NoMemory`] when there is no frame and waiting does not help.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        vm: &Vm<M>,
        t: &dyn Threads,
        page: u64,
        read_ahead: usize,
    ) -> Result<(), VmError> {
        let _c = vm.machine().scope(Cause::Fault);
        {
            let state = self.lock();
            if state.refs() == 0 {
                return Ok(());
            }
            if state.busy().contains(&page) {
                self.wait_for_moves(t, state);
                return Ok(());
            }
        }
        let wanted = WantedFrame::of(vm.frames().colour_of_page(self.first_colour, page));
        let frame = vm.frame_or_wait(t, || Owner::Object(Arc::downgrade(self), page), wanted)?;
        let Some(run) = self.begin_get(vm, page, frame, read_ahead) else {
            vm.frames().free_busy(frame);
            return Ok(());
        };
        let alone = run.frames.len() == 1;
        match self.get(vm, t, run) {
            // The fault may be a neighbour's.
            Err(_) if !alone => self.fetch(vm, t, page, 0),
            result => result,
        }
    }

    /// Makes `page` busy, and neighbours for which frames are left; nothing if it need not come any more.
    fn begin_get(self: &Arc<Self>, vm: &Vm<M>, page: u64, frame: Pfn, read_ahead: usize) -> Option<Run> {
        let mut state = self.lock();
        let out = |state: &ObjectState, page: u64| {
            let there = state.pages().contains_key(&page) || state.busy().contains(&page);
            (!there && page < state.len_pages()).then(|| self.home(state, page)).flatten()
        };
        if state.refs() == 0 {
            return None;
        }
        let home = out(&state, page)?;
        self.begin_move(&mut state, page);
        let mut run = Run { first: page, block: home.block(), frames: vec![frame] };
        let spare = vm.paging().map_or(0, |p| p.free_target_pages);
        let Some(first) = run.block else { return Some(run) };
        for (next, block) in (page + 1..).zip(first + 1..).take(read_ahead) {
            if out(&state, next).and_then(Home::block) != Some(block) || vm.frames().free_now() <= spare {
                break;
            }
            let Ok(frame) = self.frame_for(vm, next, WantedFrame::of) else { break };
            self.begin_move(&mut state, next);
            run.frames.push(frame);
        }
        Some(run)
    }

    fn get(self: &Arc<Self>, vm: &Vm<M>, t: &dyn Threads, run: Run) -> Result<(), VmError> {
        let read = match (run.block, &self.store) {
            (Some(block), _) => {
                let ticket = vm.io().start(Transfer::Read, block, run.frames.clone());
                vm.io().finish(t, ticket).map_err(VmError::from)
            }
            (None, Store::Vnode(pager)) => pager.get(t, run.first, run.frames[0]),
            (None, _) => panic!("page {} of an object is nowhere", run.first),
        };
        let mut state = self.lock();
        for (page, &frame) in run.pages().zip(&run.frames) {
            if read.is_err() {
                vm.frames().free_busy(frame);
                continue;
            }
            vm.publish_clean(frame, false);
            let old = state.pages_mut().insert(page, frame);
            assert!(old.is_none(), "page {page} became resident twice");
            if let Some(&slot) = state.swap.get(&page) {
                vm.swap().set_only(slot, false);
            }
        }
        self.end_moves(vm, t, state, run.pages());
        read
    }

    /// Writes the dirty pages of `pages` to the file's blocks. Other objects have nothing to write to.
    ///
    /// # Errors
    /// [`VmError::Io`], after all pages were tried.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub(crate) fn clean(
        self: &Arc<Self>,
        vm: &Vm<M>,
        t: &dyn Threads,
        pages: Range<u64>,
    ) -> Result<(), VmError> {
        if let Store::Vnode(pager) = &self.store {
            return self.clean_vnode(vm, t, &**pager, pages);
        }
        let mut result = Ok(());
        let mut next = pages.start;
        while self.is_file() && next < pages.end {
            let mut state = self.lock();
            if state.busy().range(next..pages.end).next().is_some_and(|&busy| {
                // Clean ones before it need no wait; a dirty one is written first.
                self.first_dirty(vm, &state, next..busy).is_none()
            }) {
                self.wait_for_moves(t, state);
                continue;
            }
            let Some(first) = self.first_dirty(vm, &state, next..pages.end) else { break };
            let run = self.begin_clean(vm, &mut state, first..pages.end);
            drop(state);
            next = run.pages().end;
            let block = run.block.expect("a file's page has a block");
            let ticket = vm.io().start(Transfer::Write, block, run.frames.clone());
            let wrote = vm.io().finish(t, ticket);
            self.end_clean(vm, t, run, wrote.is_ok());
            if wrote.is_err() {
                result = Err(VmError::Io);
            }
        }
        result
    }

    /// The first resident page of `pages` that is at rest and differs from its block.
    fn first_dirty(&self, vm: &Vm<M>, state: &ObjectState, pages: Range<u64>) -> Option<u64> {
        let mut resident = state.pages().range(pages).filter(|(page, _)| !state.busy().contains(page));
        resident.find(|&(_, &frame)| vm.is_dirty(frame)).map(|(&page, _)| page)
    }

    /// Takes dirty pages from `pages.start` on, as many as lie in a row here and on the disk.
    fn begin_clean(&self, vm: &Vm<M>, state: &mut ObjectState, pages: Range<u64>) -> Run {
        let first = state.blocks[pages.start as usize].at;
        let mut run = Run { first: pages.start, block: Some(first), frames: Vec::new() };
        let max_pages = vm.paging().map_or(1, |p| p.cluster_pages);
        let mut pending = TlbFlush::new();
        for (page, block) in pages.zip(first..).take(max_pages) {
            let Some(&frame) = state.pages().get(&page) else { break };
            let follows = state.blocks[page as usize].at == block && !state.busy().contains(&page);
            if !follows || !vm.is_dirty(frame) {
                break;
            }
            pending.merge(vm.pmaps().clear_modified(frame));
            self.begin_move(state, page);
            let mut table = vm.frames().lock();
            // A frame that is wired may be being written.
            let pinned = table.get(frame).is_pinned();
            table.get_mut(frame).dirty = pinned;
            table.wire(frame);
            run.frames.push(frame);
        }
        pending.flush(vm.pmaps());
        run
    }

    fn end_clean(&self, vm: &Vm<M>, t: &dyn Threads, run: Run, wrote: bool) {
        let mut state = self.lock();
        for (page, &frame) in run.pages().zip(&run.frames) {
            let mut table = vm.frames().lock();
            table.get_mut(frame).dirty |= !wrote;
            table.unwire(frame);
            if let Some(block) = state.blocks.get_mut(page as usize).filter(|_| wrote) {
                block.written = true;
            }
        }
        self.end_moves(vm, t, state, run.pages());
    }

    /// The same, for a file of a file system: what was modified may also be in the swap area, and comes back first.
    fn clean_vnode(
        self: &Arc<Self>,
        vm: &Vm<M>,
        t: &dyn Threads,
        pager: &dyn VnodePager,
        pages: Range<u64>,
    ) -> Result<(), VmError> {
        let mut result = Ok(());
        let mut next = pages.start;
        while next < pages.end {
            let mut state = self.lock();
            if let Some(&busy) = state.busy().range(next..pages.end).next()
                && self.first_modified(vm, &state, next..busy).is_none()
            {
                self.wait_for_moves(t, state);
                continue;
            }
            let Some(page) = self.first_modified(vm, &state, next..pages.end) else { break };
            let Some(&frame) = state.pages().get(&page) else {
                drop(state);
                // Where it cannot come back it stays where it is, and is tried again next time.
                if let Err(e) = self.fetch(vm, t, page, 0) {
                    (result, next) = (Err(e), page + 1);
                }
                continue;
            };
            vm.pmaps().clear_modified(frame).flush(vm.pmaps());
            self.begin_move(&mut state, page);
            {
                let mut table = vm.frames().lock();
                // A frame that is wired may be being written.
                let pinned = table.get(frame).is_pinned();
                table.get_mut(frame).dirty = pinned;
                table.wire(frame);
            }
            drop(state);
            let put = pager.put(t, page, frame);
            let mut state = self.lock();
            {
                let mut table = vm.frames().lock();
                table.get_mut(frame).dirty |= put.is_err();
                table.unwire(frame);
            }
            match put {
                Ok(()) => {
                    let slot = state.swap.remove(&page);
                    slot.into_iter().for_each(|slot| vm.swap().free(slot, false));
                }
                Err(e) => result = result.and(Err(e)),
            }
            next = page + 1;
            self.end_moves(vm, t, state, core::iter::once(page));
        }
        result
    }

    /// The first of `pages` that is at rest and is not as its file system has it.
    fn first_modified(&self, vm: &Vm<M>, state: &ObjectState, pages: Range<u64>) -> Option<u64> {
        let mut in_swap = state.swap.range(pages.clone()).map(|(&page, _)| page);
        let in_swap = in_swap.find(|page| !state.busy().contains(page));
        self.first_dirty(vm, state, pages).into_iter().chain(in_swap).min()
    }

    /// True when the contents of the pages can be had again without writing them anywhere, if they are not dirty.
    pub(crate) fn block_of(&self, state: &ObjectState, page: u64) -> Option<u64> {
        match self.store {
            Store::Disk => Some(state.blocks[page as usize].at),
            Store::Memory(Backing::Zero | Backing::Pager(_)) | Store::Vnode(_) | Store::Internal => None,
            Store::Device | Store::Window => panic!("page {page} is wired, and not taken"),
        }
    }
}

impl<M: Machine> Vm<M> {
    /// True when the bytes of a frame are not those of its home. Only for frames that are at rest: what TLBs know and
    /// page tables do not must have been flushed.
    pub(crate) fn is_dirty(&self, frame: Pfn) -> bool {
        self.frames().lock().get(frame).dirty || self.pmaps().is_modified(frame)
    }

    /// Makes a page of an object resident and wires its frame, for the kernel to read, or, if `write` says so, to
    /// write: then it is dirty, and no loan sees what is written.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: the object has no such page. [`VmError::Io`]; [`VmError::NoMemory`].
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub fn wire_page(
        &self,
        t: &dyn Threads,
        object: &Arc<Object<M>>,
        page: u64,
        write: bool,
    ) -> Result<Wired, VmError> {
        loop {
            let seen = self.frames().refusals();
            let tried = self.wire_resident_page(object, page, write);
            match tried {
                Ok(Some(frame)) => return Ok(Wired::of(vec![frame], 0, PAGE_SIZE)),
                Ok(None) => self.batches().wait_flushed(self.machine()),
                Err(ObjectPageError::NotResident) => {
                    object.fetch(self, t, page, self.read_ahead())?;
                }
                Err(ObjectPageError::NoMemory) => {
                    if self.frames().refusals() == seen || !self.wait_for_memory(t) {
                        return Err(VmError::NoMemory);
                    }
                }
                Err(ObjectPageError::Pager(_)) => return Err(VmError::Io),
                Err(ObjectPageError::BehindEnd) => return Err(VmError::Invalid),
            }
        }
    }

    /// Pages that come in behind one that is wanted.
    pub(crate) fn read_ahead(&self) -> usize {
        self.paging().map_or(0, |p| p.read_ahead_pages)
    }

    /// Nothing, if a loan of the page is being made.
    fn wire_resident_page(
        &self,
        object: &Arc<Object<M>>,
        page: u64,
        write: bool,
    ) -> Result<Option<Pfn>, ObjectPageError> {
        let mut state = object.lock();
        let mut frame = object.page(self, &mut state, page)?;
        if write && self.frames().loan_count(frame) > 0 {
            if !self.batches().all_flushed() {
                return Ok(None);
            }
            let new = object.frame_for(self, page, WantedFrame::of).map_err(|_| ObjectPageError::NoMemory)?;
            self.copy(frame, new);
            self.pmaps().page_protect(frame, Prot::empty()).flush(self.pmaps());
            let old = object.replace(&mut state, page, new);
            self.frames().publish(new);
            self.frames().disown(old);
            frame = new;
        }
        let mut table = self.frames().lock();
        table.get_mut(frame).dirty |= write;
        table.wire(frame);
        Ok(Some(frame))
    }

    /// Lets a file grow: its new pages are clear.
    ///
    /// # Panics
    /// When it is no file in blocks.
    pub fn extend_file(&self, object: &Object<M>, blocks: Vec<u64>) {
        assert!(matches!(object.store, Store::Disk), "only a file in blocks grows by them");
        let mut state = object.lock();
        state.blocks.extend(blocks.into_iter().map(|at| Block { at, written: false }));
        let len_pages = state.blocks.len() as u64;
        state.set_len_pages(len_pages);
    }

    /// Cuts a file to `len_pages` pages; returns the blocks of the others, which the file uses no more. Mappings of
    /// what is cut off end; touching it fails with [`VmError::Bus`].
    ///
    /// # Locks
    /// Sleeps until pages that are on their way have arrived: no spin lock may be held.
    pub fn truncate_file(&self, t: &dyn Threads, object: &Object<M>, len_pages: u64) -> Vec<u64> {
        assert!(object.is_file(), "only a file is cut");
        let mut state = loop {
            let state = object.lock();
            if state.busy().range(len_pages..).next().is_none() {
                break state;
            }
            object.wait_for_moves(t, state);
        };
        if len_pages >= state.len_pages() {
            return Vec::new();
        }
        state.set_len_pages(len_pages);
        let cut = state.pages_mut().split_off(&len_pages);
        let mut pending = TlbFlush::new();
        for &frame in cut.values() {
            pending.merge(self.pmaps().page_protect(frame, Prot::empty()));
        }
        pending.flush(self.pmaps());
        let slots = state.swap.split_off(&len_pages);
        slots.into_iter().for_each(|(page, slot)| self.swap().free(slot, !cut.contains_key(&page)));
        cut.into_values().for_each(|frame| self.frames().disown(frame));
        match object.store {
            Store::Disk => state.blocks.split_off(len_pages as usize).into_iter().map(|b| b.at).collect(),
            _ => Vec::new(),
        }
    }

    /// Lets a file of a file system be at least `len_pages` pages long.
    ///
    /// # Panics
    /// When it is no such file.
    pub fn extend_vnode(&self, object: &Object<M>, len_pages: u64) {
        assert!(matches!(object.store, Store::Vnode(_)), "only a file system's file grows by itself");
        let mut state = object.lock();
        let len_pages = len_pages.max(state.len_pages());
        state.set_len_pages(len_pages);
    }

    /// Ends the object of a file system's file, if the caller has the only reference, and gives that back: false, and
    /// nothing happens, while it is mapped, pages of it move, or some are not as the file system has them.
    ///
    /// # Panics
    /// When it is no such file.
    pub fn end_vnode(&self, object: &Object<M>) -> bool {
        assert!(matches!(object.store, Store::Vnode(_)), "only a file system's file ends so");
        let state = object.lock();
        if state.refs() != 1 || object.first_modified(self, &state, 0..u64::MAX).is_some() {
            return false;
        }
        drop(state);
        object.drop_ref(self);
        true
    }

    /// Ends a file if the caller has the only reference, and gives that back; returns the blocks. What was not written
    /// is lost. Nothing happens while the file is mapped or pages of it move.
    pub fn end_file(&self, object: &Object<M>) -> Option<Vec<u64>> {
        assert!(matches!(object.store, Store::Disk), "only a file in blocks ends with them");
        let mut state = object.lock();
        if state.refs() != 1 {
            return None;
        }
        // Without pages it is out of the page daemon's reach.
        let pages = core::mem::take(state.pages_mut());
        pages.into_values().for_each(|frame| self.frames().disown(frame));
        let blocks = core::mem::take(&mut state.blocks);
        state.set_len_pages(0);
        drop(state);
        object.drop_ref(self);
        Some(blocks.into_iter().map(|b| b.at).collect())
    }

    /// Writes a file's dirty pages to the disk (`fsync`).
    ///
    /// # Errors
    /// [`VmError::Io`].
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub fn clean_file(&self, t: &dyn Threads, object: &Arc<Object<M>>) -> Result<(), VmError> {
        object.clean(self, t, 0..u64::MAX)
    }
}
