//! The page daemon: takes back frames that are not used (UVM paper, 3.1; NetBSD `uvm_pdaemon.c`).
//!
//! A pass keeps a part of the pageable frames inactive, oldest first, and takes inactive ones that were not used since
//! they became so (second chance), a cluster at a time. A cluster is filled even where fewer frames are wanted: who
//! waits for the disk takes frames as fast as they come, and clusters of what is just missing would be of one.
//!
//! 1. *Claim*: the owner is locked, the frame is made busy, and every mapping of it is taken away, in one step under
//!    the page queues: so no wire comes through a mapping that still stands.
//! 2. *Flush*, once for the cluster. Only now it is known which pages were modified.
//! 3. Those that are as they are on the disk are free at once. The others are written: a file's pages to their blocks,
//!    all else to a fresh run of the swap area, and an older slot is given up.
//! 4. What was written is free; what could not be stays and becomes active.
//!
//! # Locks
//! The queues name frames, frames name owners, and that is against the order of locks. So the daemon reads a queue,
//! unlocks it, locks the owner in the order, and tests that frame and owner are still as it read them. It holds no lock
//! while it waits for the disk, and never waits for more than one cluster. It asks each inactive frame at most once in
//! a pass.
//!
//! # What it does not take
//! Frames that are wired, and so those on loan to the kernel: they are on no queue. A frame that an anon has on loan
//! from an object is written where it lies, if it must be, and becomes the anon's; that frees nothing, and is not
//! counted, but a later pass may take it from there. Only what comes onto the free list counts as reclaimed.
//!
//! # Shadow objects
//! Where memory is made of them, a page keeps the slot that it got first, and only neighbours of one object go
//! together, as many as `ShadowConfig` says: pages that are not neighbours there do not become neighbours on the disk.
//!
//! Threads that wait for it are in `demand`.

use super::frame::{Owner, Queue, WantedFrame};

use super::demand::DaemonThread;
use super::swap::Holder;
use super::swap_slot::SwapSlot;
use crate::anon::Anon;
use crate::counter::VmCounter;
use crate::error::VmError;
use crate::object::{Object, ObjectState};
use crate::probe::VmDefect;
use crate::shadow::collapse;
use crate::vm::Vm;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use pageferry_hal::{Cause, DiskError, Machine, Pfn, Prot, Threads, Transfer};
use pageferry_pmap::TlbFlush;

/// Passes over all inactive frames in a row that took nothing, before it is said that nothing can be taken; the last
/// looks at all pageable frames, and does not care for their use.
const FRUITLESS_PASSES: usize = 3;

/// A claimed frame, and its owner.
struct Victim<M: Machine> {
    frame: Pfn,
    owner: VictimOwner<M>,
}

enum VictimOwner<M: Machine> {
    Anon(Arc<Anon<M>>),
    Page(Arc<Object<M>>, u64),
    /// A page that an anon has on loan: it stays mapped, for reading, and readable.
    Lent(Arc<Object<M>>, u64),
}

/// What a pass has done.
#[derive(Default)]
struct Pass {
    /// Frames that came onto the free list.
    reclaimed: usize,
    /// Frames that an object has given up, and that are an anon's now: a later pass may take them.
    adopted: usize,
}

/// The outcome of writing a victim.
enum Outcome {
    /// It is on the disk, in this new slot if there is one.
    Clean(Option<SwapSlot>),
    /// It could not be written.
    Kept,
}

/// What the scan of one frame led to.
enum Scan<M: Machine> {
    Claimed(Victim<M>),
    /// The object has released it to its borrower.
    Adopted,
    /// Used since, or not to be taken now.
    Passed,
}

impl<M: Machine> Vm<M> {
    // ------------------------------------------------------------------------------------------- waiting for memory

    /// A frame for `owner`, waited for if need be.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]: waiting does not help.
    pub(crate) fn frame_or_wait(
        &self,
        t: &dyn Threads,
        owner: impl Fn() -> Owner<M>,
        wanted: WantedFrame,
    ) -> Result<Pfn, VmError> {
        self.with_memory(t, || self.frames().alloc(owner(), wanted))
    }

    /// Does `work` again as long as it fails for want of frames and waiting helps. It undoes what it did when it fails.
    pub(crate) fn with_memory<R>(
        &self,
        t: &dyn Threads,
        mut work: impl FnMut() -> Result<R, VmError>,
    ) -> Result<R, VmError> {
        loop {
            let seen = self.frames().refusals();
            match work() {
                Err(VmError::NoMemory) if self.frames().refusals() != seen => {
                    if !self.wait_for_memory(t) {
                        // Others may have given frames back, too few to call memory plenty.
                        return work();
                    }
                }
                result => return result,
            }
        }
    }

    // ------------------------------------------------------------------------------------------- the thread

    /// Wakes the page daemon if frames begin to be few. Costs next to nothing otherwise.
    pub(crate) fn poke_daemon(&self, t: &dyn Threads) {
        self.demand().poke(t, self.frames());
    }

    /// Sleeps until frames are free for others than the kernel. False when there is no page daemon, or it could take
    /// nothing, and no frame was given back otherwise.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub fn wait_for_memory(&self, t: &dyn Threads) -> bool {
        self.demand().wait(t, self.frames())
    }

    /// A thread for [`Vm::run_page_daemon`] was made and will run.
    pub fn launch_page_daemon(&self) {
        self.demand().launch();
    }

    /// The page daemon's life, on a thread of its own, until [`Vm::stop_page_daemon`]. Where memory is short it calls
    /// `shed` first: that frees what the kernel above keeps only to have it at hand, and answers how many frames.
    ///
    /// # Panics
    /// When there is one already, or paging is not configured.
    pub fn run_page_daemon(&self, t: &dyn Threads, shed: &dyn Fn() -> usize) {
        assert!(self.paging().is_some(), "a page daemon without paging");
        let t = &DaemonThread(t);
        self.demand().begin();
        while self.demand().wait_until_wanted(t) {
            let reclaimed = shed() + self.reclaim_with(t);
            let failed = reclaimed == 0 && self.demand().is_short(self.frames());
            // What others have under way may become free: only without that it is certain that nothing does.
            if failed && self.io().wait_for_any(t) {
                self.demand().want_again();
                continue;
            }
            self.demand().answer(t, failed);
        }
    }

    /// Ends the page daemon's thread once it has done what it is at.
    pub fn stop_page_daemon(&self, t: &dyn Threads) {
        self.demand().stop(t);
    }

    /// Does the page daemon's work now, on the calling thread: takes frames until `free_target_pages` are free or
    /// nothing more can be taken. Returns by how many the free list grew through it.
    ///
    /// # Panics
    /// When paging is not configured.
    ///
    /// # Locks
    /// Sleeps for the disk: no spin lock may be held.
    pub fn reclaim(&self, t: &dyn Threads) -> usize {
        self.reclaim_with(&DaemonThread(t))
    }

    fn reclaim_with(&self, t: &DaemonThread<'_>) -> usize {
        let _c = self.machine().scope(Cause::Vm);
        let paging = *self.paging().expect("memory is reclaimed where paging is configured");
        let (mut pass, mut fruitless) = (Pass::default(), 0);
        while fruitless < FRUITLESS_PASSES && self.frames().free_now() < paging.free_target_pages {
            let before = pass.reclaimed + pass.adopted;
            let last = fruitless + 1 == FRUITLESS_PASSES;
            self.balance_queues(if last { 100 } else { paging.inactive_percent });
            let mut looks = self.frames().lock().queue_lens().1;
            while looks > 0 && self.frames().free_now() < paging.free_target_pages {
                let victims = self.claim(paging.cluster_pages, &mut looks, last, &mut pass);
                if !victims.is_empty() {
                    pass.reclaimed += if self.has(VmDefect::ReclaimedTwice) { victims.len() } else { 0 };
                    self.page_out(t, victims, &mut pass);
                }
            }
            fruitless = if pass.reclaimed + pass.adopted > before { 0 } else { fruitless + 1 };
        }
        self.machine().count(VmCounter::PagesReclaimed, pass.reclaimed as u64);
        pass.reclaimed
    }

    /// Makes the oldest active frames inactive, and unused, until `percent` of all are.
    fn balance_queues(&self, percent: usize) {
        let scan = self.paging().expect("asked before").paths.scan;
        let mut pending = TlbFlush::new();
        loop {
            let mut table = self.frames().lock();
            let (active, inactive) = table.queue_lens();
            if active == 0 || inactive * 100 >= (active + inactive) * percent {
                break;
            }
            self.machine().execute(scan);
            let frame = table.rotate(Queue::Active).expect("some are active");
            table.move_to(frame, Queue::Inactive);
            pending.merge(self.pmaps().clear_referenced(frame));
        }
        pending.flush(self.pmaps());
    }

    // ------------------------------------------------------------------------------------------- claiming

    /// Claims up to `max_victims` inactive frames, and flushes their mappings from all TLBs. Looks at `looks` frames at
    /// most, and counts them down.
    fn claim(
        &self,
        max_victims: usize,
        looks: &mut usize,
        even_used: bool,
        pass: &mut Pass,
    ) -> Vec<Victim<M>> {
        let scan = self.paging().expect("asked before").paths.scan;
        let mut victims = Vec::new();
        let mut pending = TlbFlush::new();
        while *looks > 0 && victims.len() < max_victims {
            *looks -= 1;
            self.machine().execute(scan);
            self.machine().count(VmCounter::PagesScanned, 1);
            let mut table = self.frames().lock();
            let Some(frame) = table.rotate(Queue::Inactive) else { break };
            let state = table.get(frame);
            let (anon, page) = match &state.owner {
                Owner::Anon(anon) => (anon.upgrade(), None),
                // The anon is locked for its page, and adopts it.
                Owner::Orphan if state.awaits_adoption() => {
                    (state.borrower.as_ref().and_then(Weak::upgrade), None)
                }
                Owner::Object(object, page) => (None, object.upgrade().map(|o| (o, *page))),
                _ => panic!("{frame:?} is on a paging queue without an owner"),
            };
            drop(table);
            // No owner any more: it is about to be freed.
            let scanned = match (anon, page) {
                (Some(anon), _) => self.claim_anon(anon, frame, even_used, &mut pending),
                (_, Some((object, page))) => {
                    pass.reclaimed += self.collapse_first(&object);
                    self.claim_page(object, page, frame, even_used, &mut pending)
                }
                (None, None) => Scan::Passed,
            };
            match scanned {
                Scan::Claimed(victim) => victims.push(victim),
                Scan::Adopted => pass.adopted += 1,
                Scan::Passed => {}
            }
        }
        pending.flush(self.pmaps());
        victims
    }

    fn claim_anon(
        &self,
        anon: Arc<Anon<M>>,
        frame: Pfn,
        even_used: bool,
        pending: &mut TlbFlush<M>,
    ) -> Scan<M> {
        let claimed = anon.with_page(self, |mut state| {
            if state.usable() != Some(frame) {
                return false;
            }
            if state.swap.is_none() && self.swap().is_full() {
                // It could not go out, so its mappings stay: a fault that had just made one would be back at once, for
                // ever.
                self.machine().count(VmCounter::SwapFull, 1);
                self.frames().lock().move_to(frame, Queue::Active);
                return false;
            }
            if !self.claim_frame(frame, even_used, pending) {
                return false;
            }
            anon.begin_move(&mut state);
            true
        });
        if claimed { Scan::Claimed(Victim { frame, owner: VictimOwner::Anon(anon) }) } else { Scan::Passed }
    }

    /// A shadow object that was never in the swap area takes in what it can: once it was there it takes in nothing.
    fn collapse_first(&self, object: &Arc<Object<M>>) -> usize {
        let first = object.is_internal() && object.lock().swap.is_empty();
        if !first || !object.add_ref_if_alive() {
            return 0;
        }
        let freed = collapse(self, &mut self.chains(), object);
        object.drop_ref(self);
        freed
    }

    fn claim_page(
        &self,
        object: Arc<Object<M>>,
        page: u64,
        frame: Pfn,
        even_used: bool,
        pending: &mut TlbFlush<M>,
    ) -> Scan<M> {
        let mut state = object.lock();
        if state.pages().get(&page) != Some(&frame) || state.busy().contains(&page) {
            return Scan::Passed;
        }
        if object.is_internal() && !state.swap.contains_key(&page) && self.swap().is_full() {
            // As for an anon.
            self.machine().count(VmCounter::SwapFull, 1);
            self.frames().lock().move_to(frame, Queue::Active);
            return Scan::Passed;
        }
        if self.frames().lock().get(frame).borrower.is_some() {
            // Lent frames are mapped for reading only, once the write-protections under way are flushed.
            if !self.batches().all_flushed() || !even_used && self.pmaps().is_referenced(frame) {
                self.frames().lock().move_to(frame, Queue::Active);
                return Scan::Passed;
            }
            if !self.is_dirty(frame) {
                self.release_clean(&mut state, page, frame);
                return Scan::Adopted;
            }
            object.begin_move(&mut state, page);
            self.frames().lock().wire(frame);
            drop(state);
            return Scan::Claimed(Victim { frame, owner: VictimOwner::Lent(object, page) });
        }
        if !self.claim_frame(frame, even_used, pending) {
            return Scan::Passed;
        }
        object.begin_move(&mut state, page);
        drop(state);
        Scan::Claimed(Victim { frame, owner: VictimOwner::Page(object, page) })
    }

    /// The object releases a lent page that is as it is on the disk: its borrower becomes the owner.
    fn release_clean(&self, state: &mut ObjectState, page: u64, frame: Pfn) {
        self.pmaps().page_protect(frame, Prot::empty()).flush(self.pmaps());
        state.pages_mut().remove(&page);
        if let Some(&slot) = state.swap.get(&page) {
            self.swap().set_only(slot, true);
        }
        self.frames().disown(frame);
    }

    /// Makes the frame busy and takes its mappings away, if it can be taken. Its owner is locked.
    fn claim_frame(&self, frame: Pfn, even_used: bool, pending: &mut TlbFlush<M>) -> bool {
        let mut table = self.frames().lock();
        let f = table.get(frame);
        if f.queue != Queue::Inactive || !f.is_pageable() || f.loan_count > 0 {
            return false;
        }
        if !even_used && self.pmaps().is_referenced(frame) {
            table.move_to(frame, Queue::Active);
            return false;
        }
        table.set_busy(frame, true);
        if !self.has(VmDefect::PageoutKeepsMappings) {
            pending.merge(self.pmaps().page_protect(frame, Prot::empty()));
        }
        true
    }

    // ------------------------------------------------------------------------------------------- writing and freeing

    /// Writes what must be written of the claimed frames, and frees what can be.
    fn page_out(&self, t: &DaemonThread<'_>, victims: Vec<Victim<M>>, pass: &mut Pass) {
        if self.has(VmDefect::DaemonWaitsForMemory) {
            self.wait_for_memory(t);
        }
        let mut clean = Vec::new();
        let mut to_files: Vec<(Victim<M>, u64)> = Vec::new();
        let mut to_swap = Vec::new();
        for victim in victims {
            let dirty = self.is_dirty(victim.frame) && !self.has(VmDefect::PageoutDropsChanges);
            match &victim.owner {
                VictimOwner::Anon(anon) if dirty || anon.lock().swap.is_none() => to_swap.push(victim),
                VictimOwner::Page(object, page) | VictimOwner::Lent(object, page) if dirty => {
                    let home = {
                        let state = object.lock();
                        let kept = state.swap.get(page).filter(|_| self.shadows().is_some());
                        kept.map(|slot| slot.block()).or_else(|| object.block_of(&state, *page))
                    };
                    match home {
                        Some(block) => to_files.push((victim, block)),
                        None => to_swap.push(victim),
                    }
                }
                _ => clean.push(victim),
            }
        }
        clean.into_iter().for_each(|victim| self.finish_pageout(t, victim, Outcome::Clean(None), pass));
        // All requests of the cluster are under way before the first is waited for.
        let mut under_way = Vec::new();
        if self.shadows().is_some() {
            to_swap.sort_by_key(Victim::place);
        }
        while !to_swap.is_empty() {
            let together = self.len_together(to_swap.iter());
            let slots =
                self.swap().alloc_run(&to_swap[..together].iter().map(Victim::holder).collect::<Vec<_>>());
            if slots.is_empty() {
                break;
            }
            let rest = to_swap.split_off(slots.len());
            let run = core::mem::replace(&mut to_swap, rest);
            let frames = run.iter().map(|v| v.frame).collect();
            let ticket = self.io().start(Transfer::Write, slots[0].block(), frames);
            under_way.push((ticket, slots[0].block(), run, slots));
        }
        to_files.sort_by_key(|&(_, block)| block);
        while let Some(first) = to_files.first().map(|&(_, block)| block) {
            let len = to_files.iter().zip(first..).take_while(|&(&(_, block), at)| block == at).count();
            let len = len.min(self.len_together(to_files.iter().map(|(victim, _)| victim)));
            let rest = to_files.split_off(len);
            let run: Vec<_> = core::mem::replace(&mut to_files, rest).into_iter().map(|(v, _)| v).collect();
            let frames = run.iter().map(|v| v.frame).collect();
            under_way.push((self.io().start(Transfer::Write, first, frames), first, run, Vec::new()));
        }
        // The swap area is full: these stay, and their frames are not reclaimed.
        self.machine().count(VmCounter::SwapFull, to_swap.len() as u64);
        for victim in to_swap {
            self.finish_pageout(t, victim, Outcome::Kept, pass);
        }
        for (ticket, block, run, slots) in under_way {
            let wrote = self.io().finish(t, ticket);
            self.finish_pageout_run(t, block, run, &slots, wrote, pass);
        }
    }

    /// How many of `victims`, of which there are some, may go in one request: all of them, or, where memory is made of
    /// shadow objects, the first that are neighbours in one object.
    fn len_together<'a>(&self, victims: impl Iterator<Item = &'a Victim<M>>) -> usize {
        let Some(shadows) = self.shadows() else { return victims.count() };
        let mut next = None;
        let neighbours = victims.map(Victim::place).take_while(|&(object, page)| {
            let follows = next.is_none_or(|next| next == (object, page));
            next = Some((object, page.wrapping_add(1)));
            follows
        });
        neighbours.take(shadows.cluster_pages).count()
    }

    /// The run of pages from `block` on was written, or not; `slots` are those of the swap area, if it went there.
    fn finish_pageout_run(
        &self,
        t: &DaemonThread<'_>,
        block: u64,
        run: Vec<Victim<M>>,
        slots: &[SwapSlot],
        wrote: Result<(), DiskError>,
        pass: &mut Pass,
    ) {
        for (i, victim) in run.into_iter().enumerate() {
            let slot = slots.get(i).copied();
            let outcome = match (wrote, slot) {
                (Ok(()), slot) => Outcome::Clean(slot),
                (Err(e), Some(slot)) => {
                    if e.block == block + i as u64 {
                        self.swap().retire(slot);
                    } else {
                        self.swap().free(slot, false);
                    }
                    Outcome::Kept
                }
                (Err(_), None) => Outcome::Kept,
            };
            self.finish_pageout(t, victim, outcome, pass);
        }
    }

    /// Ends a victim's move.
    fn finish_pageout(&self, t: &DaemonThread<'_>, victim: Victim<M>, outcome: Outcome, pass: &mut Pass) {
        let frame = victim.frame;
        let info = self.frame_info(frame);
        let is_alone = info.wire_count == 0 && info.loan_count == 0;
        let kept = matches!(outcome, Outcome::Kept);
        match victim.owner {
            VictimOwner::Lent(object, page) => {
                return self.finish_pageout_lent(t, frame, &object, page, outcome, pass);
            }
            VictimOwner::Anon(anon) => {
                assert!(is_alone, "{frame:?} was wired or lent while the page daemon had it");
                let mut state = anon.lock();
                assert!(state.frame == Some(frame) && state.busy, "a busy anon has lost its frame");
                if let Outcome::Clean(new) = outcome {
                    if let Some(new) = new {
                        let old = state.swap.replace(new).filter(|_| !self.has(VmDefect::SwapSlotLeaked));
                        old.into_iter().for_each(|old| self.swap().free(old, false));
                    }
                    let slot = state.swap.expect("a clean anon has its slot");
                    self.swap().set_only(slot, true);
                    state.frame = None;
                    self.frames().free_busy(frame);
                }
                if kept {
                    self.reactivate(frame);
                }
                anon.end_move(self, t, state);
            }
            VictimOwner::Page(object, page) => {
                assert!(is_alone, "{frame:?} was wired or lent while the page daemon had it");
                let mut state = object.lock();
                assert!(state.pages().get(&page) == Some(&frame), "a busy page has lost its frame");
                if let Outcome::Clean(new) = outcome {
                    self.note_written(&object, &mut state, page, frame, new);
                    if let Some(&slot) = state.swap.get(&page) {
                        self.swap().set_only(slot, true);
                    }
                    state.pages_mut().remove(&page);
                    self.frames().free_busy(frame);
                }
                if kept {
                    self.reactivate(frame);
                }
                object.end_moves(self, t, state, core::iter::once(page));
            }
        }
        pass.reclaimed += usize::from(!kept);
    }

    /// The page of a frame that differed from its home is there now: in a new slot, or in its block.
    fn note_written(
        &self,
        object: &Object<M>,
        state: &mut ObjectState,
        page: u64,
        frame: Pfn,
        new: Option<SwapSlot>,
    ) {
        match new {
            Some(new) => {
                let old = state.swap.insert(page, new);
                old.into_iter().for_each(|old| self.swap().free(old, false));
            }
            None if object.is_file() && self.is_dirty(frame) => {
                state.blocks.get_mut(page as usize).into_iter().for_each(|block| block.written = true);
            }
            None => {}
        }
    }

    /// A lent page was written, or not. If it was, the object gives it up: then it is the borrower's, or free, if the
    /// loan has ended meanwhile. Threads that would write to it wait for the end of the move; but its mappings stand,
    /// and it may have been wired through one, to be read or to stay: then the object keeps it.
    fn finish_pageout_lent(
        &self,
        t: &DaemonThread<'_>,
        frame: Pfn,
        object: &Arc<Object<M>>,
        page: u64,
        outcome: Outcome,
        pass: &mut Pass,
    ) {
        let mut state = object.lock();
        assert!(state.pages().get(&page) == Some(&frame), "a busy page has lost its frame");
        let (is_lent, is_pinned) = {
            let mut table = self.frames().lock();
            table.unwire(frame);
            (table.get(frame).loan_count > 0, table.get(frame).is_pinned())
        };
        match outcome {
            Outcome::Clean(new) if is_pinned => {
                new.into_iter().for_each(|new| self.swap().free(new, false));
            }
            Outcome::Clean(new) => {
                self.note_written(object, &mut state, page, frame, new);
                self.release_clean(&mut state, page, frame);
                pass.reclaimed += usize::from(!is_lent);
                pass.adopted += usize::from(is_lent);
            }
            Outcome::Kept => self.frames().lock().move_to(frame, Queue::Active),
        }
        object.end_moves(self, t, state, core::iter::once(page));
    }

    /// A claimed frame is its owner's again, at the end of the active queue. The record that it was modified is kept:
    /// its mappings are gone, but the bits that the page tables saved for the frame stay.
    fn reactivate(&self, frame: Pfn) {
        let mut table = self.frames().lock();
        table.set_busy(frame, false);
        table.move_to(frame, Queue::Active);
    }
}

impl<M: Machine> Victim<M> {
    /// Its object, by the address of the structure, and the page of it.
    fn place(&self) -> (u64, u64) {
        match &self.owner {
            VictimOwner::Anon(anon) => (anon.struct_va().0.0, 0),
            VictimOwner::Page(object, page) | VictimOwner::Lent(object, page) => {
                (object.struct_va().0.0, *page)
            }
        }
    }

    fn holder(&self) -> Holder<M> {
        match &self.owner {
            VictimOwner::Anon(anon) => Holder::Anon(Arc::downgrade(anon)),
            VictimOwner::Page(object, page) | VictimOwner::Lent(object, page) => {
                Holder::Page(Arc::downgrade(object), *page)
            }
        }
    }
}
