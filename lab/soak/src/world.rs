//! The processes of a program, twice: as the VM system has them, and as the plain model does.
//!
//! A step is made ready, run, and settled: made ready and settled on the host, between the rounds; run on a CPU of the
//! machine. What it takes (a loan to give back, a slot for a child) it takes when it is made ready, so that steps can
//! run side by side. Steps that do so belong to different processes and touch nothing that others see, so that what
//! each should do can be said without knowing in which order they ran; underneath they still share frames, anons and
//! amaps.

use crate::program::{FILE_PAGES, Op, PAGES, PROCESSES, Step, TOKENS};
use crate::reference::{Bytes, FilePage, Page, Process};
use crate::rig::{AddressSpace, Rig, pattern};
use pageferry_ephemeral::KernelAddresses;
use pageferry_hal::*;
use pageferry_model::Model;
use pageferry_vm::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) const PAGE: usize = PAGE_SIZE;
/// Where the programs' pages are: across the border of two page-table pages.
const BASE: Va = Va(0x40_0000 - 6 * PAGE as u64);

/// A process.
pub(crate) struct ProcSlot {
    pub(crate) space: AddressSpace,
    pub(crate) model: Process,
}

pub(crate) struct Wire {
    wired: Wired,
    /// The pages that are wired for writing: their frames stay the pages' own as long as the wire lasts.
    pages: Option<Vec<Page>>,
}

/// A loan to the kernel, and the bytes as of the loan.
pub(crate) struct Lent {
    pub(crate) loan: KernelLoan,
    bytes: Vec<Bytes>,
}

impl Lent {
    pub(crate) fn bytes(&self) -> Vec<Bytes> {
        self.bytes.clone()
    }
}

pub(crate) struct LentAnons {
    pub(crate) loan: AnonLoan<Model>,
    pub(crate) bytes: Vec<Bytes>,
}

/// What a step has taken from the world and may put back.
pub(crate) enum Token {
    None,
    Wire(Wire),
    Loan(Lent),
    Anons(LentAnons),
}

/// A step made ready.
pub(crate) struct Task {
    pub(crate) op: Op,
    pub(crate) who: usize,
    /// The receiver of what is passed, or the slot of a child.
    pub(crate) other: Option<usize>,
    pub(crate) token: RefCell<Token>,
}

pub(crate) struct World {
    pub(crate) rig: Rig,
    /// As many as processes, and one that stays empty: the page daemon's.
    pub(crate) slots: Vec<RefCell<Option<ProcSlot>>>,
    wires: RefCell<Vec<Wire>>,
    pub(crate) loans: RefCell<Vec<Lent>>,
    pub(crate) anon_loans: RefCell<Vec<LentAnons>>,
    pub(crate) object: Arc<Object<Model>>,
    file: Vec<FilePage>,
    /// Pages are wired, or were at some time in this round.
    pub(crate) wired: Cell<bool>,
    free_at_start: usize,
}

struct Contents;
impl Pager for Contents {
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError> {
        bytes.copy_from_slice(&file_page(page)[..]);
        Ok(())
    }
}

fn file_page(page: u64) -> Bytes {
    Rc::new(pattern(page as u8, PAGE).try_into().expect("a page of bytes"))
}

pub(crate) fn va(page: u64) -> Va {
    BASE + page as usize * PAGE
}

/// The part of each page that `len` bytes from `offset` touch: page, first and last offset.
pub(crate) fn chunks(offset: usize, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len;
    (offset / PAGE..end.div_ceil(PAGE))
        .map(move |n| (n as u64, offset.max(n * PAGE), end.min((n + 1) * PAGE)))
        .filter(|(_, from, to)| from < to)
}

/// The pages that an operation names of its process.
fn pages_of(op: &Op) -> Range<u64> {
    match *op {
        Op::Map { page, pages, .. }
        | Op::MapFile { page, pages, .. }
        | Op::Unmap { page, pages }
        | Op::Protect { page, pages, .. }
        | Op::Inherit { page, pages, .. }
        | Op::LoanAnons { page, pages }
        | Op::TransferPages { page, pages, .. }
        | Op::Anflush { page, pages }
        | Op::PushDown { page, pages, .. }
        | Op::Pass { page, pages, .. } => page..page + pages,
        Op::Write { offset, len, .. }
        | Op::Read { offset, len }
        | Op::Wire { offset, len, .. }
        | Op::Loan { offset, len }
        | Op::QuickRef { offset, len, .. } => (offset / PAGE) as u64..((offset + len).div_ceil(PAGE)) as u64,
        Op::TransferAnons { page, .. } => page..page + PAGES,
        Op::Fork | Op::Exit => 0..u64::MAX,
        Op::Scribble { .. }
        | Op::Reclaim
        | Op::Unwire { .. }
        | Op::Unloan { .. }
        | Op::LoanFurther { .. }
        | Op::ReleaseAnons { .. } => 0..0,
    }
}

impl World {
    pub(crate) fn new(rig: &Rig) -> World {
        let free_at_start = rig.vm.free_frames();
        let first = ProcSlot { space: rig.vm.space().expect("there is memory"), model: Process::default() };
        let slots: Vec<_> = (0..=PROCESSES).map(|_| RefCell::new(None)).collect();
        *slots[0].borrow_mut() = Some(first);
        let object = rig.vm.object(FILE_PAGES, Backing::Pager(Arc::new(Contents))).expect("there is memory");
        World {
            rig: rig.clone(),
            slots,
            wires: RefCell::default(),
            loans: RefCell::default(),
            anon_loans: RefCell::default(),
            object,
            file: (0..FILE_PAGES).map(|p| Rc::new(RefCell::new(file_page(p)))).collect(),
            wired: Cell::new(false),
            free_at_start,
        }
    }

    // ------------------------------------------------------------------------------------------- making ready

    /// The process that a step is for.
    fn living(&self, process: usize) -> usize {
        let first = process % PROCESSES;
        (first..first + PROCESSES)
            .map(|i| i % PROCESSES)
            .find(|&i| self.slots[i].borrow().is_some())
            .expect("one lives always")
    }

    /// A step with what it needs, or none if it has nothing to do now.
    pub(crate) fn ready(&self, step: &Step) -> Option<Task> {
        let who = self.living(step.process);
        let mut task = Task { op: step.op, who, other: None, token: RefCell::new(Token::None) };
        fn take<T>(list: &RefCell<Vec<T>>, which: usize) -> Option<T> {
            let mut list = list.borrow_mut();
            (!list.is_empty()).then(|| {
                let n = list.len();
                list.remove(which % n)
            })
        }
        match step.op {
            Op::Fork => {
                task.other = Some(self.slots[..PROCESSES].iter().position(|s| s.borrow().is_none())?);
            }
            Op::Reclaim => task.who = PROCESSES,
            Op::Exit if self.slots.iter().filter(|s| s.borrow().is_some()).count() < 2 => return None,
            Op::Pass { to, .. } => task.other = Some(self.living(to)),
            Op::QuickRef { holder, .. } => task.other = Some(self.living(holder)),
            Op::Scribble { which, .. } | Op::Unwire { which } => {
                *task.token.get_mut() = Token::Wire(take(&self.wires, which)?);
            }
            Op::Unloan { which } | Op::LoanFurther { which } => {
                *task.token.get_mut() = Token::Loan(take(&self.loans, which)?);
            }
            Op::ReleaseAnons { which } | Op::TransferAnons { which, .. } => {
                *task.token.get_mut() = Token::Anons(take(&self.anon_loans, which)?);
            }
            Op::Wire { .. } if self.wires.borrow().len() >= TOKENS => return None,
            Op::Loan { .. } if self.loans.borrow().len() >= TOKENS => return None,
            Op::LoanAnons { .. } if self.anon_loans.borrow().len() >= TOKENS => return None,
            _ => {}
        }
        Some(task)
    }

    /// Puts back what a task that does not run has taken.
    pub(crate) fn unready(&self, task: Task) {
        match task.token.into_inner() {
            Token::None => {}
            Token::Wire(wire) => self.wires.borrow_mut().push(wire),
            Token::Loan(lent) => self.loans.borrow_mut().push(lent),
            Token::Anons(lent) => self.anon_loans.borrow_mut().push(lent),
        }
    }

    /// True for a task whose effect others see, or that needs the machine for itself.
    pub(crate) fn is_solo(&self, task: &Task) -> bool {
        let shares = |slot: usize, pages: Range<u64>| {
            self.slots[slot].borrow().as_ref().is_some_and(|s| s.model.shares(pages))
        };
        match task.op {
            Op::Exit | Op::Scribble { .. } => true,
            // A driver's pages are filled through kernel addresses that all CPUs share.
            Op::TransferPages { .. } => true,
            // Every mapping of the file sees it.
            Op::PushDown { .. } => true,
            _ => shares(task.who, pages_of(&task.op)),
        }
    }

    /// True when the two may run side by side; neither is solo.
    pub(crate) fn are_strangers(a: &Task, b: &Task) -> bool {
        let ends = |t: &Task| [Some(t.who), t.other];
        ends(a).iter().flatten().all(|x| !ends(b).iter().flatten().any(|y| x == y))
    }

    pub(crate) fn begin_round(&self, tasks: &[Task]) {
        let comes = |t: &Task| matches!(t.op, Op::Wire { .. } | Op::Unwire { .. } | Op::Scribble { .. });
        self.wired.set(!self.wires.borrow().is_empty() || tasks.iter().any(comes));
    }

    // ------------------------------------------------------------------------------------------- running

    /// Does the task. An error that the model did not expect is returned, and then nothing has changed.
    pub(crate) fn apply(&self, task: &Task, alone: bool) -> Result<(), VmError> {
        match task.op {
            Op::Fork => self.fork(task),
            Op::Reclaim => {
                let before = self.rig.vm.free_frames();
                let reclaimed = self.rig.vm.reclaim(self.rig.t());
                let grown = self.rig.vm.free_frames().saturating_sub(before);
                assert!(
                    !alone || grown == reclaimed,
                    "{reclaimed} frames count as reclaimed, {grown} are free"
                );
                Ok(())
            }
            Op::Exit => {
                let slot = self.slots[task.who].borrow_mut().take().expect("it lives");
                self.rig.exit(slot.space);
                Ok(())
            }
            Op::Wire { offset, len, write } => self.wire(task, offset, len, write),
            Op::Scribble { tag, .. } => self.scribble(task, tag),
            Op::Unwire { .. } => {
                let Token::Wire(wire) = task.token.replace(Token::None) else { unreachable!("made ready") };
                self.rig.vm.unwire(wire.wired);
                Ok(())
            }
            Op::Map { .. }
            | Op::MapFile { .. }
            | Op::Unmap { .. }
            | Op::Protect { .. }
            | Op::Inherit { .. }
            | Op::Write { .. }
            | Op::Read { .. } => self.memory(task),
            _ => self.mover(task),
        }
    }

    /// What came of a call: true when it did what it should. With pages wired, they may be busy.
    pub(crate) fn outcome(
        &self,
        got: Result<(), VmError>,
        expected: Result<(), VmError>,
        op: &Op,
    ) -> Result<bool, VmError> {
        // A loan goes page by page: a wired one may come before one that is not there.
        let may_be_busy = expected.is_ok() || matches!(op, Op::Loan { .. } | Op::LoanAnons { .. });
        match got {
            Err(VmError::NoMemory) if expected != got => Err(VmError::NoMemory),
            Err(VmError::Busy) if may_be_busy && self.wired.get() => Ok(false),
            got => {
                assert_eq!(got, expected, "{op:?} ended otherwise than it should");
                Ok(got.is_ok())
            }
        }
    }

    fn memory(&self, task: &Task) -> Result<(), VmError> {
        let (rig, op) = (&self.rig, &task.op);
        let t = rig.t();
        let mut slot = self.slots[task.who].borrow_mut();
        let ProcSlot { space, model } = slot.as_mut().expect("it lives");
        let range = |page: u64, pages: u64| page..page + pages;
        match *op {
            Op::Map { page, pages, access, child } => {
                let (prot, inherit) = (access.prot(), child.inherit());
                let got = space.map(t, Some(va(page)), pages as usize * PAGE, prot, inherit).map(drop);
                let expected = if model.is_free(range(page, pages)) { Ok(()) } else { Err(VmError::Exists) };
                if self.outcome(got, expected, op)? {
                    model.pages.extend(range(page, pages).map(|n| (n, Page::zero(prot, inherit))));
                }
            }
            Op::MapFile { page, first, pages, access, private, child } => {
                let (prot, inherit) = (access.prot(), child.inherit());
                let mapped =
                    Mapped { object: self.object.clone(), first_page: first, copy_on_write: private };
                let len = pages as usize * PAGE;
                let got = space.map_object(t, Some(va(page)), len, prot, inherit, mapped).map(drop);
                let expected = if model.is_free(range(page, pages)) { Ok(()) } else { Err(VmError::Exists) };
                if self.outcome(got, expected, op)? {
                    for (n, f) in range(page, pages).zip(first..) {
                        model.pages.insert(n, Page::of_file(&self.file[f as usize], private, prot, inherit));
                    }
                }
            }
            Op::Unmap { page, pages } => {
                if self.outcome(space.unmap(t, va(page), pages as usize * PAGE), Ok(()), op)? {
                    model.pages.retain(|n, _| !range(page, pages).contains(n));
                }
            }
            Op::Protect { page, pages, access } => {
                let all = model.is_mapped(range(page, pages));
                let got = space.protect(t, va(page), pages as usize * PAGE, access.prot());
                if self.outcome(got, if all { Ok(()) } else { Err(VmError::NoMemory) }, op)? {
                    model.pages.range_mut(range(page, pages)).for_each(|(_, p)| p.prot = access.prot());
                }
            }
            Op::Inherit { page, pages, child } => {
                let all = model.is_mapped(range(page, pages));
                let got = space.inherit(t, va(page), pages as usize * PAGE, child.inherit());
                if self.outcome(got, if all { Ok(()) } else { Err(VmError::NoMemory) }, op)? {
                    model.pages.range_mut(range(page, pages)).for_each(|(_, p)| p.inherit = child.inherit());
                }
            }
            Op::Write { offset, len, tag } => {
                let bytes = pattern(tag, len);
                let (done, result) = rig.store_some(space, BASE + offset, &bytes);
                if len > 0 && result.is_ok() {
                    rig.check_noted(space, BASE + offset + (len - 1), Access::Write);
                }
                for (n, from, to) in chunks(offset, done) {
                    model.pages[&n].write(from % PAGE, &bytes[from - offset..to - offset]);
                }
                let at = BASE + offset + done;
                let refusal = if done < len { model.refusal(page_of(at), true, at) } else { None };
                self.outcome(result, refusal.map_or(Ok(()), Err), op)?;
            }
            Op::Read { offset, len } => {
                let got = rig.load(space, BASE + offset, len);
                let refused =
                    chunks(offset, len).find_map(|(n, from, _)| model.refusal(n, false, BASE + from));
                let expected = refused.map_or(Ok(()), Err);
                if self.outcome(got.as_ref().map(drop).map_err(|e| *e), expected, op)? {
                    let got = got.expect("it was read");
                    if len > 0 {
                        rig.check_noted(space, BASE + offset + (len - 1), Access::Read);
                    }
                    for (n, from, to) in chunks(offset, len) {
                        let expected = &model.pages[&n].bytes()[from % PAGE..from % PAGE + (to - from)];
                        assert!(got[from - offset..to - offset] == *expected, "page {n} reads wrongly");
                    }
                }
            }
            ref op => unreachable!("{op:?} is not of these"),
        }
        Ok(())
    }

    fn fork(&self, task: &Task) -> Result<(), VmError> {
        let parent = self.slots[task.who].borrow();
        let ProcSlot { space, model } = parent.as_ref().expect("it lives");
        let child = ProcSlot { space: space.fork(self.rig.t())?, model: model.fork() };
        let slot = task.other.expect("made ready");
        assert!(self.slots[slot].replace(Some(child)).is_none(), "the slot was free");
        Ok(())
    }

    fn wire(&self, task: &Task, offset: usize, len: usize, write: bool) -> Result<(), VmError> {
        let slot = self.slots[task.who].borrow();
        let ProcSlot { space, model } = slot.as_ref().expect("it lives");
        let prot = if write { Prot::RW } else { Prot::READ };
        let wired = match space.wire(self.rig.t(), BASE + offset, len, prot) {
            Ok(wired) => wired,
            Err(VmError::NoMemory) => return Err(VmError::NoMemory),
            Err(e) => {
                let refused = chunks(offset, len)
                    .find(|&(n, from, _)| model.refusal(n, write, BASE + from).is_some())
                    .expect("nothing forbids it");
                assert_eq!(e, VmError::Fault(BASE + refused.1), "{:?}", task.op);
                // What comes before was made ready: a private page has a copy of its own from now on.
                if write {
                    (offset / PAGE..refused.1 / PAGE).for_each(|n| model.pages[&(n as u64)].promote());
                }
                return Ok(());
            }
        };
        assert_eq!((wired.offset(), wired.len_bytes()), (offset % PAGE, len), "{:?}", task.op);
        let pages: Vec<Page> = chunks(offset, len).map(|(n, ..)| model.pages[&n].clone()).collect();
        assert_eq!(pages.len(), wired.frames().len(), "{:?}", task.op);
        for (page, &frame) in pages.iter().zip(wired.frames()) {
            if write {
                page.promote();
            }
            assert!(self.rig.m.frame_is(frame, &page.bytes()[..]), "{frame:?} is wired with other bytes");
        }
        self.wires.borrow_mut().push(Wire { wired, pages: write.then_some(pages) });
        Ok(())
    }

    /// The kernel stores into wired frames, as a device or a reader of another process would.
    fn scribble(&self, task: &Task, tag: u8) -> Result<(), VmError> {
        let token = task.token.borrow();
        let Token::Wire(Wire { wired, pages: Some(pages) }) = &*token else { return Ok(()) };
        let vm = &*self.rig.vm;
        let window = KernelAddresses::alloc(vm, 1).ok_or(VmError::NoMemory)?;
        for (i, (page, &frame)) in pages.iter().zip(wired.frames()).enumerate() {
            vm.pmaps().kenter(window.start(), &[frame], Prot::RW).flush(vm.pmaps());
            let bytes = pattern(tag.wrapping_add(i as u8), 77);
            self.rig
                .m
                .store(pageferry_hal::Mode::Kernel, window.start() + 500, &bytes)
                .expect("it is mapped");
            vm.pmaps().kremove(window).flush(vm.pmaps());
            page.write(500, &bytes);
        }
        KernelAddresses::free(vm, window);
        Ok(())
    }

    // ------------------------------------------------------------------------------------------- comparing

    /// The pages that the task has touched, as far as they are mapped, have the right bytes.
    pub(crate) fn compare_task(&self, task: &Task) {
        if matches!(task.op, Op::PushDown { .. }) {
            // Every mapping of the file sees it.
            return (0..PROCESSES).for_each(|slot| self.compare_slot(slot, 0..u64::MAX, Page::is_over_file));
        }
        for slot in [Some(task.who), task.other].into_iter().flatten() {
            let pages = match task.op {
                Op::Pass { to_page, pages, .. } if task.other == Some(slot) => to_page..to_page + pages,
                _ => pages_of(&task.op),
            };
            self.compare_slot(slot, pages, |_| true);
        }
    }

    fn compare_slot(&self, slot: usize, pages: Range<u64>, which: impl Fn(&Page) -> bool) {
        let borrowed = self.slots[slot].borrow();
        let Some(ProcSlot { space, model }) = borrowed.as_ref() else { return };
        for (&n, page) in model.pages.range(pages).filter(|(_, page)| which(page)) {
            let Some((frame, prot)) = self.rig.vm.pmaps().extract(space.pmap(), va(n)) else { continue };
            assert!(page.prot.contains(prot), "page {n} of process {slot} permits {prot:?}");
            let same = self.rig.m.frame_is(frame, &page.bytes()[..]);
            assert!(same, "page {n} of process {slot} has other bytes");
        }
    }

    /// Everything that is mapped, lent, or wired for writing has the right bytes.
    pub(crate) fn compare(&self) {
        (0..PROCESSES).for_each(|slot| self.compare_slot(slot, 0..u64::MAX, |_| true));
        for lent in self.loans.borrow().iter() {
            for (bytes, &frame) in lent.bytes.iter().zip(lent.loan.frames()) {
                assert!(self.rig.m.frame_is(frame, &bytes[..]), "{frame:?} has changed while on loan");
            }
        }
        self.count_loans();
        for wire in self.wires.borrow().iter() {
            for (page, &frame) in wire.pages.iter().flatten().zip(wire.wired.frames()) {
                assert!(
                    self.rig.m.frame_is(frame, &page.bytes()[..]),
                    "{frame:?} left its owner while wired"
                );
            }
        }
    }

    /// Each frame counts as many loans to the kernel as there are in the loans held here, and there are as many wires
    /// as the values here hold. (That the sums of loans agree is a law; this is frame by frame. One loan more may be a
    /// borrower's.)
    fn count_loans(&self) {
        let mut named: BTreeMap<Pfn, u32> = BTreeMap::new();
        for lent in self.loans.borrow().iter() {
            lent.loan.frames().iter().for_each(|&frame| *named.entry(frame).or_default() += 1);
        }
        let wires: usize = self.wires.borrow().iter().map(|wire| wire.wired.frames().len()).sum();
        let lent: usize = self.loans.borrow().iter().map(|lent| lent.loan.frames().len()).sum();
        assert_eq!(self.rig.vm.wired_frames(), (wires + lent) as u64, "wires, and those that are held");
        for (frame, loans) in named {
            let counted = self.rig.vm.frame_info(frame).loan_count;
            assert!(
                (loans..=loans + 1).contains(&counted),
                "{frame:?} counts {counted} loans, {loans} are out"
            );
        }
    }

    pub(crate) fn add_loan(&self, loan: KernelLoan, bytes: Vec<Bytes>) {
        self.loans.borrow_mut().push(Lent { loan, bytes });
    }

    /// All bytes of all processes, by loads; then the end of everything.
    pub(crate) fn finish(self) {
        let rig = self.rig.clone();
        for slot in &self.slots {
            let slot = slot.borrow();
            let Some(ProcSlot { space, model }) = slot.as_ref() else { continue };
            for (&n, page) in model.pages.iter().filter(|(_, p)| p.prot.contains(Prot::READ)) {
                let got = rig.load(space, va(n), PAGE).expect("it can be read");
                assert!(got == page.bytes()[..], "page {n} has other bytes");
            }
        }
        self.compare();
        self.slots.iter().filter_map(RefCell::take).for_each(|slot| rig.exit(slot.space));
        rig.check();
        self.wires.into_inner().into_iter().for_each(|wire| rig.vm.unwire(wire.wired));
        self.loans.into_inner().into_iter().for_each(|lent| rig.vm.unloan(lent.loan));
        rig.check();
        self.anon_loans.into_inner().into_iter().for_each(|lent| rig.vm.release_anons(lent.loan));
        rig.vm.release_object(self.object);
        let left = (rig.vm.free_frames(), rig.vm.wired_frames());
        assert_eq!(left, (self.free_at_start, 0), "all frames are given back, and all wires");
    }
}

fn page_of(at: Va) -> u64 {
    ((at - BASE) / PAGE) as u64
}
