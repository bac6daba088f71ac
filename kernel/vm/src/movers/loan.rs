//! Lending pages: to the kernel, and to anons (UVM paper, 4.1).
//!
//! A lent frame keeps its bytes until its last loan ends, whatever its owner does. The first loan takes write
//! permission from every mapping; all pages of a call are flushed in one shootdown. Then the owner may write again, to
//! a new frame: the fault *breaks* the loan (see `fault`). The old frame is an orphan and goes with its last loan.
//!
//! To the *kernel*: each loan of a frame is one loan count and one wire. To an *anon*: an anon's page is lent by one
//! more reference on the anon, which copy-on-write respects. An object's page is lent to one anon, its *borrower*, and
//! further loans are references on that; the object stays the owner.
//!
//! # Locks
//! A frame's owner, borrower and counts lie under the lock of the page queues, and change there in one step. The loan
//! count leaves zero only with the owner locked too, and borrowers only come with the object locked or while the frame
//! is on loan anyway. So with the owner locked and no loan found, the frame may be mapped writable; and the holder of a
//! loan that is found need not be known.
//!
//! An anon whose page belongs to an object need not lock the object, which would be against the order: an anon never
//! changes a page that it has on loan, it copies it, and it learns from the page queues in one step whether the page is
//! its own. For the same reason a borrower need not be locked for its frame to become its own: when an object releases
//! a lent frame (it dies, or breaks the loan), the table of frames makes the borrower the owner in the same step, and
//! the loan ends. So an orphan never has an anon, and there is no moment between to get wrong. (The paper has the anon
//! adopt when it is next locked, and locks the queues and then tries the object: that is
//! [`LoanLocking::Published`](crate::LoanLocking::Published). Here the field that both need has a lock of its own.)
//!
//! # What write-protection does not reach
//! A loan takes write permission from the *managed* mappings of a frame, those of user space. The frame's address in
//! the kernel's direct map keeps its own: a kernel that stores there stores into a lent page. Where the direct map is
//! made of pages, a check can take write permission from that alias too (`Pmaps::kernel_protect`), and such a store
//! traps. Where a block maps it (or a superpage, or nothing), it cannot be protected by page, the call is refused, and
//! a kernel write to a lent page is not caught there.
//!
//! For what is flushed late see `batches`.

use crate::anon::{Anon, AnonState};
use crate::counter::VmCounter;
use crate::error::VmError;
use crate::map::Entry;
use crate::object::ObjectPageError;
use crate::page::{Owner, WantedFrame};
use crate::probe::{Tally, VmDefect};
use crate::vm::{Space, Vm};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use pageferry_hal::{
    Access, Cause, Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Pfn, Place, Prot, Threads, Va, VaRange,
    page_round, page_trunc,
};
use pageferry_pmap::TlbFlush;

/// Pages on loan to the kernel: resident, wired, and their bytes stay as they are. Given back with [`Vm::unloan`].
///
/// The pages are lent whole: bytes before and behind the data are the lender's, and not for the borrower's eyes.
#[must_use = "a loan must be given back"]
#[derive(Debug)]
pub struct KernelLoan {
    frames: Vec<Pfn>,
    offset: usize,
    len_bytes: usize,
    tally: Tally,
}

impl KernelLoan {
    /// The loan of `frames`, which are on loan from now on.
    pub(super) fn new<M: Machine>(
        vm: &Vm<M>,
        frames: Vec<Pfn>,
        offset: usize,
        len_bytes: usize,
    ) -> KernelLoan {
        KernelLoan { frames, offset, len_bytes, tally: vm.tally().clone() }
    }

    /// The frames, in order of their addresses.
    pub fn frames(&self) -> &[Pfn] {
        &self.frames
    }
    /// Where in the first frame the data begins, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }
    /// Length of the data, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for KernelLoan {
    /// A loan that is given back has no frames left.
    fn drop(&mut self) {
        self.tally.lost.add(self.frames.len());
    }
}

/// Pages on loan as anons: a reference on each, in order. Goes into an address space with [`Space::transfer_anons`], or
/// back with [`Vm::release_anons`].
#[must_use = "anons on loan must be transferred or released"]
pub struct AnonLoan<M: Machine> {
    anons: Vec<Arc<Anon<M>>>,
    tally: Tally,
}

impl<M: Machine> AnonLoan<M> {
    pub(crate) fn new(vm: &Vm<M>, anons: Vec<Arc<Anon<M>>>) -> AnonLoan<M> {
        vm.tally().anon_loans.add(anons.len());
        AnonLoan { anons, tally: vm.tally().clone() }
    }

    /// Length in pages.
    pub fn len_pages(&self) -> usize {
        self.anons.len()
    }

    /// Adds the pages of `more` behind these.
    pub fn append(&mut self, mut more: AnonLoan<M>) {
        self.anons.append(&mut more.anons);
    }

    pub(crate) fn anons(&self) -> &[Arc<Anon<M>>] {
        &self.anons
    }

    /// The anons, whose references the caller has from now on.
    pub(crate) fn into_anons(mut self) -> Vec<Arc<Anon<M>>> {
        self.tally.anon_loans.sub(self.anons.len());
        core::mem::take(&mut self.anons)
    }
}

impl<M: Machine> Drop for AnonLoan<M> {
    /// A loan that is given back has no anons left.
    fn drop(&mut self) {
        self.tally.lost.add(self.anons.len());
    }
}

impl<M: Machine> fmt::Debug for AnonLoan<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnonLoan of {} pages", self.anons.len())
    }
}

/// What pages are lent to, with those lent so far.
pub(super) enum LoanTarget<M: Machine> {
    Kernel(Vec<Pfn>),
    Anons(Vec<Arc<Anon<M>>>),
}

/// How far lending got with the map held.
#[derive(PartialEq, Eq)]
enum Step {
    Done,
    /// The page at this address must be faulted in first.
    Missing(Va),
}

const READ_ONLY: Prot = Prot::all().difference(Prot::WRITE);

impl<M: Machine> LoanTarget<M> {
    pub(super) fn len(&self) -> usize {
        match self {
            LoanTarget::Kernel(frames) => frames.len(),
            LoanTarget::Anons(anons) => anons.len(),
        }
    }

    /// Takes a page that is an anon's, which is locked.
    fn take_anon(
        &mut self,
        vm: &Vm<M>,
        anon: &Arc<Anon<M>>,
        state: &mut AnonState,
        pending: &mut TlbFlush<M>,
    ) -> Result<(), VmError> {
        let frame = state.usable().expect("the caller has seen it");
        let mut table = vm.frames().lock();
        table.touch_counts(frame, Access::Read);
        if state.refs == 1 {
            protect_first(vm, table.get(frame), frame, pending)?;
        }
        match self {
            LoanTarget::Kernel(frames) => {
                table.lend_to_kernel(frame);
                // In the same step, as at its end: the law that compares the two holds at any time.
                vm.tally().kernel_loans.add(1);
                frames.push(frame);
            }
            LoanTarget::Anons(anons) => {
                vm.machine().execute(vm.paths().anon);
                state.refs = state.refs.checked_add(1).expect("anon reference count overflows");
                anons.push(anon.clone());
            }
        }
        Ok(())
    }

    /// Takes a page that is an object's, which is locked.
    pub(super) fn take_object(
        &mut self,
        vm: &Vm<M>,
        frame: Pfn,
        pending: &mut TlbFlush<M>,
    ) -> Result<(), VmError> {
        match self {
            LoanTarget::Kernel(frames) => {
                let mut table = vm.frames().lock();
                table.touch_counts(frame, Access::Read);
                protect_first(vm, table.get(frame), frame, pending)?;
                table.lend_to_kernel(frame);
                // In the same step, as at its end: the law that compares the two holds at any time.
                vm.tally().kernel_loans.add(1);
                frames.push(frame);
            }
            LoanTarget::Anons(anons) => anons.push(loan_anon(vm, frame, pending)?),
        }
        Ok(())
    }

    /// What the kernel has on loan is on its way until the loan ends; anons go to the caller that asked for them.
    pub(super) fn trace(&self, vm: &Vm<M>, frame: Pfn, at: Place) {
        let parcel = Parcel { by: Means::Loan, at, len_bytes: PAGE_SIZE };
        let step = match self {
            LoanTarget::Kernel(_) => FlowStep::Sent(parcel),
            LoanTarget::Anons(_) => FlowStep::Taken(parcel),
        };
        vm.machine().trace_flow(Flow::Page(frame), step);
    }

    /// Gives everything back.
    pub(super) fn give_back(self, vm: &Vm<M>) {
        match self {
            LoanTarget::Kernel(frames) => end_kernel_loans(vm, &frames, frames.len()),
            LoanTarget::Anons(anons) => anons.iter().for_each(|anon| anon.drop_ref(vm)),
        }
    }
}

/// The first loan of a frame takes write permission from its mappings. A frame that is wired may be being written by
/// the kernel or a device: it cannot be lent.
fn protect_first<M: Machine>(
    vm: &Vm<M>,
    state: &crate::page::Frame<M>,
    frame: Pfn,
    pending: &mut TlbFlush<M>,
) -> Result<(), VmError> {
    if state.loan_count > 0 {
        return Ok(());
    }
    if state.is_pinned() {
        return Err(VmError::Busy);
    }
    if !vm.has(VmDefect::LoanWithoutProtect) {
        pending.merge(vm.pmaps().page_protect(frame, READ_ONLY));
    }
    Ok(())
}

/// Ends `count` loans: those of `frames`, which are all of them but for a planted defect.
fn end_kernel_loans<M: Machine>(vm: &Vm<M>, frames: &[Pfn], count: usize) {
    if count == 0 {
        return;
    }
    let mut table = vm.frames().lock();
    vm.tally().kernel_loans.sub(count);
    frames.iter().for_each(|&frame| table.end_kernel_loan(frame));
    if vm.has(VmDefect::UnloanInTwoSteps) {
        drop(table);
        let unused = |frame: &Pfn| vm.frames().lock().is_unused_orphan(*frame);
        let unused: BTreeSet<Pfn> = frames.iter().copied().filter(unused).collect();
        unused.into_iter().for_each(|frame| vm.frames().lock().free_orphan(frame));
    }
}

/// One more reference on the anon that has `frame`: its owner, its borrower, or a new one that becomes that. The frame
/// is on loan, or the object that owns it is locked: so it cannot be freed meanwhile.
///
/// # Errors
/// [`VmError::NoMemory`]; [`VmError::Busy`] when the frame is wired and not on loan.
pub(crate) fn loan_anon<M: Machine>(
    vm: &Vm<M>,
    frame: Pfn,
    pending: &mut TlbFlush<M>,
) -> Result<Arc<Anon<M>>, VmError> {
    loop {
        let known = {
            let table = vm.frames().lock();
            table.touch_counts(frame, Access::Read);
            let state = table.get(frame);
            match &state.owner {
                Owner::Anon(owner) => Some(owner.clone()),
                Owner::Object(..) | Owner::Orphan => state.borrower.clone(),
                Owner::Free | Owner::Kernel(_) => panic!("{frame:?} has no owner to lend it"),
            }
        };
        if let Some(anon) = known {
            // One that has released the frame meanwhile is not in the table any more.
            match anon.upgrade() {
                Some(anon) if anon.add_ref_if_has(vm, frame) => return Ok(anon),
                _ => continue,
            }
        }
        let anon = Anon::of_frame(vm, frame)?;
        let mut table = vm.frames().lock();
        let state = table.get(frame);
        let settled = match &state.owner {
            Owner::Orphan if state.borrower.is_none() => {
                table.adopt(frame, &anon);
                Some(Ok(()))
            }
            Owner::Object(..) if state.borrower.is_none() => {
                let protected = protect_first(vm, state, frame, pending);
                if protected.is_ok() {
                    table.lend_to_anon(frame, &anon);
                }
                Some(protected)
            }
            // Another CPU was faster.
            _ => None,
        };
        drop(table);
        match settled {
            Some(Ok(())) => return Ok(anon),
            Some(Err(e)) => {
                anon.forget(vm);
                return Err(e);
            }
            None => anon.forget(vm),
        }
    }
}

/// Lends pages as `lend` does, and flushes what that has protected in one shootdown.
pub(crate) fn in_one_batch<M: Machine, R>(
    vm: &Vm<M>,
    t: &dyn Threads,
    lend: impl FnOnce(&mut TlbFlush<M>) -> R,
) -> R {
    t.pin();
    let cpu = vm.machine().cpu();
    vm.batches().begin(cpu);
    let mut pending = TlbFlush::new();
    let result = lend(&mut pending);
    pending.flush(vm.pmaps());
    vm.batches().end(cpu);
    t.unpin();
    // A page that another CPU has just protected for a loan of its own may still be written through a TLB.
    if !vm.has(VmDefect::LoanUnsettled) {
        vm.batches().wait_flushed(vm.machine());
    }
    result
}

impl<M: Machine> Space<M> {
    /// Lends the pages of a user buffer to the kernel: they are made resident, wired, and write-protected in all
    /// mappings, with one shootdown.
    ///
    /// # Errors
    /// [`VmError::Invalid`] for a length of zero. [`VmError::Fault`] for a page that is not mapped or may not be read.
    /// [`VmError::Busy`] for a page that is wired. [`VmError::NoMemory`]. Nothing is lent then.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn loan_to_kernel(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<KernelLoan, VmError> {
        self.vm().needs_anons()?;
        let vm = self.vm();
        if len_bytes == 0 {
            return Err(VmError::Invalid);
        }
        let end = at.checked_add(len_bytes).and_then(|end| page_round(end.0)).ok_or(VmError::Fault(at))?;
        let pages = VaRange::new(Va(page_trunc(at.0)), Va(end));
        let LoanTarget::Kernel(frames) = self.lend(t, pages, at, LoanTarget::Kernel(Vec::new()))? else {
            unreachable!("a target stays what it is")
        };
        Ok(KernelLoan::new(vm, frames, at.offset(), len_bytes))
    }

    /// Lends whole pages as anons. What was never touched is lent as clear pages.
    ///
    /// # Errors
    /// As [`Space::loan_to_kernel`]; [`VmError::Invalid`] also when an end is not page-aligned.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn loan_to_anons(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<AnonLoan<M>, VmError> {
        self.vm().needs_anons()?;
        if len_bytes == 0 || !at.is_page_aligned() || !Va(len_bytes as u64).is_page_aligned() {
            return Err(VmError::Invalid);
        }
        let end = at.checked_add(len_bytes).ok_or(VmError::Fault(at))?;
        let LoanTarget::Anons(anons) =
            self.lend(t, VaRange::new(at, end), at, LoanTarget::Anons(Vec::new()))?
        else {
            unreachable!("a target stays what it is")
        };
        Ok(AnonLoan::new(self.vm(), anons))
    }

    /// Lends all of `pages`, or none; `first` is the first byte that is wanted.
    fn lend(
        &self,
        t: &dyn Threads,
        pages: VaRange,
        first: Va,
        mut target: LoanTarget<M>,
    ) -> Result<LoanTarget<M>, VmError> {
        let vm = self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        if !vm.user().covers(&pages) {
            return Err(VmError::Fault(first));
        }
        loop {
            let seen = vm.frames().refusals();
            let lent = self.lend_resident(t, pages, first, &mut target);
            // What was lent so far stays so meanwhile.
            if lent == Err(VmError::NoMemory) && vm.frames().refusals() != seen && vm.wait_for_memory(t) {
                continue;
            }
            let step = lent.and_then(|step| match step {
                Step::Missing(va) => {
                    let _c = vm.machine().scope(Cause::Fault);
                    self.resolve(t, va.max(first), Access::Read).map(|()| Step::Missing(va))
                }
                done => Ok(done),
            });
            match step {
                Ok(Step::Done) => {
                    assert!(target.len() == pages.len_pages(), "all pages are lent, or none");
                    return Ok(target);
                }
                Ok(Step::Missing(_)) => {}
                Err(e) => {
                    target.give_back(vm);
                    return Err(e);
                }
            }
        }
    }

    /// Lends on behind the pages that `target` has, in one batch, up to the first that must be faulted in.
    fn lend_resident(
        &self,
        t: &dyn Threads,
        pages: VaRange,
        first: Va,
        target: &mut LoanTarget<M>,
    ) -> Result<Step, VmError> {
        let vm = self.vm();
        let map = self.locked_map().read(t);
        // Memory that was never touched has no amap yet. Making it wants the map exclusively, and would cut the batch
        // in two: so it comes first.
        let bare = |e: &&Entry<M>| e.object.is_none() && e.amap.is_none();
        let rest = VaRange::new(pages.pages().nth(target.len()).unwrap_or(pages.end()), pages.end());
        if let Some(entry) = map.overlapping(rest).find(bare)
            && entry.attributes.prot.permits(Access::Read)
        {
            return Ok(Step::Missing(entry.range.start().max(rest.start())));
        }
        in_one_batch(vm, t, |pending| {
            let mut entry: Option<&Entry<M>> = None;
            for page in rest.pages() {
                vm.machine().execute(vm.paths().loan);
                if !entry.is_some_and(|e| e.range.contains(page)) {
                    entry = map.look_up(vm, page);
                }
                let readable = entry.filter(|e| e.attributes.prot.permits(Access::Read));
                let Some(entry) = readable else { return Err(VmError::Fault(page.max(first))) };
                match self.lend_page(entry, page, first, target, pending)? {
                    Step::Done => {}
                    missing => return Ok(missing),
                }
            }
            Ok(Step::Done)
        })
    }

    fn lend_page(
        &self,
        entry: &Entry<M>,
        page: Va,
        first: Va,
        target: &mut LoanTarget<M>,
        pending: &mut TlbFlush<M>,
    ) -> Result<Step, VmError> {
        let vm = &**self.vm();
        let mut upper = entry.amap.as_ref().map(|a| (a.amap.lock(), entry.slot(a, page)));
        if let Some((amap, slot)) = &mut upper {
            let found = amap.look_up(vm, *slot).cloned();
            let anon = match found {
                Some(anon) => Some(anon),
                None if entry.object.is_some() => None,
                None if entry.attributes.needs_copy => return Ok(Step::Missing(page)),
                None => {
                    let wanted = WantedFrame::clear(entry.anon_colour(vm, page));
                    let (anon, frame) = Anon::with_frame(vm, wanted)?;
                    if let Err(e) = amap.reserve(vm, *slot) {
                        anon.discard(vm, frame);
                        return Err(e);
                    }
                    vm.machine().count(VmCounter::ZeroFills, 1);
                    vm.zero(frame);
                    let old = amap.put(vm, *slot, anon.clone());
                    assert!(old.is_none(), "the hole was filled under its lock");
                    vm.frames().publish(frame);
                    Some(anon)
                }
            };
            if let Some(anon) = anon {
                return anon.with_page(vm, |mut state| {
                    anon.touch(vm, Access::Write);
                    let Some(frame) = state.usable() else { return Ok(Step::Missing(page)) };
                    target.take_anon(vm, &anon, &mut state, pending)?;
                    target.trace(vm, frame, Place::User(page));
                    Ok(Step::Done)
                });
            }
        }
        let Some(oref) = &entry.object else { return Ok(Step::Missing(page)) };
        let mut state = oref.object.lock();
        let mut number = entry.object_page(oref, page);
        // Only a page that is resident: the wrong one would never be brought in.
        if vm.has(VmDefect::LoanAtWrongOffset) && state.pages().contains_key(&(number - oref.page)) {
            number -= oref.page;
        }
        let frame = match oref.object.page(vm, &mut state, number) {
            Ok(frame) => frame,
            Err(ObjectPageError::NotResident) => return Ok(Step::Missing(page)),
            Err(ObjectPageError::NoMemory) => return Err(VmError::NoMemory),
            Err(ObjectPageError::Pager(_)) => return Err(VmError::Fault(page.max(first))),
            Err(ObjectPageError::BehindEnd) => return Err(VmError::Bus(page.max(first))),
        };
        target.take_object(vm, frame, pending)?;
        target.trace(vm, frame, Place::User(page));
        Ok(Step::Done)
    }
}

impl<M: Machine> Vm<M> {
    /// Gives a loan to the kernel back. A frame without an owner is freed with its last loan.
    ///
    /// # Locks
    /// Takes the page queues.
    pub fn unloan(&self, mut loan: KernelLoan) {
        let _c = self.machine().scope(Cause::Vm);
        let mut frames = core::mem::take(&mut loan.frames);
        self.machine().execute(self.paths().loan);
        let count = frames.len();
        if self.has(VmDefect::LoanLeaked) {
            frames.pop();
        }
        end_kernel_loans(self, &frames, count);
    }

    /// Lends `pages` of those that the kernel has on loan further, as anons: the anon of each, or a new one for an
    /// object's page and for one whose owner is gone (UVM paper, 4.1.1 and 4.2.3). The loan to the kernel goes on.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]; nothing more is lent then.
    ///
    /// # Locks
    /// Takes anons' locks and the page queues.
    ///
    /// # Panics
    /// When the loan has fewer pages.
    pub fn loan_frames_to_anons(
        &self,
        loan: &KernelLoan,
        pages: Range<usize>,
    ) -> Result<AnonLoan<M>, VmError> {
        let _c = self.machine().scope(Cause::Vm);
        let frames = &loan.frames[pages];
        let mut anons = Vec::with_capacity(frames.len());
        // Nothing to protect: the frames are on loan.
        let mut pending = TlbFlush::new();
        for &frame in frames {
            self.machine().execute(self.paths().loan);
            match loan_anon(self, frame, &mut pending) {
                Ok(anon) => anons.push(anon),
                Err(e) => {
                    pending.flush(self.pmaps());
                    LoanTarget::Anons(anons).give_back(self);
                    return Err(e);
                }
            }
        }
        pending.flush(self.pmaps());
        Ok(AnonLoan::new(self, anons))
    }

    /// Gives anons on loan back. What has no other reference is freed.
    ///
    /// # Locks
    /// Takes anons' locks and the page queues.
    pub fn release_anons(&self, anons: AnonLoan<M>) {
        let _c = self.machine().scope(Cause::Vm);
        LoanTarget::Anons(anons.into_anons()).give_back(self);
    }
}
