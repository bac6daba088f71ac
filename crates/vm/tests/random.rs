//! Random programs of several processes, on several CPUs, against a plain copying model: after every step the laws hold
//! and every page that is mapped has the right bytes; in the end all bytes are compared. Steps may be struck by an
//! allocation failure: then the step has changed nothing, and succeeds when it is tried again.

mod common;
use common::oracle::{Page, Process, file};
use common::*;
use pageferry_ephemeral::KernelAddresses;
use pageferry_hal::*;
use pageferry_vm::*;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;
/// Where the programs' pages are: few enough that steps meet.
const BASE: Va = Va(0x40_0000 - 6 * PAGE as u64);
const PAGES: u64 = 20;
const FILE_PAGES: u64 = 5;
const PROCESSES: usize = 4;

#[derive(Clone, Debug)]
enum Op {
    Map { page: u64, pages: u64, prot: Prot, inherit: Inherit },
    MapFile { page: u64, first: u64, pages: u64, prot: Prot, private: bool, inherit: Inherit },
    Unmap { page: u64, pages: u64 },
    Protect { page: u64, pages: u64, prot: Prot },
    Inherit { page: u64, pages: u64, inherit: Inherit },
    Write { offset: usize, len: usize, tag: u8 },
    Read { offset: usize, len: usize },
    Fork,
    Exit,
    Wire { offset: usize, len: usize, write: bool },
    Scribble { which: usize, tag: u8 },
    Unwire { which: usize },
    Loan { offset: usize, len: usize },
    Unloan { which: usize },
    LoanAnons { page: u64, pages: u64 },
    LoanFurther { which: usize },
    ReleaseAnons { which: usize },
    TransferAnons { which: usize, page: u64 },
    TransferPages { page: u64, pages: u64, tag: u8 },
    Anflush { page: u64, pages: u64 },
    Pass { to: usize, page: u64, pages: u64, to_page: u64, mode: PassMode },
}

/// What only the movers do.
fn mover() -> impl Strategy<Value = Op> {
    let page = 0..PAGES;
    let pages = 1..7u64;
    let which = 0..4usize;
    let mode = prop_oneof![
        Just(PassMode::Share),
        Just(PassMode::Copy),
        Just(PassMode::Donate),
        Just(PassMode::DonateZero)
    ];
    prop_oneof![
        4 => (0..PAGES as usize * PAGE, 1..4 * PAGE).prop_map(|(offset, len)| Op::Loan { offset, len }),
        3 => which.clone().prop_map(|which| Op::Unloan { which }),
        4 => (page.clone(), pages.clone()).prop_map(|(page, pages)| Op::LoanAnons { page, pages }),
        2 => which.clone().prop_map(|which| Op::LoanFurther { which }),
        2 => which.clone().prop_map(|which| Op::ReleaseAnons { which }),
        4 => (which, page.clone()).prop_map(|(which, page)| Op::TransferAnons { which, page }),
        3 => (page.clone(), pages.clone(), any::<u8>())
            .prop_map(|(page, pages, tag)| Op::TransferPages { page, pages, tag }),
        2 => (page.clone(), pages.clone()).prop_map(|(page, pages)| Op::Anflush { page, pages }),
        8 => (0..PROCESSES, page.clone(), pages, page, mode).prop_map(|(to, page, pages, to_page, mode)| {
            Op::Pass { to, page, pages, to_page, mode }
        }),
    ]
}

/// An operation of process `process` (or the next that lives), on `cpu`; `fail` lets an allocation in it fail.
#[derive(Clone, Debug)]
struct Step {
    process: usize,
    cpu: usize,
    fail: Option<u32>,
    op: Op,
}

fn prot() -> impl Strategy<Value = Prot> {
    prop_oneof![6 => Just(Prot::RW), 2 => Just(Prot::READ), 1 => Just(Prot::empty())]
}

fn inherit() -> impl Strategy<Value = Inherit> {
    prop_oneof![4 => Just(Inherit::Copy), 3 => Just(Inherit::Share), 1 => Just(Inherit::None)]
}

fn op() -> impl Strategy<Value = Op> {
    let page = 0..PAGES;
    let pages = 1..9u64;
    let offset = 0..PAGES as usize * PAGE;
    let len = prop_oneof![1..200usize, 1..4 * PAGE];
    prop_oneof![
        5 => (page.clone(), pages.clone(), prot(), inherit())
            .prop_map(|(page, pages, prot, inherit)| Op::Map { page, pages, prot, inherit }),
        2 => (page.clone(), 0..FILE_PAGES, 1..5u64, prot(), any::<bool>(), inherit()).prop_map(
            |(page, first, pages, prot, private, inherit)| {
                Op::MapFile { page, first, pages: pages.min(FILE_PAGES - first), prot, private, inherit }
            }
        ),
        3 => (page.clone(), pages.clone()).prop_map(|(page, pages)| Op::Unmap { page, pages }),
        3 => (page.clone(), pages.clone(), prot())
            .prop_map(|(page, pages, prot)| Op::Protect { page, pages, prot }),
        2 => (page, pages, inherit()).prop_map(|(page, pages, inherit)| Op::Inherit { page, pages, inherit }),
        12 => (offset.clone(), len.clone(), any::<u8>())
            .prop_map(|(offset, len, tag)| Op::Write { offset, len, tag }),
        8 => (offset.clone(), len.clone()).prop_map(|(offset, len)| Op::Read { offset, len }),
        5 => Just(Op::Fork),
        2 => Just(Op::Exit),
        3 => (offset, len, any::<bool>()).prop_map(|(offset, len, write)| Op::Wire { offset, len, write }),
        2 => (0..8usize, any::<u8>()).prop_map(|(which, tag)| Op::Scribble { which, tag }),
        3 => (0..8usize).prop_map(|which| Op::Unwire { which }),
        28 => mover(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    (0..PROCESSES, 0..4usize, proptest::option::weighted(0.3, 0..12u32), op())
        .prop_map(|(process, cpu, fail, op)| Step { process, cpu, fail, op })
}

struct Wire {
    wired: Wired,
    /// The pages that are wired for writing: their frames stay the pages' own as long as the wire lasts.
    pages: Option<Vec<Page>>,
}

struct World {
    rig: Rig,
    spaces: Vec<Option<(AddressSpace, Process)>>,
    wires: Vec<Wire>,
    /// With the pages' bytes as of the loan.
    loans: Vec<(KernelLoan, Vec<Vec<u8>>)>,
    anon_loans: Vec<(AnonLoan<pageferry_model::Model>, Vec<Vec<u8>>)>,
    object: Arc<Object<pageferry_model::Model>>,
    file: Vec<Rc<RefCell<Vec<u8>>>>,
}

struct Contents;
impl Pager for Contents {
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError> {
        bytes.copy_from_slice(&file(FILE_PAGES as usize)[page as usize].borrow());
        Ok(())
    }
}

fn va(page: u64) -> Va {
    BASE + page as usize * PAGE
}

impl World {
    fn new(rig: &Rig) -> World {
        let first = (rig.vm.space().unwrap(), Process::default());
        let mut spaces: Vec<_> = (0..PROCESSES).map(|_| None).collect();
        spaces[0] = Some(first);
        let object = rig.vm.object(FILE_PAGES, Backing::Pager(Arc::new(Contents))).unwrap();
        World {
            rig: rig.clone(),
            spaces,
            wires: Vec::new(),
            loans: Vec::new(),
            anon_loans: Vec::new(),
            object,
            file: file(FILE_PAGES as usize),
        }
    }

    /// The process that a step is for.
    fn living(&self, process: usize) -> usize {
        (process..process + PROCESSES)
            .map(|i| i % PROCESSES)
            .find(|&i| self.spaces[i].is_some())
            .expect("one lives always")
    }

    /// Does `op`. An error that the model did not expect is returned, and then nothing has changed.
    fn apply(&mut self, who: usize, op: &Op) -> Result<(), VmError> {
        let rig = self.rig.clone();
        let t = rig.t();
        let (space, model) = self.spaces[who].as_mut().expect("it lives");
        let range = |page: u64, pages: u64| page..page + pages;
        let expect = |got: Result<(), VmError>, expected: Result<(), VmError>| match got {
            Err(VmError::NoMemory) if expected != got => Err(VmError::NoMemory),
            got => {
                assert_eq!(got, expected, "{op:?}");
                Ok(got.is_ok())
            }
        };
        match *op {
            Op::Map { page, pages, prot, inherit } => {
                let got = space.map(t, Some(va(page)), pages as usize * PAGE, prot, inherit).map(drop);
                let expected = if model.is_free(range(page, pages)) { Ok(()) } else { Err(VmError::Exists) };
                if expect(got, expected)? {
                    model.pages.extend(range(page, pages).map(|n| (n, Page::zero(prot, inherit))));
                }
            }
            Op::MapFile { page, first, pages, prot, private, inherit } => {
                let object = self.object.clone();
                let mapped = Mapped { object, first_page: first, copy_on_write: private };
                let len = pages as usize * PAGE;
                let got = space.map_object(t, Some(va(page)), len, prot, inherit, mapped).map(drop);
                let expected = if model.is_free(range(page, pages)) { Ok(()) } else { Err(VmError::Exists) };
                if expect(got, expected)? {
                    for (n, f) in range(page, pages).zip(first..) {
                        let page = Page::of_file(&self.file[f as usize], private, prot, inherit);
                        model.pages.insert(n, page);
                    }
                }
            }
            Op::Unmap { page, pages } => {
                if expect(space.unmap(t, va(page), pages as usize * PAGE), Ok(()))? {
                    model.pages.retain(|n, _| !range(page, pages).contains(n));
                }
            }
            Op::Protect { page, pages, prot } => {
                let all = model.is_mapped(range(page, pages));
                let got = space.protect(t, va(page), pages as usize * PAGE, prot);
                if expect(got, if all { Ok(()) } else { Err(VmError::NoMemory) })? {
                    range(page, pages).for_each(|n| model.pages.get_mut(&n).unwrap().prot = prot);
                }
            }
            Op::Inherit { page, pages, inherit } => {
                let all = model.is_mapped(range(page, pages));
                let got = space.inherit(t, va(page), pages as usize * PAGE, inherit);
                if expect(got, if all { Ok(()) } else { Err(VmError::NoMemory) })? {
                    range(page, pages).for_each(|n| model.pages.get_mut(&n).unwrap().inherit = inherit);
                }
            }
            Op::Write { offset, len, tag } => {
                let bytes = pattern(tag, len);
                let (done, result) = rig.store_some(space, BASE + offset, &bytes);
                for (n, from, to) in chunks(offset, done) {
                    model.pages[&n].write(from % PAGE, &bytes[from - offset..to - offset]);
                }
                let at = BASE + offset + done;
                let page = (at - BASE) as u64 / PAGE as u64;
                let refusal = if done < len { model.refusal(page, true, at) } else { None };
                expect(result, refusal.map_or(Ok(()), Err))?;
            }
            Op::Read { offset, len } => match rig.load(space, BASE + offset, len) {
                Ok(got) => {
                    for (n, from, to) in chunks(offset, len) {
                        let expected = &model.pages[&n].bytes()[from % PAGE..from % PAGE + (to - from)];
                        assert!(got[from - offset..to - offset] == *expected, "page {n} reads wrongly");
                    }
                }
                Err(VmError::NoMemory) => return Err(VmError::NoMemory),
                Err(e) => {
                    let refused =
                        chunks(offset, len).find_map(|(n, from, _)| model.refusal(n, false, BASE + from));
                    assert_eq!(Some(e), refused);
                }
            },
            Op::Fork => {
                let Some(free) = self.spaces.iter().position(Option::is_none) else { return Ok(()) };
                let (space, model) = self.spaces[who].as_ref().expect("it lives");
                let child = (space.fork(t)?, model.fork());
                self.spaces[free] = Some(child);
            }
            Op::Exit => {
                if self.spaces.iter().flatten().count() > 1 {
                    let (space, _) = self.spaces[who].take().expect("it lives");
                    rig.exit(space);
                }
            }
            Op::Wire { offset, len, write } => return self.wire(who, offset, len, write),
            Op::Scribble { which, tag } => return self.scribble(which, tag),
            Op::Unwire { which } => {
                if which < self.wires.len() {
                    rig.vm.unwire(self.wires.remove(which).wired);
                }
            }
            ref mover => return self.apply_mover(who, mover),
        }
        Ok(())
    }

    /// What came of a call of the movers: true when it did what it should. With pages wired, they may be busy.
    fn outcome(
        &self,
        got: Result<(), VmError>,
        expected: Result<(), VmError>,
        op: &Op,
    ) -> Result<bool, VmError> {
        // A loan goes page by page: a wired one may come before one that is not there.
        let may_be_busy = expected.is_ok() || matches!(op, Op::Loan { .. } | Op::LoanAnons { .. });
        match got {
            Err(VmError::NoMemory) if expected != got => Err(VmError::NoMemory),
            Err(VmError::Busy) if may_be_busy && !self.wires.is_empty() => Ok(false),
            got => {
                assert_eq!(got, expected, "{op:?}");
                Ok(got.is_ok())
            }
        }
    }

    fn apply_mover(&mut self, who: usize, op: &Op) -> Result<(), VmError> {
        let rig = self.rig.clone();
        let (t, vm) = (rig.t(), &rig.vm);
        let (space, model) = self.spaces[who].clone().expect("it lives");
        match *op {
            Op::Loan { offset, len } => {
                let lent = space.loan_to_kernel(t, BASE + offset, len);
                let refused = chunks(offset, len)
                    .find(|&(n, from, _)| model.refusal(n, false, BASE + from).is_some())
                    .map_or(Ok(()), |(_, from, _)| Err(VmError::Fault(BASE + from)));
                let (got, loan) = split(lent);
                if self.outcome(got, refused, op)? {
                    let bytes = chunks(offset, len).map(|(n, ..)| model.pages[&n].bytes()).collect();
                    self.loans.push((loan.expect("it is lent"), bytes));
                }
            }
            Op::Unloan { which } if which < self.loans.len() => vm.unloan(self.loans.remove(which).0),
            Op::LoanAnons { page, pages } => {
                let lent = space.loan_to_anons(t, va(page), pages as usize * PAGE);
                let refused = (page..page + pages)
                    .find(|&n| model.refusal(n, false, va(n)).is_some())
                    .map_or(Ok(()), |n| Err(VmError::Fault(va(n))));
                let (got, loan) = split(lent);
                if self.outcome(got, refused, op)? {
                    let bytes = (page..page + pages).map(|n| model.pages[&n].bytes()).collect();
                    self.anon_loans.push((loan.expect("it is lent"), bytes));
                }
            }
            Op::LoanFurther { which } => {
                if let Some((loan, bytes)) = self.loans.get(which) {
                    let further = vm.loan_frames_to_anons(loan, 0..loan.frames().len())?;
                    self.anon_loans.push((further, bytes.clone()));
                }
            }
            Op::ReleaseAnons { which } if which < self.anon_loans.len() => {
                vm.release_anons(self.anon_loans.remove(which).0);
            }
            Op::TransferAnons { which, page } if which < self.anon_loans.len() => {
                let (loan, bytes) = self.anon_loans.remove(which);
                let expected = receives(&model, page, bytes.len() as u64);
                match space.transfer_anons(t, Some(va(page)), loan) {
                    Ok(_) => {
                        self.outcome(Ok(()), expected, op)?;
                        (page..).zip(&bytes).for_each(|(n, bytes)| model.pages[&n].replace(bytes));
                    }
                    Err(Refused { error, back }) => {
                        self.anon_loans.insert(which, (back, bytes));
                        self.outcome(Err(error), expected, op)?;
                    }
                }
            }
            Op::TransferPages { page, pages, tag } => {
                let data = self.data(pages as usize, tag)?;
                let expected = receives(&model, page, pages);
                match space.transfer_pages(t, Some(va(page)), data) {
                    Ok(_) => {
                        self.outcome(Ok(()), expected, op)?;
                        let bytes = pattern(tag, pages as usize * PAGE);
                        (page..).zip(bytes.chunks(PAGE)).for_each(|(n, b)| model.pages[&n].replace(b));
                    }
                    Err(Refused { error, back }) => {
                        vm.free_kernel_pages(back);
                        self.outcome(Err(error), expected, op)?;
                    }
                }
            }
            Op::Anflush { page, pages } => {
                let all = model.is_mapped(page..page + pages);
                let got = space.anflush(t, va(page), pages as usize * PAGE);
                if self.outcome(got, if all { Ok(()) } else { Err(VmError::NoMemory) }, op)? {
                    (page..page + pages).for_each(|n| model.pages[&n].flush());
                }
            }
            Op::Pass { to, page, pages, to_page, mode } => {
                let to = self.living(to);
                let (target, target_model) = self.spaces[to].as_ref().expect("it lives");
                let len = pages as usize * PAGE;
                let got = pass(&space, target, t, va(page), len, Some(va(to_page)), mode).map(drop);
                let expected = if model.is_free(page..page + pages) {
                    Err(VmError::Fault(va(page)))
                } else if !target_model.is_free(to_page..to_page + pages) {
                    Err(VmError::Exists)
                } else {
                    Ok(())
                };
                if self.outcome(got, expected, op)? {
                    self.passed(who, to, page..page + pages, to_page, mode);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn passed(&mut self, from: usize, to: usize, pages: std::ops::Range<u64>, to_page: u64, mode: PassMode) {
        let source = &self.spaces[from].as_ref().expect("it lives").1.pages;
        let all: Vec<(u64, Page)> = source.range(pages.clone()).map(|(&n, p)| (n, p.clone())).collect();
        for (n, page) in all {
            let source = &mut self.spaces[from].as_mut().expect("it lives").1.pages;
            let received = match mode {
                PassMode::Copy => page.copied(),
                _ => page.clone(),
            };
            match mode {
                PassMode::Donate => drop(source.remove(&n)),
                PassMode::DonateZero => drop(source.insert(n, Page::zero(page.prot, page.inherit))),
                PassMode::Share | PassMode::Copy => {}
            }
            let target = &mut self.spaces[to].as_mut().expect("it lives").1.pages;
            target.insert(to_page + (n - pages.start), received);
        }
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
        let stored = self.rig.m.store(Mode::Kernel, window.start(), &pattern(tag, len_pages * PAGE));
        stored.expect("it is mapped");
        vm.pmaps().kremove(window).flush(vm.pmaps());
        KernelAddresses::free(vm, window);
        Ok(pages)
    }

    fn wire(&mut self, who: usize, offset: usize, len: usize, write: bool) -> Result<(), VmError> {
        let (space, model) = self.spaces[who].as_ref().expect("it lives");
        let prot = if write { Prot::RW } else { Prot::READ };
        let wired = match space.wire(self.rig.t(), BASE + offset, len, prot) {
            Ok(wired) => wired,
            Err(VmError::NoMemory) => return Err(VmError::NoMemory),
            Err(e) => {
                let refused = chunks(offset, len)
                    .find(|&(n, from, _)| model.refusal(n, write, BASE + from).is_some())
                    .expect("nothing forbids it");
                assert_eq!(e, VmError::Fault(BASE + refused.1));
                // What comes before was made ready: a private page has a copy of its own from now on.
                if write {
                    (offset / PAGE..refused.1 / PAGE).for_each(|n| model.pages[&(n as u64)].promote());
                }
                return Ok(());
            }
        };
        assert_eq!((wired.offset(), wired.len_bytes()), (offset % PAGE, len));
        let pages: Vec<Page> = chunks(offset, len).map(|(n, ..)| model.pages[&n].clone()).collect();
        assert_eq!(pages.len(), wired.frames().len());
        for (page, &frame) in pages.iter().zip(wired.frames()) {
            if write {
                page.promote();
            }
            assert!(self.rig.m.frame_bytes(frame) == page.bytes(), "{frame:?} is wired with other bytes");
        }
        self.wires.push(Wire { wired, pages: write.then_some(pages) });
        Ok(())
    }

    /// The kernel stores into wired frames, as a device or a reader of another process would.
    fn scribble(&mut self, which: usize, tag: u8) -> Result<(), VmError> {
        let Some(Wire { wired, pages: Some(pages) }) = self.wires.get(which) else { return Ok(()) };
        let vm = &*self.rig.vm;
        let window = KernelAddresses::alloc(vm, 1).ok_or(VmError::NoMemory)?;
        for (i, (page, &frame)) in pages.iter().zip(wired.frames()).enumerate() {
            vm.pmaps().kenter(window.start(), &[frame], Prot::RW).flush(vm.pmaps());
            let bytes = pattern(tag.wrapping_add(i as u8), 77);
            self.rig.m.store(Mode::Kernel, window.start() + 500, &bytes).expect("it is mapped");
            vm.pmaps().kremove(window).flush(vm.pmaps());
            page.write(500, &bytes);
        }
        KernelAddresses::free(vm, window);
        Ok(())
    }

    /// Everything that is mapped, and everything that is wired for writing, has the right bytes; and the laws hold.
    fn compare(&self) {
        self.rig.check();
        for (who, (space, model)) in
            self.spaces.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?)))
        {
            for (&n, page) in &model.pages {
                let Some((frame, prot)) = self.rig.vm.pmaps().extract(space.pmap(), va(n)) else { continue };
                assert!(page.prot.contains(prot), "page {n} of {who} permits {prot:?}");
                assert!(self.rig.m.frame_bytes(frame) == page.bytes(), "page {n} of {who} has other bytes");
            }
        }
        for (loan, pages) in &self.loans {
            for (bytes, &frame) in pages.iter().zip(loan.frames()) {
                assert!(self.rig.m.frame_bytes(frame) == *bytes, "{frame:?} has changed while on loan");
            }
        }
        for wire in &self.wires {
            for (page, &frame) in wire.pages.iter().flatten().zip(wire.wired.frames()) {
                assert!(
                    self.rig.m.frame_bytes(frame) == page.bytes(),
                    "{frame:?} left its owner while wired"
                );
            }
        }
    }

    /// All bytes of all processes, by loads; then the end of everything.
    fn finish(mut self, free: usize) {
        let rig = self.rig.clone();
        for (space, model) in self.spaces.iter().flatten() {
            for (&n, page) in model.pages.iter().filter(|(_, p)| p.prot.contains(Prot::READ)) {
                assert!(rig.load(space, va(n), PAGE).unwrap() == page.bytes(), "page {n} has other bytes");
            }
        }
        self.compare();
        for (space, _) in self.spaces.drain(..).flatten() {
            rig.exit(space);
        }
        rig.check();
        for wire in self.wires {
            rig.vm.unwire(wire.wired);
        }
        self.loans.into_iter().for_each(|(loan, _)| rig.vm.unloan(loan));
        rig.check();
        self.anon_loans.into_iter().for_each(|(loan, _)| rig.vm.release_anons(loan));
        rig.vm.release_object(self.object);
        assert_eq!((rig.vm.free_frames(), rig.vm.wired_frames()), (free, 0), "all is given back");
    }
}

fn split<T>(result: Result<T, VmError>) -> (Result<(), VmError>, Option<T>) {
    match result {
        Ok(value) => (Ok(()), Some(value)),
        Err(e) => (Err(e), None),
    }
}

/// What a transfer to these pages should say.
fn receives(model: &Process, page: u64, pages: u64) -> Result<(), VmError> {
    if !model.is_mapped(page..page + pages) {
        return Err(VmError::Fault(va(page)));
    }
    let takes = |n| model.pages[&n].is_anonymous() && model.pages[&n].prot.contains(Prot::RW);
    if (page..page + pages).all(takes) { Ok(()) } else { Err(VmError::Access) }
}

/// The part of each page that `len` bytes from `offset` touch: page, first and last offset.
fn chunks(offset: usize, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len;
    (offset / PAGE..end.div_ceil(PAGE))
        .map(move |n| (n as u64, offset.max(n * PAGE), end.min((n + 1) * PAGE)))
        .filter(|(_, from, to)| from < to)
}

fn run(rig: &Rig, steps: Vec<Step>) {
    let free = rig.vm.free_frames();
    let world = Rc::new(RefCell::new(World::new(rig)));
    for step in steps {
        let w = world.clone();
        // An exit makes all CPUs leave the address space, so it is CPU 0 that gives out the jobs.
        let cpu = if matches!(step.op, Op::Exit) { 0 } else { step.cpu % rig.cpus() };
        rig.on(cpu, move |rig| {
            let mut world = w.borrow_mut();
            let who = world.living(step.process);
            rig.vm.fail_after(step.fail);
            let struck = world.apply(who, &step.op);
            rig.vm.fail_after(None);
            if let Err(e) = struck {
                assert_eq!(e, VmError::NoMemory);
                assert!(step.fail.is_some(), "memory ran out by itself");
                world.compare();
                let again = world.apply(who, &step.op);
                assert_eq!(again, Ok(()), "the failure did not last");
            }
        });
        world.borrow().compare();
    }
    let Ok(world) = Rc::try_unwrap(world) else { unreachable!("no job is left") };
    world.into_inner().finish(free);
}

fn cases(machine: &'static str) {
    let config = ProptestConfig {
        max_shrink_iters: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..60))| {
        with_rig(machine, 24, Default::default(), move |rig| run(rig, steps));
    });
}

#[test]
fn programs_on_one_i386_cpu() {
    cases("xeon-up");
}

#[test]
fn programs_on_two_i386_cpus() {
    cases("xeon-mp");
}

#[test]
fn programs_on_four_i386_cpus() {
    cases("xeon-mp-htt");
}

#[test]
fn programs_on_two_amd64_cpus() {
    cases("opteron-mp");
}

/// Steps without struck allocations: process, CPU, operation.
fn program(machine: &str, steps: &[(usize, usize, Op)]) {
    let step = |(process, cpu, op): &(usize, usize, Op)| Step {
        process: *process,
        cpu: *cpu,
        fail: None,
        op: op.clone(),
    };
    let steps: Vec<Step> = steps.iter().map(step).collect();
    with_rig(machine, 24, Default::default(), move |rig| run(rig, steps));
}

/// Programs that failed once. A seed ages with the generator, a program does not.
#[test]
fn programs_that_once_failed() {
    let write = |offset| Op::Write { offset, len: 1, tag: 0 };
    let map = Op::Map { page: 0, pages: 1, prot: Prot::RW, inherit: Inherit::Copy };
    program("xeon-mp", &[(0, 0, Op::Fork), (2, 0, write(0)), (0, 1, Op::Exit)]);
    program("xeon-mp", &[(0, 0, map), (0, 0, write(0)), (0, 0, Op::Fork), (0, 1, Op::Exit)]);
    // A wire for writing that comes to a hole has given the page before it a copy of its own.
    let file = |page, private| Op::MapFile {
        page,
        first: 0,
        pages: 1,
        prot: Prot::RW,
        private,
        inherit: Inherit::Copy,
    };
    let wire = Op::Wire { offset: 0, len: 2 * PAGE, write: true };
    let write_shared = Op::Write { offset: 5 * PAGE, len: 1, tag: 9 };
    program("xeon-up", &[(0, 0, file(0, true)), (0, 0, wire), (0, 0, file(5, false)), (0, 0, write_shared)]);
}
