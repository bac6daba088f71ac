//! Loans: to the kernel and to anons, of anons' pages and objects', and everything that can befall a page on loan.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_pmap::PmapCounter;
use pageferry_vm::*;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;

fn map(rig: &Rig, s: &AddressSpace, pages: usize) -> Va {
    s.map(rig.t(), None, pages * PAGE, Prot::RW, Inherit::Copy).expect("there is room")
}

fn filled(rig: &Rig, tag: u8, pages: usize) -> (AddressSpace, Va) {
    let s = rig.vm.space().unwrap();
    let va = map(rig, &s, pages);
    rig.store(&s, va, &pattern(tag, pages * PAGE)).unwrap();
    (s, va)
}

fn bytes(rig: &Rig, loan: &KernelLoan) -> Vec<u8> {
    let all: Vec<u8> = loan.frames().iter().flat_map(|&f| rig.m.frame_bytes(f)).collect();
    all[loan.offset()..loan.offset() + loan.len_bytes()].to_vec()
}

struct Contents;
impl Pager for Contents {
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError> {
        bytes.copy_from_slice(&pattern(page as u8 + 40, PAGE));
        Ok(())
    }
}

fn file(rig: &Rig) -> Arc<Object<pageferry_model::Model>> {
    rig.vm.object(4, Backing::Pager(Arc::new(Contents))).unwrap()
}

fn map_file(rig: &Rig, s: &AddressSpace, object: &Arc<Object<pageferry_model::Model>>, private: bool) -> Va {
    let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: private };
    s.map_object(rig.t(), None, 4 * PAGE, Prot::RW, Inherit::Copy, mapped).unwrap()
}

/// The kernel's own address of a lent page can be closed to stores where a page maps it, and not where a block does.
#[test]
fn a_kernel_write_to_a_lent_page_is_caught_where_a_page_maps_it() {
    for machine in ["ppc603+pte", "ppc604+slow+pte", "ppc603", "ppc604+slow"] {
        with_rig(machine, 24, Schedule::Timed, |rig| {
            let (s, va) = filled(rig, 1, 1);
            let loan = s.loan_to_kernel(rig.t(), va, PAGE).unwrap();
            let pmaps = rig.vm.pmaps();
            let lent = loan.frames()[0];
            if let Some(alias) = pmaps.direct(lent, pageferry_pmap::Reach::Write) {
                let store = || rig.m.store(Mode::Kernel, alias, b"by mistake").is_ok();
                match pmaps.kernel_protect(VaRange::page(alias), Prot::READ) {
                    Ok(change) => {
                        change.flush(pmaps);
                        assert!(!store(), "it traps");
                        assert_eq!(bytes(rig, &loan), pattern(1, PAGE));
                        pmaps.kernel_protect(VaRange::page(alias), Prot::RW).expect("pages").flush(pmaps);
                    }
                    Err(refused) => {
                        assert!(refused.to_string().contains("cannot be protected by page"), "{refused}");
                        assert!(store(), "nothing stops it");
                        assert_ne!(bytes(rig, &loan), pattern(1, PAGE), "and the borrower sees it");
                    }
                }
            }
            rig.vm.unloan(loan);
            rig.exit(s);
        });
    }
}

#[test]
fn the_kernel_sees_the_bytes_of_the_loan() {
    on_each(|rig| {
        let free = rig.vm.free_frames();
        let t = rig.t();
        let (s, va) = filled(rig, 1, 4);
        let loan = s.loan_to_kernel(t, va + 100, 2 * PAGE + 200).unwrap();
        rig.check();
        assert_eq!((loan.frames().len(), loan.offset(), loan.len_bytes()), (3, 100, 2 * PAGE + 200));
        let lent = pattern(1, 4 * PAGE)[100..2 * PAGE + 300].to_vec();
        assert_eq!(bytes(rig, &loan), lent);
        let info = rig.vm.frame_info(loan.frames()[0]);
        assert_eq!((info.loan_count, info.wire_count), (1, 1));
        rig.store(&s, va + PAGE + 7, b"changed").unwrap();
        rig.check();
        assert_eq!(bytes(rig, &loan), lent, "the borrower keeps the old bytes");
        assert_eq!(rig.load(&s, va + PAGE + 7, 7).unwrap(), b"changed");
        assert_eq!(rig.vm.frame_info(loan.frames()[1]).state, FrameState::Orphan);
        assert_eq!(rig.counter(VmCounter::CowCopies), 1);
        rig.vm.unloan(loan);
        rig.check();
        rig.store(&s, va, b"after").unwrap();
        assert_eq!(rig.counter(VmCounter::CowCopies), 1, "no loan, no copy");
        rig.exit(s);
        assert_eq!((rig.vm.free_frames(), rig.vm.wired_frames()), (free, 0));
    });
}

#[test]
fn one_call_one_shootdown() {
    with_rig("xeon-mp", 24, Schedule::Timed, |rig| {
        let (s, va) = filled(rig, 1, 12);
        let holes = s.map(rig.t(), Some(va + 12 * PAGE), 4 * PAGE, Prot::RW, Inherit::Share).map(drop);
        holes.unwrap();
        let (other, at) = (s.clone(), va);
        rig.on(1, move |rig| rig.store(&other, at, &pattern(2, 12 * PAGE))).unwrap();
        rig.load(&s, va, 12 * PAGE).unwrap();
        let before = rig.counter(PmapCounter::Shootdowns);
        let loan = s.loan_to_kernel(rig.t(), va, 16 * PAGE).unwrap();
        assert_eq!(rig.counter(PmapCounter::Shootdowns), before + 1);
        let again = s.loan_to_kernel(rig.t(), va, 16 * PAGE).unwrap();
        assert_eq!(rig.counter(PmapCounter::Shootdowns), before + 1, "protected already");
        rig.check();
        rig.vm.unloan(loan);
        rig.vm.unloan(again);
        rig.exit(s);
    });
}

#[test]
fn what_cannot_be_lent() {
    on_each(|rig| {
        let t = rig.t();
        let (s, va) = filled(rig, 1, 4);
        let kernel = rig.m.board().layout.kernel_base;
        let to_kernel = |at, len| s.loan_to_kernel(t, at, len).map(|l| rig.vm.unloan(l)).unwrap_err();
        let to_anons = |at, len| s.loan_to_anons(t, at, len).map(|l| rig.vm.release_anons(l)).unwrap_err();
        assert_eq!(to_kernel(va, 0), VmError::Invalid);
        assert_eq!(to_kernel(va, 5 * PAGE), VmError::Fault(va + 4 * PAGE));
        assert_eq!(to_kernel(kernel, 8), VmError::Fault(kernel));
        assert_eq!(to_kernel(va, usize::MAX), VmError::Fault(va));
        assert_eq!(to_anons(va, 0), VmError::Invalid);
        assert_eq!(to_anons(va + 1, PAGE), VmError::Invalid);
        assert_eq!(to_anons(va, PAGE + 1), VmError::Invalid);
        assert_eq!(to_anons(va, 5 * PAGE), VmError::Fault(va + 4 * PAGE));
        assert_eq!(to_anons(kernel, PAGE), VmError::Fault(kernel));
        assert_eq!(to_anons(Va(!0xfff), 2 * PAGE), VmError::Fault(Va(!0xfff)));
        s.protect(t, va + PAGE, PAGE, Prot::empty()).unwrap();
        assert_eq!(to_kernel(va, 4 * PAGE), VmError::Fault(va + PAGE));
        s.protect(t, va + PAGE, PAGE, Prot::RW).unwrap();
        let wired = s.wire(t, va + 2 * PAGE, PAGE, Prot::RW).unwrap();
        assert_eq!(to_kernel(va, 4 * PAGE), VmError::Busy);
        assert_eq!(to_anons(va, 4 * PAGE), VmError::Busy);
        rig.check();
        rig.vm.unwire(wired);
        assert_eq!(rig.vm.wired_frames(), 0);
        rig.exit(s);
    });
}

#[test]
fn wiring_a_lent_page_for_writing_breaks_the_loan_first() {
    on_each(|rig| {
        let t = rig.t();
        let (s, va) = filled(rig, 1, 1);
        let object = file(rig);
        let shared = map_file(rig, &s, &object, false);
        for at in [va, shared] {
            let loan = s.loan_to_kernel(t, at, PAGE).unwrap();
            let read = s.wire(t, at, PAGE, Prot::READ).unwrap();
            assert_eq!(read.frames(), loan.frames(), "reading does not break it");
            rig.vm.unwire(read);
            let write = s.wire(t, at, PAGE, Prot::RW).unwrap();
            assert_ne!(write.frames(), loan.frames());
            rig.check();
            rig.vm.unloan(loan);
            rig.vm.unwire(write);
            rig.check();
        }
        rig.exit(s);
        rig.vm.release_object(object);
    });
}

/// What happens to the lender while a page is on loan.
type Event = fn(&Rig, AddressSpace, Va, &mut Vec<AddressSpace>);

const EVENTS: [(&str, Event); 6] = [
    ("write", |rig, s, va, all| {
        rig.store(&s, va, b"new bytes").unwrap();
        all.push(s);
    }),
    ("unmap", |rig, s, va, all| {
        s.unmap(rig.t(), va, PAGE).unwrap();
        all.push(s);
    }),
    ("exit", |rig, s, _, _| rig.exit(s)),
    ("fork, and both write", |rig, s, va, all| {
        let child = s.fork(rig.t()).unwrap();
        rig.store(&child, va, b"of the child").unwrap();
        rig.check();
        rig.store(&s, va, b"of the parent").unwrap();
        all.extend([s, child]);
    }),
    ("fork, and the parent exits", |rig, s, va, all| {
        let child = s.fork(rig.t()).unwrap();
        rig.exit(s);
        rig.check();
        rig.store(&child, va, b"of the child").unwrap();
        all.push(child);
    }),
    ("second loan", |rig, s, va, all| {
        let second = s.loan_to_kernel(rig.t(), va, PAGE).unwrap();
        rig.store(&s, va, b"broken").unwrap();
        let third = s.loan_to_kernel(rig.t(), va, PAGE).unwrap();
        assert_ne!(second.frames(), third.frames());
        rig.check();
        rig.vm.unloan(second);
        rig.check();
        rig.vm.unloan(third);
        all.push(s);
    }),
];

/// Lends one page of each kind of memory in each way, lets an event happen, and gives back; twice.
#[test]
fn every_kind_of_loan_survives_every_event() {
    for (name, event) in EVENTS {
        for kind in 0..3 {
            for way in 0..3 {
                on_each(move |rig| {
                    let free = rig.vm.free_frames();
                    let object = file(rig);
                    let s = rig.vm.space().unwrap();
                    let va = match kind {
                        0 => map(rig, &s, 4),
                        _ => map_file(rig, &s, &object, kind == 1),
                    };
                    if kind == 0 {
                        rig.store(&s, va, &pattern(40, PAGE)).unwrap();
                    }
                    rig.load(&s, va, PAGE).unwrap();
                    one_loan(rig, s, va, way, event, &format!("{name}, kind {kind}, way {way}"));
                    rig.vm.release_object(object);
                    assert_eq!((rig.vm.free_frames(), rig.vm.wired_frames()), (free, 0), "{name}");
                });
            }
        }
    }
}

fn one_loan(rig: &Rig, s: AddressSpace, va: Va, way: u32, event: Event, what: &str) {
    let t = rig.t();
    let mut spaces = Vec::new();
    let lent = pattern(40, PAGE);
    let kernel = (way != 1).then(|| s.loan_to_kernel(t, va, PAGE).unwrap());
    let anons = match (&kernel, way) {
        (_, 1) => Some(s.loan_to_anons(t, va, PAGE).unwrap()),
        (Some(kernel), 2) => Some(rig.vm.loan_frames_to_anons(kernel, 0..kernel.frames().len()).unwrap()),
        _ => None,
    };
    rig.check();
    event(rig, s, va, &mut spaces);
    rig.check();
    // What became an orphan is lent on to an anon that adopts it.
    let late = kernel.as_ref().map(|k| rig.vm.loan_frames_to_anons(k, 0..k.frames().len()).unwrap());
    if let Some(kernel) = kernel {
        assert!(bytes(rig, &kernel) == lent, "{what}: the kernel sees other bytes");
        rig.vm.unloan(kernel);
        rig.check();
    }
    for anons in [anons, late].into_iter().flatten() {
        let receiver = rig.vm.space().unwrap();
        let to = map(rig, &receiver, 1);
        assert_eq!(receiver.transfer_anons(t, Some(to), anons).unwrap(), to);
        rig.check();
        assert!(rig.load(&receiver, to, PAGE).unwrap() == lent, "{what}: the receiver sees other bytes");
        rig.store(&receiver, to, b"its own").unwrap();
        rig.check();
        rig.exit(receiver);
    }
    spaces.into_iter().for_each(|s| rig.exit(s));
    rig.check();
}

#[test]
fn an_objects_page_has_one_borrower() {
    on_each(|rig| {
        let t = rig.t();
        let object = file(rig);
        let s = rig.vm.space().unwrap();
        let va = map_file(rig, &s, &object, false);
        let first = s.loan_to_anons(t, va, 2 * PAGE).unwrap();
        let second = s.loan_to_anons(t, va, 2 * PAGE).unwrap();
        let (frame, _) = {
            rig.load(&s, va, 1).unwrap();
            rig.vm.pmaps().extract(s.pmap(), va).unwrap()
        };
        assert_eq!(rig.vm.frame_info(frame).loan_count, 1, "the second loan is a reference on the anon");
        assert_eq!(rig.vm.frame_info(frame).state, FrameState::Object, "the object stays the owner");
        rig.check();
        rig.store(&s, va, b"new").unwrap();
        assert_eq!(let_go(rig, frame), (FrameState::Anon, 0), "the borrower has become the owner");
        let third = s.loan_to_anons(t, va, PAGE).unwrap();
        rig.check();
        let receiver = rig.vm.space().unwrap();
        let to = map(rig, &receiver, 6);
        receiver.transfer_anons(t, Some(to), first).unwrap();
        receiver.transfer_anons(t, Some(to + 2 * PAGE), second).unwrap();
        receiver.transfer_anons(t, Some(to + 4 * PAGE), third).unwrap();
        rig.check();
        assert_eq!(rig.load(&receiver, to, PAGE).unwrap(), pattern(40, PAGE));
        assert_eq!(rig.load(&receiver, to + 3 * PAGE, PAGE).unwrap(), pattern(41, PAGE));
        assert_eq!(rig.load(&receiver, to + 4 * PAGE, 3).unwrap(), b"new");
        rig.exit(s);
        rig.vm.release_object(object);
        rig.check();
        assert_eq!(
            rig.load(&receiver, to + 3 * PAGE, PAGE).unwrap(),
            pattern(41, PAGE),
            "the object is gone"
        );
        rig.store(&receiver, to + PAGE, b"x").unwrap();
        rig.check();
        rig.exit(receiver);
    });
}

#[test]
fn an_objects_pages_are_lent_where_nobody_maps_them() {
    on_each(|rig| {
        let t = rig.t();
        let object = file(rig);
        let lend = |pages: Range<u64>| rig.vm.loan_object_to_anons(t, &object, pages);
        let last = object.len_pages();
        assert_eq!(lend(1..1).map(|_| ()), Err(VmError::Invalid), "no pages");
        assert_eq!(lend(last - 1..last + 1).map(|_| ()), Err(VmError::Invalid), "behind the end");
        let wired = rig.vm.wire_page(t, &object, 2, false).unwrap();
        assert_eq!(lend(0..last).map(|_| ()), Err(VmError::Busy), "wired");
        rig.vm.unwire(wired);
        rig.check();

        // A mapping that may be written is protected, once for all pages.
        let s = rig.vm.space().unwrap();
        let va = map_file(rig, &s, &object, false);
        rig.store(&s, va, &pattern(1, 3 * PAGE)).unwrap();
        let loan = lend(0..3).unwrap();
        let mapped = s.loan_to_anons(t, va, 3 * PAGE).unwrap();
        rig.check();
        rig.store(&s, va + PAGE, b"later").unwrap();
        rig.vm.release_anons(mapped);
        let receiver = rig.vm.space().unwrap();
        let to = map(rig, &receiver, 3);
        receiver.transfer_anons(t, Some(to), loan).unwrap();
        rig.exit(s);
        rig.vm.release_object(object);
        rig.check();
        assert_eq!(rig.load(&receiver, to, 3 * PAGE).unwrap(), pattern(1, 3 * PAGE), "the object is gone");
        rig.exit(receiver);
    });
}

#[test]
fn a_loan_that_fails_in_the_middle_lends_nothing() {
    on_each(|rig| {
        let t = rig.t();
        let object = file(rig);
        let s = rig.vm.space().unwrap();
        let va = map_file(rig, &s, &object, false);
        s.map(t, Some(va + 4 * PAGE), 3 * PAGE, Prot::RW, Inherit::Copy).unwrap();
        for way in 0..3 {
            let mut n = 0;
            loop {
                rig.vm.fail_after(Some(n));
                let lent = match way {
                    0 => s.loan_to_kernel(t, va, 7 * PAGE).map(|l| rig.vm.unloan(l)),
                    1 => s.loan_to_anons(t, va, 7 * PAGE).map(|l| rig.vm.release_anons(l)),
                    _ => rig.vm.loan_object_to_anons(t, &object, 0..4).map(|l| rig.vm.release_anons(l)),
                };
                let struck = !rig.vm.failure_pending();
                rig.vm.fail_after(None);
                rig.check();
                assert_eq!(lent.is_err(), struck);
                if !struck {
                    break;
                }
                n += 1;
            }
            assert!(n > 2, "{n} allocations");
        }
        assert_eq!(rig.vm.wired_frames(), 0);
        rig.exit(s);
        rig.vm.release_object(object);
    });
}

#[test]
fn a_lost_loan_is_reported() {
    let lost = Rc::new(Cell::new(0));
    let count = lost.clone();
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        with_rig("xeon-up", 24, Schedule::Timed, move |rig| {
            let (s, va) = filled(rig, 1, 1);
            drop(s.loan_to_kernel(rig.t(), va, PAGE).unwrap());
            count.set(count.get() + usize::from(rig.vm.check().is_err()));
            rig.exit(s);
        });
    }));
    assert!(run.is_err() && lost.get() == 1);
}

/// Lenders, writers and borrowers at work on one object and one shared area at the same time, under many schedules.
#[test]
fn loans_hold_under_every_schedule() {
    for machine in ["xeon-mp", "xeon-mp-htt"] {
        for seed in 0..12 {
            with_rig(machine, 24, Schedule::Seeded(seed), |rig| {
                let object = file(rig);
                let s = rig.vm.space().unwrap();
                let va = map_file(rig, &s, &object, false);
                s.map(rig.t(), Some(va + 4 * PAGE), 2 * PAGE, Prot::RW, Inherit::Share).unwrap();
                let jobs: Vec<Job> = (0..rig.cpus())
                    .map(|cpu| {
                        let s = s.clone();
                        Box::new(move |rig: &Rig| worker(rig, &s, va, cpu)) as Job
                    })
                    .collect();
                rig.together(jobs);
                rig.check();
                // Each CPU counted in a word of its own: no increment may be lost to a copy.
                for cpu in 0..rig.cpus() {
                    for page in 0..6 {
                        let at = va + page * PAGE + 8 + cpu * 8;
                        assert_eq!(rig.load(&s, at, 1).unwrap(), [ROUNDS], "page {page} of cpu {cpu}");
                    }
                }
                rig.exit(s);
                rig.vm.release_object(object);
            });
        }
    }
}

const ROUNDS: u8 = 5;

fn worker(rig: &Rig, s: &AddressSpace, va: Va, cpu: usize) {
    let t = rig.t();
    for round in 1..=ROUNDS {
        let lent = match (cpu + round as usize) % 2 {
            0 => {
                let loan = s.loan_to_kernel(t, va, 6 * PAGE).unwrap();
                let before = bytes(rig, &loan);
                let anons = rig.vm.loan_frames_to_anons(&loan, 0..loan.frames().len()).unwrap();
                Some((loan, before, anons))
            }
            _ => {
                rig.vm.release_anons(s.loan_to_anons(t, va, 6 * PAGE).unwrap());
                None
            }
        };
        for page in 0..6 {
            rig.store(s, va + page * PAGE + 8 + cpu * 8, &[round]).unwrap();
        }
        if let Some((loan, before, anons)) = lent {
            assert!(bytes(rig, &loan) == before, "a borrower saw a write");
            rig.vm.unloan(loan);
            rig.vm.release_anons(anons);
        }
    }
    rig.leave(cpu);
}

/// A CPU whose TLB has the page read-only still, when another has made it writable, faults for nothing: that is no
/// write that the loan made dear.
#[test]
fn only_writes_that_a_loan_made_dear_are_counted() {
    with_rig("xeon-mp", 24, Schedule::Timed, |rig| {
        let (s, va) = filled(rig, 1, 1);
        let on_1 = |write: bool| {
            let s = s.clone();
            let work =
                move |rig: &Rig| if write { rig.store(&s, va, b"1") } else { rig.load(&s, va, 1).map(drop) };
            rig.on(1, work).unwrap();
        };
        for broken in [false, true] {
            let loan = s.loan_to_kernel(rig.t(), va, PAGE).unwrap();
            rig.load(&s, va, 1).unwrap();
            on_1(false);
            let loan = if broken {
                Some(loan)
            } else {
                rig.vm.unloan(loan);
                None
            };
            let faults = rig.counter(VmCounter::PageFaults);
            s.loan_history().take();
            rig.store(&s, va, b"0").unwrap();
            on_1(true);
            let outcome = s.loan_history().take();
            // Breaking tells the other CPU; a mapping that only permits more does not.
            // Where the kernel fills the TLB it sees that itself.
            let spurious = u64::from(matches!(rig.m.board().mmu, Mmu::Radix(_)));
            let expected = if broken { (1, 1, 1) } else { (1 + spurious, 1, 0) };
            let faults = rig.counter(VmCounter::PageFaults) - faults;
            assert_eq!((faults, outcome.refused_writes, outcome.broken), expected, "broken: {broken}");
            assert!(s.loan_history().is_clear());
            loan.into_iter().for_each(|loan| rig.vm.unloan(loan));
        }
        rig.on(1, |rig| rig.leave(1));
        rig.exit(s);
    });
}

/// One CPU lends, the others store through whatever translations they have: each reads back what it stored, and a
/// borrower reads the same bytes twice.
#[test]
fn no_store_is_lost_while_pages_are_being_protected() {
    let late = Rc::new(Cell::new(0));
    for seed in 0..40 {
        let late = late.clone();
        with_rig("xeon-mp-htt", 24, Schedule::Seeded(seed), move |rig| {
            let (s, va) = filled(rig, 1, 4);
            let jobs: Vec<Job> = (0..rig.cpus())
                .map(|cpu| {
                    let s = s.clone();
                    Box::new(move |rig: &Rig| {
                        for round in 1..=24u8 {
                            if cpu == 0 || cpu == 3 {
                                let loan = s.loan_to_kernel(rig.t(), va, 4 * PAGE).unwrap();
                                let before = bytes(rig, &loan);
                                (0..20).for_each(|_| rig.m.execute(Instructions(1)));
                                assert!(bytes(rig, &loan) == before, "a borrower saw a write");
                                rig.vm.unloan(loan);
                            } else {
                                for page in (0..4).rev() {
                                    let at = va + page * PAGE + cpu;
                                    rig.store(&s, at, &[round]).unwrap();
                                    assert_eq!(rig.load(&s, at, 1).unwrap(), [round], "a store is lost");
                                }
                            }
                        }
                        rig.leave(cpu);
                    }) as Job
                })
                .collect();
            rig.together(jobs);
            rig.check();
            late.set(late.get() + rig.m.snapshot().hardware.stale_uses_in_window);
            rig.exit(s);
        });
    }
    assert!(late.get() > 0, "nobody stored between the protection and its shootdown");
}
