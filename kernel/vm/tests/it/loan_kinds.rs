//! The four kinds of loan under the page daemon, and a loan of a loan: who has the frame, how often it is lent and
//! wired, and whose bytes are where, before and after each thing that can happen.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{Model, Schedule};
use pageferry_vm::*;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;
const PAGES: usize = 3;

fn paged(body: impl Fn(&Rig) + Clone + 'static) {
    for machine in ["xeon-up", "xeon-mp", "opteron-mp"] {
        let body = body.clone();
        with_paging(machine, 24, Schedule::Timed, Some(PAGING), move |rig| body(rig));
    }
}

fn anonymous(rig: &Rig, tag: u8) -> (AddressSpace, Va) {
    let s = rig.vm.space().unwrap();
    let va = s.map(rig.t(), None, PAGES * PAGE, Prot::RW, Inherit::Copy).unwrap();
    rig.store(&s, va, &pattern(tag, PAGES * PAGE)).unwrap();
    (s, va)
}

fn mapped(rig: &Rig, object: &Arc<Object<Model>>, tag: u8) -> (AddressSpace, Va) {
    let s = rig.vm.space().unwrap();
    let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: false };
    let va = s.map_object(rig.t(), None, PAGES * PAGE, Prot::RW, Inherit::Share, mapped).unwrap();
    rig.store(&s, va, &pattern(tag, PAGES * PAGE)).unwrap();
    (s, va)
}

fn file(rig: &Rig) -> Arc<Object<Model>> {
    let first = rig.vm.file_blocks().start;
    rig.vm.file_object((first..first + PAGES as u64).collect()).unwrap()
}

fn expect(rig: &Rig, s: &AddressSpace, va: Va, tag: u8) {
    assert!(
        rig.load(s, va, PAGES * PAGE).unwrap() == pattern(tag, PAGES * PAGE),
        "other bytes than those of {tag}"
    );
}

/// The daemon takes what it can, three times over; returns how many frames it says it got.
fn press(rig: &Rig) -> usize {
    let before = rig.vm.free_frames();
    let reclaimed = (0..3).map(|_| rig.vm.reclaim(rig.t())).sum();
    assert_eq!(rig.vm.free_frames(), before + reclaimed, "what counts as reclaimed is free");
    rig.check();
    reclaimed
}

fn counts(rig: &Rig, frame: Pfn) -> (FrameState, u32, u32) {
    let info = rig.vm.frame_info(frame);
    (info.state, info.loan_count, info.wire_count)
}

/// What a page can be lent from.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Lender {
    Anon,
    Memory,
    /// The pages of it are on the disk already, or not.
    File {
        clean: bool,
    },
}

const LENDERS: [Lender; 4] =
    [Lender::Anon, Lender::Memory, Lender::File { clean: false }, Lender::File { clean: true }];

/// A space with pages of pattern 1, of the kind; and the object, if there is one.
fn lender(rig: &Rig, kind: Lender) -> (AddressSpace, Va, Option<Arc<Object<Model>>>) {
    let object = match kind {
        Lender::Anon => {
            let (s, va) = anonymous(rig, 1);
            return (s, va, None);
        }
        Lender::Memory => rig.vm.object(PAGES as u64, Backing::Zero).unwrap(),
        Lender::File { .. } => file(rig),
    };
    let (s, va) = mapped(rig, &object, 1);
    if kind == (Lender::File { clean: true }) {
        rig.vm.clean_file(rig.t(), &object).unwrap();
    }
    (s, va, Some(object))
}

fn release(rig: &Rig, object: Option<Arc<Object<Model>>>) {
    if let Some(object) = object {
        if object.is_file() {
            assert!(rig.vm.end_file(&object).is_some(), "nobody has it any more");
        } else {
            rig.vm.release_object(object);
        }
    }
}

#[test]
fn what_the_kernel_has_on_loan_stays_in_its_frame() {
    paged(|rig| {
        for kind in LENDERS {
            let start = (rig.vm.free_frames(), rig.vm.swap_census().free);
            let (s, va, object) = lender(rig, kind);
            let state = if kind == Lender::Anon { FrameState::Anon } else { FrameState::Object };
            let loan = s.loan_to_kernel(rig.t(), va, 2 * PAGE).unwrap();
            let frames = loan.frames().to_vec();
            let intact = |what: &str| {
                for (i, &frame) in frames.iter().enumerate() {
                    let same = rig.m.frame_is(frame, &pattern(1, PAGES * PAGE)[i * PAGE..][..PAGE]);
                    assert!(same, "{kind:?}, {what}: page {i} has changed while on loan");
                }
            };
            let ins = rig.counter(VmCounter::PageIns);
            assert_eq!(press(rig), 1, "{kind:?}: the third page, which is not lent");
            for &frame in &frames {
                assert_eq!(counts(rig, frame), (state, 1, 1), "{kind:?}");
            }
            intact("pressed");
            rig.load(&s, va, 2 * PAGE).unwrap();
            assert_eq!(rig.counter(VmCounter::PageIns), ins, "{kind:?}: they have never left");
            // One is broken: its old frame is nobody's to take, its new one is.
            rig.store(&s, va, &pattern(2, PAGE)).unwrap();
            assert_eq!(counts(rig, frames[0]), (FrameState::Orphan, 1, 1), "{kind:?}");
            assert_eq!(press(rig), 1, "{kind:?}: the copy");
            intact("broken");
            rig.vm.unloan(loan);
            rig.check();
            assert_eq!(counts(rig, frames[0]), (FrameState::Free, 0, 0), "{kind:?}");
            assert_eq!(press(rig), 1, "{kind:?}: the other, which is not on loan any more");
            let mut expected = pattern(1, PAGES * PAGE);
            expected[..PAGE].copy_from_slice(&pattern(2, PAGE));
            assert!(rig.load(&s, va, PAGES * PAGE).unwrap() == expected, "{kind:?}");
            rig.exit(s);
            release(rig, object);
            assert_eq!((rig.vm.free_frames(), rig.vm.swap_census().free), start, "{kind:?}");
            assert_eq!(rig.vm.wired_frames(), 0);
        }
    });
}

#[test]
fn what_an_anon_has_on_loan_may_go_out_and_comes_back_to_both() {
    paged(|rig| {
        for kind in LENDERS {
            for received in [false, true] {
                let start = (rig.vm.free_frames(), rig.vm.swap_census().free);
                let (s, va, object) = lender(rig, kind);
                let (r, at) = anonymous(rig, 9);
                let mut loan = Some(s.loan_to_anons(rig.t(), va, PAGES * PAGE).unwrap());
                if received {
                    r.transfer_anons(rig.t(), Some(at), loan.take().expect("just lent")).unwrap();
                }
                press(rig);
                expect(rig, &s, va, 1);
                press(rig);
                // The lender writes while its page is out, or in one frame with the borrower's.
                rig.store(&s, va + PAGE, &pattern(3, PAGE)).unwrap();
                press(rig);
                if let Some(loan) = loan {
                    r.transfer_anons(rig.t(), Some(at), loan).unwrap();
                }
                rig.check();
                expect(rig, &r, at, 1);
                press(rig);
                rig.store(&r, at, &pattern(4, PAGE)).unwrap();
                press(rig);
                let (mut theirs, mut its) = (pattern(1, PAGES * PAGE), pattern(1, PAGES * PAGE));
                theirs[PAGE..2 * PAGE].copy_from_slice(&pattern(3, PAGE));
                its[..PAGE].copy_from_slice(&pattern(4, PAGE));
                assert!(rig.load(&s, va, PAGES * PAGE).unwrap() == theirs, "{kind:?}: the lender");
                assert!(rig.load(&r, at, PAGES * PAGE).unwrap() == its, "{kind:?}: the borrower");
                rig.exit(s);
                release(rig, object);
                rig.check();
                assert!(rig.load(&r, at, PAGES * PAGE).unwrap() == its, "{kind:?}: the borrower, alone");
                rig.exit(r);
                assert_eq!((rig.vm.free_frames(), rig.vm.swap_census().free), start, "{kind:?}");
            }
        }
    });
}

/// A page of an object, on loan to an anon of a receiver, which has lent it to the kernel.
struct Chain {
    object: Arc<Object<Model>>,
    owner: AddressSpace,
    va: Va,
    receiver: AddressSpace,
    at: Va,
    loan: KernelLoan,
    frame: Pfn,
}

/// What happens to it, and what the frame's state, loans and wires are then.
type Event = (&'static str, fn(&Rig, &mut Option<Chain>), (FrameState, u32, u32));

const EVENTS: [Event; 7] = [
    (
        "the owner writes: the borrower has the old page, and lends it",
        |rig, chain| {
            let c = chain.as_ref().unwrap();
            rig.store(&c.owner, c.va, &pattern(2, PAGE)).unwrap();
            assert!(rig.load(&c.owner, c.va, PAGE).unwrap() == pattern(2, PAGE));
            expect(rig, &c.receiver, c.at, 1);
        },
        (FrameState::Anon, 1, 1),
    ),
    (
        "the borrower writes: the owner lends to the kernel what it lent to the borrower",
        |rig, chain| {
            let c = chain.as_ref().unwrap();
            rig.store(&c.receiver, c.at, &pattern(2, PAGE)).unwrap();
            assert!(rig.load(&c.receiver, c.at, PAGE).unwrap() == pattern(2, PAGE));
            expect(rig, &c.owner, c.va, 1);
        },
        (FrameState::Object, 1, 1),
    ),
    (
        "both write: nobody has it but the kernel",
        |rig, chain| {
            let c = chain.as_ref().unwrap();
            rig.store(&c.owner, c.va, &pattern(2, PAGE)).unwrap();
            rig.check();
            rig.store(&c.receiver, c.at, &pattern(3, PAGE)).unwrap();
            assert!(rig.load(&c.owner, c.va, PAGE).unwrap() == pattern(2, PAGE));
            assert!(rig.load(&c.receiver, c.at, PAGE).unwrap() == pattern(3, PAGE));
        },
        (FrameState::Orphan, 1, 1),
    ),
    (
        "the object ends: the borrower has it",
        |rig, chain| {
            let c = chain.take().unwrap();
            rig.exit(c.owner);
            rig.vm.release_object(c.object);
            rig.check();
            expect(rig, &c.receiver, c.at, 1);
            assert_eq!(let_go(rig, c.frame), (FrameState::Anon, 1));
            // The loan alone is left of it.
            rig.exit(c.receiver);
            rig.check();
            assert_eq!(counts(rig, c.frame), (FrameState::Orphan, 1, 1));
            assert!(rig.m.frame_is(c.frame, &pattern(1, PAGE)));
            rig.vm.unloan(c.loan);
        },
        (FrameState::Free, 0, 0),
    ),
    (
        "the borrower ends: the owner lends to the kernel",
        |rig, chain| {
            let c = chain.take().unwrap();
            rig.exit(c.receiver);
            rig.check();
            assert_eq!(counts(rig, c.frame), (FrameState::Object, 1, 1));
            rig.store(&c.owner, c.va, &pattern(2, PAGE)).unwrap();
            rig.check();
            assert_eq!(counts(rig, c.frame), (FrameState::Orphan, 1, 1));
            assert!(rig.m.frame_is(c.frame, &pattern(1, PAGE)));
            rig.vm.unloan(c.loan);
            rig.exit(c.owner);
            rig.vm.release_object(c.object);
        },
        (FrameState::Free, 0, 0),
    ),
    (
        "second loans: to the kernel they count, to anons they are references on the borrower",
        |rig, chain| {
            let c = chain.as_ref().unwrap();
            let kernel = c.owner.loan_to_kernel(rig.t(), c.va, PAGE).unwrap();
            assert_eq!((kernel.frames(), counts(rig, c.frame)), (&[c.frame][..], (FrameState::Object, 3, 2)));
            let anons = c.owner.loan_to_anons(rig.t(), c.va, PAGE).unwrap();
            let more = c.receiver.loan_to_anons(rig.t(), c.at, PAGE).unwrap();
            let further = rig.vm.loan_frames_to_anons(&c.loan, 0..1).unwrap();
            assert_eq!(counts(rig, c.frame), (FrameState::Object, 3, 2));
            rig.check();
            rig.vm.unloan(kernel);
            [anons, more, further].into_iter().for_each(|loan| rig.vm.release_anons(loan));
        },
        (FrameState::Object, 2, 1),
    ),
    (
        "the page daemon is pressed: it stays",
        |rig, chain| {
            let c = chain.as_ref().unwrap();
            // Another page, of which each has its own by now, goes: twice. The third is the borrower's once the object
            // has it on the disk, and goes too.
            rig.store(&c.owner, c.va + PAGE, &pattern(2, PAGE)).unwrap();
            assert_eq!(press(rig), 3);
            let ins = rig.counter(VmCounter::PageIns);
            rig.load(&c.owner, c.va, PAGE).unwrap();
            rig.load(&c.receiver, c.at, PAGE).unwrap();
            assert_eq!(rig.counter(VmCounter::PageIns), ins, "it has never left");
        },
        (FrameState::Object, 2, 1),
    ),
];

#[test]
fn an_objects_page_lent_to_an_anon_and_by_that_to_the_kernel() {
    for (what, event, expected) in EVENTS {
        paged(move |rig| {
            let start = (rig.vm.free_frames(), rig.vm.swap_census().free);
            let object = rig.vm.object(PAGES as u64, Backing::Zero).unwrap();
            let (owner, va) = mapped(rig, &object, 1);
            let (receiver, at) = anonymous(rig, 9);
            let anons = owner.loan_to_anons(rig.t(), va, PAGES * PAGE).unwrap();
            receiver.transfer_anons(rig.t(), Some(at), anons).unwrap();
            let loan = receiver.loan_to_kernel(rig.t(), at, PAGE).unwrap();
            let frame = loan.frames()[0];
            assert_eq!(
                counts(rig, frame),
                (FrameState::Object, 2, 1),
                "the anon's loan, and the kernel's with its wire"
            );
            rig.check();
            let mut chain = Some(Chain { object, owner, va, receiver, at, loan, frame });
            event(rig, &mut chain);
            rig.check();
            assert_eq!(counts(rig, frame), expected, "{what}");
            if let Some(c) = chain {
                assert!(
                    rig.m.frame_is(frame, &pattern(1, PAGE)),
                    "{what}: the kernel has the bytes of the loan"
                );
                rig.vm.unloan(c.loan);
                rig.check();
                let (state, loans, _) = expected;
                let state = if state == FrameState::Orphan { FrameState::Free } else { state };
                assert_eq!(counts(rig, frame), (state, loans - 1, 0), "{what}");
                rig.exit(c.receiver);
                rig.check();
                rig.exit(c.owner);
                rig.vm.release_object(c.object);
            }
            assert_eq!(rig.vm.wired_frames(), 0);
            assert_eq!((rig.vm.free_frames(), rig.vm.swap_census().free), start, "{what}");
        });
    }
}
