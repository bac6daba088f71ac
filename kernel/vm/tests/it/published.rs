//! Loans between objects and anons, locked as the UVM paper says (4.1.1, 4.1.2): what an object lets go its borrower
//! adopts when it is next locked for its page, and until then nobody owns it; and the object's lock is tried, against
//! the order.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{Model, Schedule};
use pageferry_vm::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;
const PAGES: usize = 4;

/// A space that maps an object for all, and another that has the object's pages on loan.
struct Two {
    object: Arc<Object<Model>>,
    lender: AddressSpace,
    va: Va,
    receiver: AddressSpace,
    at: Va,
    frames: Vec<Pfn>,
}

impl Two {
    fn new(rig: &Rig) -> Two {
        let object = rig.vm.object(PAGES as u64, Backing::Zero).unwrap();
        let (lender, receiver) = (rig.vm.space().unwrap(), rig.vm.space().unwrap());
        let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: false };
        let va = lender.map_object(rig.t(), None, PAGES * PAGE, Prot::RW, Inherit::Share, mapped).unwrap();
        rig.store(&lender, va, &pattern(1, PAGES * PAGE)).unwrap();
        let at = receiver.map(rig.t(), None, PAGES * PAGE, Prot::RW, Inherit::Copy).unwrap();
        let loan = lender.loan_to_anons(rig.t(), va, PAGES * PAGE).unwrap();
        receiver.transfer_anons(rig.t(), Some(at), loan).unwrap();
        let frame = |page| rig.vm.pmaps().extract(lender.pmap(), va + page * PAGE).unwrap().0;
        rig.load(&lender, va, PAGES * PAGE).unwrap();
        let frames = (0..PAGES).map(frame).collect();
        Two { object, lender, va, receiver, at, frames }
    }

    /// The object ends.
    fn ends(&mut self, rig: &Rig) {
        let lender = core::mem::replace(&mut self.lender, rig.vm.space().unwrap());
        rig.exit(lender);
        let object = core::mem::replace(&mut self.object, rig.vm.object(1, Backing::Zero).unwrap());
        rig.vm.release_object(object);
        rig.check();
    }

    fn end(self, rig: &Rig) {
        rig.exit(self.lender);
        rig.exit(self.receiver);
        rig.vm.release_object(self.object);
        rig.check();
    }

    fn states(&self, rig: &Rig) -> Vec<(FrameState, u32)> {
        let state = |&frame: &Pfn| {
            let info = rig.vm.frame_info(frame);
            (info.state, info.loan_count)
        };
        self.frames.iter().map(state).collect()
    }
}

/// On a machine of each kind, by a kernel that locks loans so.
fn each(body: impl Fn(&Rig) + Clone + 'static) {
    for machine in MACHINES {
        let body = body.clone();
        with_choice(machine, "published", 24, move |rig| body(rig));
    }
}

#[test]
fn a_borrower_adopts_what_its_object_let_go_when_it_is_next_locked() {
    each(|rig| {
        let mut two = Two::new(rig);
        assert_eq!(two.states(rig), [(FrameState::Object, 1); PAGES]);
        two.ends(rig);
        assert_eq!(two.states(rig), [(FrameState::Orphan, 1); PAGES], "nobody owns it, the borrower has it");
        // Each of these locks the anon for its page: a store, a loan on, and a loan to the kernel.
        rig.store(&two.receiver, two.at, &[7]).unwrap();
        let on = two.receiver.loan_to_anons(rig.t(), two.at + PAGE, PAGE).unwrap();
        let kernel = two.receiver.loan_to_kernel(rig.t(), two.at + 2 * PAGE, PAGE).unwrap();
        let adopted = (FrameState::Anon, 0);
        let expected = [adopted, adopted, (FrameState::Anon, 1), (FrameState::Orphan, 1)];
        assert_eq!(two.states(rig), expected);
        rig.check();
        // What is its own is written in place: no page is copied that nobody else has.
        assert_eq!(rig.vm.pmaps().extract(two.receiver.pmap(), two.at).unwrap().0, two.frames[0]);
        rig.vm.release_anons(on);
        rig.vm.unloan(kernel);
        let mut found = pattern(1, PAGES * PAGE);
        found[0] = 7;
        assert!(rig.load(&two.receiver, two.at, PAGES * PAGE).unwrap() == found);
        two.end(rig);
    });
}

#[test]
fn what_nobody_adopted_goes_with_its_borrower() {
    each(|rig| {
        let free = rig.vm.free_frames();
        let mut two = Two::new(rig);
        two.ends(rig);
        two.receiver.anflush(rig.t(), two.at, PAGE).unwrap();
        assert_eq!(two.states(rig)[0], (FrameState::Free, 0));
        rig.check();
        two.end(rig);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

#[test]
fn the_page_daemon_has_the_borrower_adopt_what_it_takes() {
    for machine in ["mini-soft", "xeon-up"] {
        with_paging_and_choice((machine, "published"), 24, Schedule::Timed, Some(PAGING), |rig| {
            let mut two = Two::new(rig);
            two.ends(rig);
            assert_eq!(rig.vm.reclaim(rig.t()), PAGES, "it takes each page");
            rig.check();
            assert!(rig.load(&two.receiver, two.at, PAGES * PAGE).unwrap() == pattern(1, PAGES * PAGE));
            two.end(rig);
        });
    }
}

/// A CPU lends pages that it has on loan from an object, while others lend the object's: the object's lock is tried,
/// and refused at some time; and what is lent is right.
#[test]
fn a_lock_that_is_refused_is_tried_again() {
    let refused = Rc::new(Cell::new(0));
    for seed in 0..20 {
        let refused = refused.clone();
        let machine = ("xeon-mp-htt", "published");
        with_paging_and_choice(machine, 24, Schedule::Seeded(seed), None, move |rig| {
            let two = Two::new(rig);
            let job = |cpu: usize| {
                let whose = if cpu == 0 { (&two.receiver, two.at) } else { (&two.lender, two.va) };
                let (space, at) = (whose.0.clone(), whose.1);
                let job = move |rig: &Rig| {
                    for _ in 0..6 {
                        let loan = space.loan_to_kernel(rig.t(), at, PAGES * PAGE).unwrap();
                        let frames = loan.frames().iter();
                        let found: Vec<u8> = frames.flat_map(|&frame| rig.m.frame_bytes(frame)).collect();
                        assert!(found == pattern(1, PAGES * PAGE));
                        rig.vm.unloan(loan);
                    }
                    rig.leave(cpu);
                };
                Box::new(job) as Job
            };
            rig.together((0..rig.cpus()).map(job).collect());
            rig.check();
            refused.set(refused.get() + rig.m.snapshot().counter(VmCounter::LoanLocksRefused));
            two.end(rig);
        });
    }
    assert!(refused.get() > 0, "no try was ever refused");
}

#[test]
fn its_defects_are_seen() {
    for (defect, told) in
        [(VmDefect::AdoptedStillLent, "loans"), (VmDefect::BorrowedOrphanKept, "neither owner nor user")]
    {
        let caught = std::panic::catch_unwind(|| {
            with_choice("mini-soft", "published", 24, move |rig| {
                let mut two = Two::new(rig);
                rig.vm.plant(Some(defect));
                two.ends(rig);
                rig.store(&two.receiver, two.at, &[7]).unwrap();
                two.receiver.anflush(rig.t(), two.at + PAGE, PAGE).unwrap();
                rig.check();
                two.end(rig);
            });
        });
        let said = caught.expect_err("the planted defect is not noticed");
        let said = said.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(said.contains(told), "{defect:?}: {said}");
    }
}
