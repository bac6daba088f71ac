//! Page faults: zero-fill, copy-on-write of anons, promotion of an object's pages (UVM paper, 3.3).
//!
//! A fault holds the map shared, then locks what the entry leads to, in order: amap, object, anon. The amap is looked
//! up first; a hole falls through to the object; below that, memory is clear. What is found is mapped with the entry's
//! protection, less writing where others rely on the bytes: an anon with more than one reference, a lent frame, an
//! object's page under a private mapping, anything under an entry whose amap is still to be copied.
//!
//! A write there gets a frame of its own: the new frame is allocated and filled first; then the mapping is changed and
//! every mapping of the old frame that must not see it any more is revoked, and flushed; only then do the layers change
//! and the locks drop. So the old frame can neither be written through a stale translation after its copy was made, nor
//! be freed while one stands. A fault that runs out of memory leaves everything as it was.
//!
//! Where memory is made of shadow objects, `fault_chain` takes the place of the three layers.
//!
//! What changes the entry itself (making or copying its amap) needs the map exclusively: the fault unlocks the map,
//! does that, and retries.

use super::entry::{Advice, Entry};
use super::retries::Retries;
use crate::anon::{AmapState, Anon, AnonState};
use crate::counter::VmCounter;
use crate::error::VmError;
use crate::object::{Object, ObjectPageError};
use crate::page::{Owner, WantedFrame};
use crate::probe::VmDefect;
use crate::vm::{Space, Vm};
use alloc::sync::Arc;
use pageferry_hal::{
    Access, Cause, Machine, PAGE_SHIFT, PAGE_SIZE, Pfn, Prot, Threads, Trap, TrapKind, Va, VaRange,
};
use pageferry_pmap::TlbFlush;

/// How far a fault got with the map held shared.
#[must_use]
pub(super) enum Step<M: Machine> {
    /// The page is mapped so that the access will succeed.
    Done,
    /// The entry must have an amap of its own first, or an object.
    NeedsOwn,
    /// The page is copied only when write-protection that is under way has reached every CPU.
    Unflushed,
    /// The anon's page is in the swap area, or on its way; in a frame of this colour.
    PageIn(Arc<Anon<M>>, Option<u32>),
    /// The object's page is on the disk, or on its way; so many more may come along.
    Fetch(Arc<Object<M>>, u64, usize),
    /// Too few frames are free.
    NoFrames,
}

/// What a fault is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// An access.
    Access,
    /// A write that the mapping refused.
    RefusedWrite,
    /// Wiring the page for as long as it is mapped: it gets the frame that it would be written in, whether or not it
    /// may be written now.
    Wire,
}

/// One attempt: where and for what.
pub(super) struct PageFault<'a, M: Machine> {
    space: &'a Space<M>,
    pub(super) vm: &'a Vm<M>,
    pub(super) entry: &'a Entry<M>,
    pub(super) va: Va,
    access: Access,
    purpose: Purpose,
}

impl<M: Machine> Space<M> {
    /// Resolves a fault in user space, or says why not.
    ///
    /// # Errors
    /// [`VmError::Fault`]: nothing is mapped there, or its pager fails. [`VmError::Access`]: the mapping does not
    /// permit it. [`VmError::NoMemory`].
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn fault(&self, t: &dyn Threads, trap: Trap) -> Result<(), VmError> {
        let m = self.vm().machine();
        let _c = m.scope(Cause::Fault);
        m.count(VmCounter::PageFaults, 1);
        let refused = (trap.access, trap.kind) == (Access::Write, TrapKind::Protection);
        let purpose = if refused { Purpose::RefusedWrite } else { Purpose::Access };
        self.resolve_for(t, trap.va, trap.access, purpose)
    }

    /// Makes the page at `va` resident and mapped for `access`. It may be gone again when this returns.
    pub(crate) fn resolve(&self, t: &dyn Threads, va: Va, access: Access) -> Result<(), VmError> {
        self.resolve_for(t, va, access, Purpose::Access)
    }

    /// As [`Space::resolve`], for a page that is to be locked: later it need never be copied, whatever its protection
    /// will be then.
    pub(crate) fn resolve_to_lock(&self, t: &dyn Threads, va: Va, access: Access) -> Result<(), VmError> {
        self.resolve_for(t, va, access, Purpose::Wire)
    }

    fn resolve_for(&self, t: &dyn Threads, va: Va, access: Access, purpose: Purpose) -> Result<(), VmError> {
        let vm = &**self.vm();
        let page = va.page();
        if !vm.user().contains(page) {
            return Err(VmError::Fault(va));
        }
        let mut retries = Retries::default();
        loop {
            retries.again(va);
            vm.machine().execute(vm.paths().fault);
            let map = self.locked_map().read(t);
            let entry = map.look_up(vm, page).ok_or(VmError::Fault(va))?;
            if purpose != Purpose::Wire && !entry.attributes.prot.permits(access) {
                return Err(VmError::Access);
            }
            let seen = vm.frames().refusals();
            let step = match (PageFault { space: self, vm, entry, va, access, purpose }).run() {
                Err(VmError::NoMemory) if vm.frames().refusals() != seen => Step::NoFrames,
                step => step?,
            };
            drop(map);
            match step {
                Step::Done => {
                    vm.poke_daemon(t);
                    return Ok(());
                }
                Step::PageIn(anon, colour) => anon.page_in(vm, t, colour)?,
                Step::Fetch(object, page, read_ahead) => object.fetch(vm, t, page, read_ahead)?,
                Step::NoFrames if vm.wait_for_memory(t) => {}
                Step::NoFrames => return Err(VmError::NoMemory),
                Step::NeedsOwn => self.amap_copy_at(t, page)?,
                Step::Unflushed => vm.batches().wait_flushed(vm.machine()),
            }
        }
    }

    /// Gives the entry at `page` an amap of its own, if it is still there and still needs one.
    fn amap_copy_at(&self, t: &dyn Threads, page: Va) -> Result<(), VmError> {
        let mut map = self.locked_map().write(t);
        match map.look_up_mut(self.vm(), page) {
            Some(entry) => entry.amap_copy(self.vm()),
            None => Ok(()),
        }
    }
}

impl<M: Machine> PageFault<'_, M> {
    fn run(&self) -> Result<Step<M>, VmError> {
        if self.vm.shadows().is_some() {
            return self.chain();
        }
        let attributes = self.entry.attributes;
        let Some(aref) = &self.entry.amap else {
            return if self.entry.object.is_some() { self.object(None) } else { Ok(Step::NeedsOwn) };
        };
        assert!(attributes.copy_on_write, "an entry that writes to its object has no amap");
        let slot = self.entry.slot(aref, self.va);
        let mut amap = aref.amap.lock();
        if let Some(anon) = amap.look_up(self.vm, slot).cloned() {
            return self.anon(&mut amap, slot, &anon);
        }
        if self.entry.object.is_some() {
            return self.object(Some((&mut amap, slot)));
        }
        if attributes.needs_copy {
            return Ok(Step::NeedsOwn);
        }
        if !self.install_row(&mut amap, slot) {
            self.vm.machine().count(VmCounter::ZeroFills, 1);
            self.install(&mut amap, slot, None)?;
        }
        Ok(Step::Done)
    }

    pub(super) fn writes(&self) -> bool {
        self.access == Access::Write
    }

    /// Maps `frame` at the page, and flushes what that replaces. The frame's owner is locked.
    pub(super) fn enter(&self, frame: Pfn, prot: Prot, mut also: TlbFlush<M>) -> Result<(), VmError> {
        let permits = prot.permits(self.access) || self.purpose == Purpose::Wire;
        assert!(permits, "a fault is resolved by a mapping that permits the access");
        // A page that permits no access is only made resident.
        if prot.is_empty() {
            also.flush(self.vm.pmaps());
            return Ok(());
        }
        let (pmaps, page) = (self.vm.pmaps(), self.va.page());
        self.vm.journal().frame(frame);
        // Where other CPUs may have the old page in their TLBs: it is invalidated in all of them before any CPU can
        // store into the new one.
        if self.vm.machine().board().cpus > 1 {
            if pmaps.extract(self.space.pmap(), page).is_some_and(|(old, _)| old != frame) {
                also.merge(pmaps.remove(self.space.pmap(), VaRange::page(page)));
            }
            core::mem::replace(&mut also, TlbFlush::new()).flush(pmaps);
        }
        let entered = pmaps.enter(self.vm.frames(), self.space.pmap(), page, frame, prot, false);
        // A fault that finds the mapping made was late, or its TLB was: no loan caused it.
        if self.purpose == Purpose::RefusedWrite && entered.as_ref().is_ok_and(|change| !change.found()) {
            self.space.loan_history().refused_write();
        }
        let result = entered.map(|change| also.merge(change));
        also.flush(pmaps);
        result?;
        Ok(())
    }

    /// The slot holds `anon`.
    fn anon(&self, amap: &mut AmapState<M>, slot: u64, anon: &Arc<Anon<M>>) -> Result<Step<M>, VmError> {
        let needs_copy = self.entry.attributes.needs_copy;
        if self.writes() && needs_copy {
            return Ok(Step::NeedsOwn);
        }
        anon.with_page(self.vm, |mut state| {
            anon.touch(self.vm, Access::Read);
            let Some(frame) = state.usable() else {
                return Ok(Step::PageIn(anon.clone(), self.colour()));
            };
            let lent = self.vm.frames().loan_count(frame) > 0;
            if self.writes() && (lent || state.refs > 1) && !self.vm.batches().all_flushed() {
                return Ok(Step::Unflushed);
            }
            let in_place = self.vm.has(VmDefect::SharedAnonWritten) && !lent;
            if self.writes() && state.refs > 1 && !in_place {
                let old = self.install(amap, slot, Some(frame))?;
                assert!(old.is_some_and(|old| Arc::ptr_eq(&old, anon)), "the slot changed under its lock");
                anon.touch(self.vm, Access::Write);
                state.refs -= 1;
                self.space.loan_history().loan_broken();
                return Ok(Step::Done);
            }
            if self.writes() && lent {
                self.break_anon_loan(anon, &mut state)?;
                return Ok(Step::Done);
            }
            let mut prot = self.entry.attributes.prot;
            if needs_copy || state.refs > 1 && !in_place || lent {
                prot.remove(Prot::WRITE);
            }
            self.enter(frame, prot, TlbFlush::new())?;
            Ok(Step::Done)
        })
    }

    /// The page is the object's; `upper` is the hole above it.
    pub(super) fn object(&self, upper: Option<(&mut AmapState<M>, u64)>) -> Result<Step<M>, VmError> {
        let attributes = self.entry.attributes;
        let promote = self.writes() && attributes.copy_on_write;
        if promote && (attributes.needs_copy || upper.is_none()) {
            return Ok(Step::NeedsOwn);
        }
        let oref = self.entry.object.as_ref().expect("the caller has seen it");
        let page = self.entry.object_page(oref, self.va);
        let mut state = oref.object.lock();
        let frame = match oref.object.page(self.vm, &mut state, page) {
            Ok(frame) => frame,
            Err(ObjectPageError::NotResident) => {
                return Ok(Step::Fetch(oref.object.clone(), page, self.read_ahead()));
            }
            Err(ObjectPageError::NoMemory) => return Err(VmError::NoMemory),
            Err(ObjectPageError::Pager(_)) => return Err(VmError::Fault(self.va)),
            Err(ObjectPageError::BehindEnd) => return Err(VmError::Bus(self.va)),
        };
        if promote {
            let (amap, slot) = upper.expect("checked above");
            let old = self.install(amap, slot, Some(frame))?;
            assert!(old.is_none(), "the hole was filled under its lock");
            return Ok(Step::Done);
        }
        let lent = self.vm.frames().loan_count(frame) > 0;
        if self.writes() && lent && !self.vm.batches().all_flushed() {
            return Ok(Step::Unflushed);
        }
        if self.writes() && lent {
            let new = oref.object.frame_for(self.vm, page, WantedFrame::of)?;
            self.replace(frame, new)?;
            let old = oref.object.replace(&mut state, page, new);
            self.vm.frames().publish(new);
            self.vm.frames().disown(old);
            return Ok(Step::Done);
        }
        let mut prot = attributes.prot;
        if attributes.copy_on_write || lent {
            prot.remove(Prot::WRITE);
        }
        self.enter(frame, prot, TlbFlush::new())?;
        Ok(Step::Done)
    }

    /// The colour of a page of anonymous memory, where pages have colours.
    fn colour(&self) -> Option<u32> {
        self.entry.anon_colour(self.vm, self.va)
    }

    /// How many pages behind this one may come in with it.
    pub(super) fn read_ahead(&self) -> usize {
        let usual = self.vm.read_ahead();
        match self.entry.attributes.advice {
            Advice::Normal => usual,
            Advice::Sequential => 2 * usual,
            Advice::Random => 0,
        }
    }

    /// Fills and maps all pages of the row that the page lies in, as [`VmConfig::zero_fill_pages`] says; false when
    /// that is not to be, or nothing was done. What fails behind the page itself is left for a fault of its own.
    ///
    /// [`VmConfig::zero_fill_pages`]: crate::VmConfig::zero_fill_pages
    fn install_row(&self, amap: &mut AmapState<M>, slot: u64) -> bool {
        let (vm, len) = (self.vm, self.vm.zero_fill_pages());
        if len == 1 || self.purpose != Purpose::Access {
            return false;
        }
        let at = (self.va.0 >> PAGE_SHIFT) % len as u64;
        let row = VaRange::pages_from(Va(self.va.page().0 - at * PAGE_SIZE as u64), len);
        let whole = self.entry.range.covers(&row) && slot >= at;
        if !whole || amap.anons(slot - at..slot - at + len as u64).next().is_some() {
            return false;
        }
        let Some(first) = vm.frames().free_row(len) else { return false };
        // That which is waited for comes first.
        let others = (0..len as u64).filter(|page| *page != at);
        for page in core::iter::once(at).chain(others) {
            let fault = PageFault { va: row.start() + page as usize * PAGE_SIZE, ..*self };
            let frame = Pfn(first.0 + page as u32);
            if fault.install_at(amap, slot - at + page, frame).is_err() {
                return page != at;
            }
            vm.machine().count(VmCounter::ZeroFills, 1);
        }
        true
    }

    /// Puts a new anon with this frame in `slot`, which is empty, clears it and maps it.
    fn install_at(&self, amap: &mut AmapState<M>, slot: u64, frame: Pfn) -> Result<(), VmError> {
        let vm = self.vm;
        let anon = Anon::at_frame(vm, frame)?;
        vm.zero(frame);
        let entered = amap
            .reserve(vm, slot)
            .and_then(|()| self.enter(frame, self.entry.attributes.prot, TlbFlush::new()));
        if let Err(e) = entered {
            amap.trim(vm, slot);
            anon.discard(vm, frame);
            return Err(e);
        }
        amap.put(vm, slot, anon);
        vm.frames().publish(frame);
        Ok(())
    }

    /// Puts a new anon in `slot` and maps it: with a copy of `from`, or clear. Returns what the slot held.
    ///
    /// Other entries may cover the slot and have mapped `from` there; they must see the new anon, so `from` is unmapped
    /// everywhere. Spaces that have it by right, through another slot, fault it in again.
    fn install(
        &self,
        amap: &mut AmapState<M>,
        slot: u64,
        from: Option<Pfn>,
    ) -> Result<Option<Arc<Anon<M>>>, VmError> {
        let vm = self.vm;
        let colour = self.colour();
        let wanted = if from.is_some() { WantedFrame::of(colour) } else { WantedFrame::clear(colour) };
        let (anon, frame) = Anon::with_frame(vm, wanted)?;
        match from {
            Some(from) => vm.copy(from, frame),
            None => vm.zero(frame),
        }
        let shared = amap.slot_refs().of(slot) > 1;
        let mapped = amap.reserve(vm, slot).and_then(|()| {
            let mut also = TlbFlush::new();
            if let Some(from) = from.filter(|_| shared && !vm.has(VmDefect::PromoteWithoutRevoke)) {
                also.merge(vm.pmaps().page_protect(from, Prot::empty()));
            }
            self.enter(frame, self.entry.attributes.prot, also)
        });
        if let Err(e) = mapped {
            amap.trim(vm, slot);
            anon.discard(vm, frame);
            return Err(e);
        }
        let old = amap.put(vm, slot, anon);
        vm.frames().publish(frame);
        Ok(old)
    }

    /// Writes to a lent frame are kept from its borrowers: the anon gets a new frame, the old one stays as it is until
    /// the last loan ends (UVM paper, 4.1.1).
    fn break_anon_loan(&self, anon: &Arc<Anon<M>>, state: &mut AnonState) -> Result<(), VmError> {
        assert!(state.refs == 1, "a shared anon is copied, its loan is not broken");
        let old = state.usable().expect("the caller has seen it");
        let new =
            self.vm.frames().alloc(Owner::Anon(Arc::downgrade(anon)), WantedFrame::of(self.colour()))?;
        self.replace(old, new)?;
        state.frame = Some(new);
        self.vm.frames().publish(new);
        self.vm.frames().release(old, anon);
        self.space.loan_history().loan_broken();
        Ok(())
    }

    /// Copies `old` to `new`, takes every mapping of `old` away and maps `new` here; on failure frees `new`.
    fn replace(&self, old: Pfn, new: Pfn) -> Result<(), VmError> {
        self.vm.copy(old, new);
        let mut revoked = TlbFlush::new();
        if !self.vm.has(VmDefect::BreakWithoutRevoke) {
            revoked.merge(self.vm.pmaps().page_protect(old, Prot::empty()));
        }
        let entered = self.enter(new, self.entry.attributes.prot, revoked);
        if entered.is_err() {
            self.vm.frames().free_busy(new);
        }
        entered
    }
}
