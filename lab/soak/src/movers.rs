//! The steps that move pages: loan, transfer and pass.

use crate::program::{Down, Mode, Op};
use crate::reference::{Bytes, Page, Process};
use crate::rig::pattern;
use crate::world::{LentAnons, PAGE, ProcSlot, Task, Token, World, chunks, va};
use pageferry_ephemeral::KernelAddresses;
use pageferry_hal::*;
use pageferry_vm::*;
use std::ops::Range;
use std::rc::Rc;

/// What a transfer to these pages should say.
fn receives(model: &Process, pages: Range<u64>) -> Result<(), VmError> {
    if !model.is_mapped(pages.clone()) {
        return Err(VmError::Fault(va(pages.start)));
    }
    let takes = |p: &Page| p.is_anonymous() && p.prot.contains(Prot::RW);
    if model.pages.range(pages).all(|(_, p)| takes(p)) { Ok(()) } else { Err(VmError::Access) }
}

fn split<T>(result: Result<T, VmError>) -> (Result<(), VmError>, Option<T>) {
    match result {
        Ok(value) => (Ok(()), Some(value)),
        Err(e) => (Err(e), None),
    }
}

impl World {
    pub(crate) fn mover(&self, task: &Task) -> Result<(), VmError> {
        if self.rig.has_shadows() && !matches!(task.op, Op::Pass { .. } | Op::QuickRef { .. }) {
            return self.refused(task);
        }
        match task.op {
            Op::Loan { .. } | Op::LoanAnons { .. } => self.lend(task),
            Op::Unloan { .. } => {
                let Token::Loan(lent) = task.token.replace(Token::None) else { unreachable!("made ready") };
                self.rig.vm.unloan(lent.loan);
                Ok(())
            }
            Op::LoanFurther { .. } => self.lend_further(task),
            Op::ReleaseAnons { .. } => {
                let Token::Anons(lent) = task.token.replace(Token::None) else { unreachable!("made ready") };
                self.rig.vm.release_anons(lent.loan);
                Ok(())
            }
            Op::TransferAnons { page, .. } => self.transfer_anons(task, page),
            Op::TransferPages { page, pages, tag } => self.transfer_pages(task, page..page + pages, tag),
            Op::Anflush { page, pages } => {
                let mut slot = self.slots[task.who].borrow_mut();
                let ProcSlot { space, model } = slot.as_mut().expect("it lives");
                let all = model.is_mapped(page..page + pages);
                let got = space.anflush(self.rig.t(), va(page), pages as usize * PAGE);
                if self.outcome(got, if all { Ok(()) } else { Err(VmError::NoMemory) }, &task.op)? {
                    model.pages.range(page..page + pages).for_each(|(_, p)| p.flush());
                }
                Ok(())
            }
            Op::Pass { page, pages, to_page, mode, .. } => self.pass(task, page..page + pages, to_page, mode),
            Op::PushDown { page, pages, how } => self.push_down(task, page..page + pages, how),
            Op::QuickRef { offset, len, write, tag, .. } => {
                self.quick_ref(task, offset, len, write.then_some(tag))
            }
            ref op => unreachable!("{op:?} moves no pages"),
        }
    }

    /// Where memory is made of shadow objects, nothing is lent, transferred, flushed or pushed down.
    fn refused(&self, task: &Task) -> Result<(), VmError> {
        let t = self.rig.t();
        let slot = self.slots[task.who].borrow();
        let space = &slot.as_ref().expect("it lives").space;
        let bytes = |pages: u64| pages as usize * PAGE;
        let got = match task.op {
            Op::Loan { offset, len } => space.loan_to_kernel(t, va(0) + offset, len).map(drop),
            Op::LoanAnons { page, pages } => space.loan_to_anons(t, va(page), bytes(pages)).map(drop),
            Op::TransferPages { page, pages, tag } => {
                let data = self.data(pages as usize, tag)?;
                let moved = space.transfer_pages(t, Some(va(page)), data);
                moved.map(drop).map_err(|Refused { error, back }| {
                    self.rig.vm.free_kernel_pages(back);
                    error
                })
            }
            Op::Anflush { page, pages } => space.anflush(t, va(page), bytes(pages)),
            Op::PushDown { page, pages, how } => {
                space.push_down(t, va(page), bytes(pages), &self.object, how.push_down()).map(drop)
            }
            ref op => unreachable!("{op:?} has nothing to work on"),
        };
        assert_eq!(got, Err(VmError::Unsupported), "{:?}", task.op);
        Ok(())
    }

    fn lend(&self, task: &Task) -> Result<(), VmError> {
        let t = self.rig.t();
        let slot = self.slots[task.who].borrow();
        let ProcSlot { space, model } = slot.as_ref().expect("it lives");
        match task.op {
            Op::Loan { offset, len } => {
                let refused = chunks(offset, len)
                    .find(|&(n, from, _)| model.refusal(n, false, va(0) + from).is_some())
                    .map_or(Ok(()), |(_, from, _)| Err(VmError::Fault(va(0) + from)));
                let (got, loan) = split(space.loan_to_kernel(t, va(0) + offset, len));
                if self.outcome(got, refused, &task.op)? {
                    let bytes = chunks(offset, len).map(|(n, ..)| model.pages[&n].bytes()).collect();
                    self.add_loan(loan.expect("it is lent"), bytes);
                }
            }
            Op::LoanAnons { page, pages } => {
                let refused = (page..page + pages)
                    .find(|&n| model.refusal(n, false, va(n)).is_some())
                    .map_or(Ok(()), |n| Err(VmError::Fault(va(n))));
                let (got, loan) = split(space.loan_to_anons(t, va(page), pages as usize * PAGE));
                if self.outcome(got, refused, &task.op)? {
                    let bytes = (page..page + pages).map(|n| model.pages[&n].bytes()).collect();
                    self.anon_loans.borrow_mut().push(LentAnons { loan: loan.expect("it is lent"), bytes });
                }
            }
            ref op => unreachable!("{op:?} lends nothing"),
        }
        Ok(())
    }

    fn lend_further(&self, task: &Task) -> Result<(), VmError> {
        let token = task.token.borrow();
        let Token::Loan(lent) = &*token else { unreachable!("made ready") };
        let loan = self.rig.vm.loan_frames_to_anons(&lent.loan, 0..lent.loan.frames().len())?;
        self.anon_loans.borrow_mut().push(LentAnons { loan, bytes: lent.bytes() });
        Ok(())
    }

    fn transfer_anons(&self, task: &Task, page: u64) -> Result<(), VmError> {
        let slot = self.slots[task.who].borrow();
        let ProcSlot { space, model } = slot.as_ref().expect("it lives");
        let Token::Anons(LentAnons { loan, bytes }) = task.token.replace(Token::None) else {
            unreachable!("made ready")
        };
        let expected = receives(model, page..page + bytes.len() as u64);
        match space.transfer_anons(self.rig.t(), Some(va(page)), loan) {
            Ok(_) => {
                self.outcome(Ok(()), expected, &task.op)?;
                (page..).zip(&bytes).for_each(|(n, bytes)| model.pages[&n].replace(bytes));
            }
            Err(Refused { error, back }) => {
                *task.token.borrow_mut() = Token::Anons(LentAnons { loan: back, bytes });
                self.outcome(Err(error), expected, &task.op)?;
            }
        }
        Ok(())
    }

    fn transfer_pages(&self, task: &Task, pages: Range<u64>, tag: u8) -> Result<(), VmError> {
        let slot = self.slots[task.who].borrow();
        let ProcSlot { space, model } = slot.as_ref().expect("it lives");
        let data = self.data((pages.end - pages.start) as usize, tag)?;
        let expected = receives(model, pages.clone());
        let (t, at) = (self.rig.t(), Some(va(pages.start)));
        // Every other time the kernel wants what is replaced.
        let moved = match tag % 2 {
            0 => space.transfer_pages(t, at, data).map(|va| (va, None)),
            _ => space.exchange_pages(t, at, data),
        };
        match moved {
            Ok((_, returned)) => {
                returned.into_iter().for_each(|pages| self.rig.vm.free_kernel_pages(pages));
                self.outcome(Ok(()), expected, &task.op)?;
                let bytes = pattern(tag, (pages.end - pages.start) as usize * PAGE);
                for (n, bytes) in pages.zip(bytes.as_chunks::<PAGE>().0) {
                    let bytes: Bytes = Rc::new(*bytes);
                    model.pages[&n].replace(&bytes);
                }
            }
            Err(Refused { error, back }) => {
                self.rig.vm.free_kernel_pages(back);
                self.outcome(Err(error), expected, &task.op)?;
            }
        }
        Ok(())
    }

    /// Pages that a driver has filled.
    fn data(&self, len_pages: usize, tag: u8) -> Result<KernelPages, VmError> {
        let vm = &*self.rig.vm;
        let pages = vm.kernel_pages(len_pages)?;
        let Some(window) = KernelAddresses::alloc(vm, len_pages) else {
            vm.free_kernel_pages(pages);
            return Err(VmError::NoMemory);
        };
        vm.pmaps().kenter(window.start(), pages.frames(), Prot::RW).flush(vm.pmaps());
        let bytes = pattern(tag, len_pages * PAGE);
        let stored = self.rig.m.store(pageferry_hal::Mode::Kernel, window.start(), &bytes);
        stored.expect("it is mapped");
        vm.pmaps().kremove(window).flush(vm.pmaps());
        KernelAddresses::free(vm, window);
        Ok(pages)
    }

    /// Page by page: which of several are down when one is refused cannot be told from outside.
    fn push_down(&self, task: &Task, pages: Range<u64>, how: Down) -> Result<(), VmError> {
        let slot = self.slots[task.who].borrow();
        let ProcSlot { space, model } = slot.as_ref().expect("it lives");
        for n in pages {
            let page = model.pages.get(&n);
            let expected = page.map(Page::goes_down);
            let got = space.push_down(self.rig.t(), va(n), PAGE, &self.object, how.push_down());
            match (got, expected) {
                (Err(VmError::NoMemory), Some(Some(_))) => return Err(VmError::NoMemory),
                (Err(VmError::Busy), Some(Some((1, shared)))) if shared || self.wired.get() => {}
                (got, expected) => {
                    let expected = match expected {
                        None => Err(VmError::NoMemory),
                        Some(None) => Err(VmError::Invalid),
                        Some(Some((pages, _))) => Ok(pages),
                    };
                    assert_eq!(got, expected, "page {n} in {:?}", task.op);
                    page.into_iter().filter(|_| got.is_ok()).for_each(|p| p.push_down(how == Down::Lend));
                }
            }
        }
        Ok(())
    }

    /// The holder reads, writes if there is something to write, and reads again; neither map shows it afterwards.
    fn quick_ref(&self, task: &Task, offset: usize, len: usize, tag: Option<u8>) -> Result<(), VmError> {
        let (rig, holder) = (&self.rig, task.other.expect("made ready"));
        let t = rig.t();
        let (from, to) = (self.slots[task.who].borrow(), self.slots[holder].borrow());
        let ProcSlot { space, model } = from.as_ref().expect("it lives");
        let to = &to.as_ref().expect("it lives").space;
        let counts = || (space.entry_count(t), to.entry_count(t));
        let (before, at) = (counts(), va(0) + offset);
        let mapped = chunks(offset, len).all(|(n, ..)| model.pages.contains_key(&n));
        let expected = match mapped {
            _ if holder == task.who => Err(VmError::Invalid),
            false => Err(VmError::Fault(at)),
            true => Ok(()),
        };
        let access = if tag.is_some() { pageferry_hal::Access::Write } else { pageferry_hal::Access::Read };
        let (got, reference) = split(quick_ref(space, to, t, at, len, access));
        if !self.outcome(got, expected, &task.op)? {
            return Ok(());
        }
        let reference = reference.expect("it is referred to");
        assert_eq!(counts().0, before.0, "a quick reference cuts no entry of its source");
        let read = || {
            let got = rig.load(to, reference.at(), len)?;
            let expected: Vec<u8> = chunks(offset, len)
                .flat_map(|(n, from, end)| {
                    model.pages[&n].bytes()[from % PAGE..from % PAGE + (end - from)].to_vec()
                })
                .collect();
            assert!(got == expected, "{:?} reads wrongly", task.op);
            Ok(())
        };
        let write = |tag: u8| {
            let bytes = pattern(tag, len);
            let (done, result) = rig.store_some(to, reference.at(), &bytes);
            for (n, from, end) in chunks(offset, done) {
                model.pages[&n].write(from % PAGE, &bytes[from - offset..end - offset]);
            }
            result
        };
        let used = read().and_then(|()| tag.map_or(Ok(()), write)).and_then(|()| read());
        reference.release(t);
        assert_eq!(counts(), before, "a quick reference leaves both maps as they were");
        used
    }

    fn pass(&self, task: &Task, pages: Range<u64>, to_page: u64, mode: Mode) -> Result<(), VmError> {
        let to = task.other.expect("made ready");
        let len_pages = pages.end - pages.start;
        let (got, expected) = {
            let (from, target) = (self.slots[task.who].borrow(), self.slots[to].borrow());
            let (from, target) = (from.as_ref().expect("it lives"), target.as_ref().expect("it lives"));
            let expected = if from.model.is_free(pages.clone()) {
                Err(VmError::Fault(va(pages.start)))
            } else if !target.model.is_free(to_page..to_page + len_pages) {
                Err(VmError::Exists)
            } else {
                Ok(())
            };
            let (len, at) = (len_pages as usize * PAGE, va(pages.start));
            let to_at = Some(va(to_page));
            let t = self.rig.t();
            (pass(&from.space, &target.space, t, at, len, to_at, mode.pass_mode()).map(drop), expected)
        };
        if self.outcome(got, expected, &task.op)? {
            self.passed(task.who, to, pages, to_page, mode);
        }
        Ok(())
    }

    fn passed(&self, from: usize, to: usize, pages: Range<u64>, to_page: u64, mode: Mode) {
        let of = |slot: usize, change: &mut dyn FnMut(&mut Process)| {
            change(&mut self.slots[slot].borrow_mut().as_mut().expect("it lives").model);
        };
        let mut all: Vec<(u64, Page)> = Vec::new();
        of(from, &mut |source| {
            all = source.pages.range(pages.clone()).map(|(&n, p)| (n, p.clone())).collect();
            for (n, page) in &all {
                match mode {
                    Mode::Donate => drop(source.pages.remove(n)),
                    Mode::DonateZero => drop(source.pages.insert(*n, Page::zero(page.prot, page.inherit))),
                    Mode::Share | Mode::Copy => {}
                }
            }
        });
        of(to, &mut |target| {
            for (n, page) in all.drain(..) {
                let received = if mode == Mode::Copy { page.copied() } else { page };
                target.pages.insert(to_page + (n - pages.start), received);
            }
        });
    }
}
