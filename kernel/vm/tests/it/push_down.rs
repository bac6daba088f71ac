//! Pages that are pushed down to an object: who sees them, who owns them, what is refused.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{Model, Schedule};
use pageferry_vm::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;
const BOTH: [PushDown; 2] = [PushDown::Lend, PushDown::Give];

/// A private mapping of four pages of an object, and another space's shared one of the same.
struct Two {
    object: Arc<Object<Model>>,
    a: AddressSpace,
    at: Va,
    b: AddressSpace,
    there: Va,
}

impl Two {
    fn of(rig: &Rig, object: Arc<Object<Model>>) -> Two {
        let map = |private: bool| {
            let space = rig.vm.space().unwrap();
            let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: private };
            let va = space.map_object(rig.t(), None, 4 * PAGE, Prot::RW, Inherit::Copy, mapped).unwrap();
            (space, va)
        };
        let ((a, at), (b, there)) = (map(true), map(false));
        Two { object, a, at, b, there }
    }

    fn zero(rig: &Rig) -> Two {
        Two::of(rig, rig.vm.object(4, Backing::Zero).unwrap())
    }

    /// The object has pattern 1; of the private mapping, the pages `own` have pattern 2.
    fn filled(rig: &Rig, object: Arc<Object<Model>>, own: std::ops::Range<usize>) -> Two {
        let two = Two::of(rig, object);
        rig.store(&two.b, two.there, &pattern(1, 4 * PAGE)).unwrap();
        rig.store(&two.a, two.at + own.start * PAGE, &pattern(2, own.len() * PAGE)).unwrap();
        two
    }

    fn push(&self, rig: &Rig, page: usize, pages: usize, how: PushDown) -> Result<usize, VmError> {
        self.a.push_down(rig.t(), self.at + page * PAGE, pages * PAGE, &self.object, how)
    }

    fn private(&self, rig: &Rig) -> Vec<u8> {
        rig.load(&self.a, self.at, 4 * PAGE).unwrap()
    }

    fn shared(&self, rig: &Rig) -> Vec<u8> {
        rig.load(&self.b, self.there, 4 * PAGE).unwrap()
    }

    fn end(self, rig: &Rig) {
        rig.exit(self.a);
        rig.exit(self.b);
        rig.vm.release_object(self.object);
    }
}

/// What the object has when the pages `own` are down.
fn pushed(own: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = pattern(1, 4 * PAGE);
    bytes[own.start * PAGE..own.end * PAGE].copy_from_slice(&pattern(2, own.len() * PAGE));
    bytes
}

/// With a page daemon, on one and two CPUs.
fn paged(body: impl Fn(&Rig) + Clone + 'static) {
    for machine in ["xeon-up", "xeon-mp", "opteron-mp"] {
        let body = body.clone();
        with_paging(machine, 24, Schedule::Timed, Some(PAGING), move |rig| body(rig));
    }
}

#[test]
fn the_object_takes_the_pages_over() {
    on_each(|rig| {
        for how in BOTH {
            let two = Two::filled(rig, rig.vm.object(4, Backing::Zero).unwrap(), 1..3);
            assert_eq!(two.shared(rig), pattern(1, 4 * PAGE), "they are private");
            let copied = rig.counter(VmCounter::CowCopies);
            let free = rig.vm.free_frames();
            assert_eq!(two.push(rig, 0, 4, how), Ok(2), "two pages have anons");
            rig.check();
            assert_eq!(rig.vm.free_frames(), free + 2, "the object's old pages are free");
            assert_eq!(rig.counter(VmCounter::CowCopies), copied, "nothing is copied");
            let expected = pushed(1..3);
            assert!(two.shared(rig) == expected, "who has the object mapped sees them");
            assert!(two.private(rig) == expected);
            rig.check();
            // From here on they are two again: the private mapping's writes are its own, and the object's are the
            // object's.
            rig.store(&two.a, two.at + PAGE, b"private").unwrap();
            rig.store(&two.b, two.there + 2 * PAGE, b"object").unwrap();
            rig.check();
            assert_eq!(rig.load(&two.b, two.there + PAGE, 7).unwrap(), expected[PAGE..PAGE + 7]);
            let seen = rig.load(&two.a, two.at + 2 * PAGE, 6).unwrap();
            let kept = how == PushDown::Lend;
            let lent = &expected[2 * PAGE..2 * PAGE + 6];
            assert_eq!(
                seen,
                if kept { lent } else { &b"object"[..] },
                "what the anon keeps, it keeps as it was"
            );
            two.end(rig);
        }
    });
}

#[test]
fn what_cannot_go_down_is_refused() {
    on_each(|rig| {
        let t = rig.t();
        let two = Two::zero(rig);
        let (a, at) = (&two.a, two.at);
        rig.store(a, at, &pattern(3, PAGE)).unwrap();
        let push = |at, len| a.push_down(t, at, len, &two.object, PushDown::Give);
        assert_eq!(push(at + 1, PAGE), Err(VmError::Invalid));
        assert_eq!(push(at, 0), Err(VmError::Invalid));
        assert_eq!(push(at, 5 * PAGE), Err(VmError::NoMemory));
        assert_eq!(push(Va(!0xfff), 2 * PAGE), Err(VmError::NoMemory));
        let child = a.fork(t).unwrap();
        rig.load(&child, at, 1).unwrap();
        // The first write after the fork copies the amap: the anon has two references.
        rig.store(&child, at + PAGE, b"x").unwrap();
        assert_eq!(two.push(rig, 0, 1, PushDown::Give), Err(VmError::Busy), "a child has it too");
        assert_eq!(two.push(rig, 0, 1, PushDown::Lend), Ok(1));
        assert_eq!(rig.load(&child, at, PAGE).unwrap(), pattern(3, PAGE));
        assert_eq!(rig.load(&two.b, two.there, PAGE).unwrap(), pattern(3, PAGE));
        assert_eq!(two.push(rig, 0, 1, PushDown::Lend), Err(VmError::Busy), "it is the object's already");
        rig.check();
        rig.exit(child);
        two.end(rig);
    });
}

#[test]
fn what_maps_something_else_is_left_alone() {
    on_each(|rig| {
        let t = rig.t();
        let (two, other) = (Two::zero(rig), rig.vm.object(4, Backing::Zero).unwrap());
        let end = two.at + 4 * PAGE;
        let mapped = Mapped { object: other.clone(), first_page: 0, copy_on_write: true };
        two.a.map_object(t, Some(end), PAGE, Prot::RW, Inherit::Copy, mapped).unwrap();
        two.a.map(t, Some(end + PAGE), PAGE, Prot::RW, Inherit::Copy).unwrap();
        rig.store(&two.a, two.at, &pattern(5, 6 * PAGE)).unwrap();
        for how in BOTH {
            for pages in [5, 6] {
                let refused = two.a.push_down(t, two.at, pages * PAGE, &two.object, how);
                assert_eq!(refused, Err(VmError::Invalid));
            }
            assert_eq!(two.a.push_down(t, end + PAGE, PAGE, &other, how), Err(VmError::Invalid));
            assert_eq!(rig.load(&two.b, two.there, 4 * PAGE).unwrap(), [0; 4 * PAGE]);
            rig.check();
        }
        assert_eq!(rig.load(&two.a, two.at, 6 * PAGE).unwrap(), pattern(5, 6 * PAGE));
        let clear = rig.vm.space().unwrap();
        let mapped = Mapped { object: other.clone(), first_page: 0, copy_on_write: false };
        let va = clear.map_object(t, None, PAGE, Prot::READ, Inherit::Copy, mapped).unwrap();
        assert_eq!(rig.load(&clear, va, PAGE).unwrap(), [0; PAGE]);
        rig.exit(clear);
        two.end(rig);
        rig.vm.release_object(other);
    });
}

#[test]
fn wired_pages_are_refused_and_nothing_has_changed() {
    on_each(|rig| {
        for how in BOTH {
            let two = Two::filled(rig, rig.vm.object(4, Backing::Zero).unwrap(), 0..4);
            let state = |page: usize| {
                let mapped = |space: &AddressSpace, va| rig.vm.pmaps().extract(space.pmap(), va);
                (mapped(&two.a, two.at + page * PAGE), mapped(&two.b, two.there + page * PAGE))
            };
            let (private, shared) = (two.private(rig), two.shared(rig));
            let before = [state(0), state(1)];
            let free = rig.vm.free_frames();
            // The private page, for the kernel to read and to write; then the page that is to be replaced.
            let wires: [&dyn Fn() -> Wired; 3] = [
                &|| two.a.wire(rig.t(), two.at, PAGE, Prot::READ).unwrap(),
                &|| two.a.wire(rig.t(), two.at, PAGE, Prot::RW).unwrap(),
                &|| two.b.wire(rig.t(), two.there, PAGE, Prot::RW).unwrap(),
            ];
            for wire in wires {
                let wired = wire();
                assert_eq!(two.push(rig, 0, 1, how), Err(VmError::Busy));
                assert_eq!(two.push(rig, 0, 4, how), Err(VmError::Busy), "nor does a page behind it go");
                assert_eq!([state(0), state(1)], before, "both are mapped as they were");
                rig.check();
                rig.vm.unwire(wired);
            }
            two.a.lock_memory(rig.t(), two.at, PAGE).unwrap();
            assert_eq!(two.push(rig, 0, 1, how), Err(VmError::Busy), "it is locked");
            two.a.unlock_memory(rig.t(), two.at, PAGE).unwrap();
            assert_eq!(rig.vm.free_frames(), free);
            assert!(two.private(rig) == private && two.shared(rig) == shared);
            assert_eq!(two.push(rig, 0, 4, how), Ok(4), "it was the wire alone");
            two.end(rig);
        }
    });
}

#[test]
fn what_the_kernel_has_on_loan_goes_down_and_keeps_its_bytes() {
    on_each(|rig| {
        for how in BOTH {
            let two = Two::filled(rig, rig.vm.object(4, Backing::Zero).unwrap(), 0..2);
            let new = two.a.loan_to_kernel(rig.t(), two.at, PAGE).unwrap();
            let old = two.b.loan_to_kernel(rig.t(), two.there, PAGE).unwrap();
            let borrowed = two.b.loan_to_anons(rig.t(), two.there + PAGE, PAGE).unwrap();
            assert_eq!(two.push(rig, 0, 2, how), Ok(2));
            rig.check();
            assert_eq!(rig.vm.frame_info(old.frames()[0]).state, FrameState::Orphan);
            assert_eq!(rig.vm.frame_info(new.frames()[0]).state, FrameState::Object);
            // Writes by either break the loan.
            rig.store(&two.b, two.there, b"object").unwrap();
            rig.store(&two.a, two.at, b"private").unwrap();
            rig.check();
            assert!(rig.m.frame_is(old.frames()[0], &pattern(1, PAGE)));
            assert!(rig.m.frame_is(new.frames()[0], &pattern(2, PAGE)));
            assert_eq!(rig.load(&two.b, two.there, 6).unwrap(), b"object");
            let receiver = rig.vm.space().unwrap();
            let to = receiver.map(rig.t(), None, PAGE, Prot::RW, Inherit::Copy).unwrap();
            receiver.transfer_anons(rig.t(), Some(to), borrowed).unwrap();
            assert!(rig.load(&receiver, to, PAGE).unwrap() == pattern(1, 2 * PAGE)[PAGE..]);
            rig.vm.unloan(new);
            rig.vm.unloan(old);
            rig.check();
            rig.exit(receiver);
            two.end(rig);
        }
    });
}

#[test]
fn a_page_that_is_in_the_swap_area_comes_in_first() {
    paged(|rig| {
        for how in BOTH {
            let two = Two::filled(rig, rig.vm.object(4, Backing::Zero).unwrap(), 1..3);
            assert_eq!(rig.vm.reclaim(rig.t()), 6, "the private pages, and the object's own");
            let ins = rig.counter(VmCounter::PageIns);
            assert_eq!(two.push(rig, 0, 4, how), Ok(2));
            rig.check();
            assert_eq!(rig.counter(VmCounter::PageIns) - ins, 2, "what is replaced stays out");
            let swap = rig.vm.swap_census();
            assert_eq!(
                (swap.slots - swap.free, swap.only),
                (2, 2),
                "two of the object's are still there alone"
            );
            assert!(two.shared(rig) == pushed(1..3));
            assert!(two.private(rig) == pushed(1..3));
            // What went down is the object's to page out.
            rig.vm.reclaim(rig.t());
            rig.check();
            assert!(two.shared(rig) == pushed(1..3) && two.private(rig) == pushed(1..3));
            two.end(rig);
            assert_eq!(rig.vm.swap_census().free, 512);
        }
    });
}

#[test]
fn the_page_that_is_replaced_gives_its_slot_up() {
    paged(|rig| {
        for how in BOTH {
            for resident in [false, true] {
                let two = Two::filled(rig, rig.vm.object(4, Backing::Zero).unwrap(), 0..0);
                assert_eq!(rig.vm.reclaim(rig.t()), 4);
                rig.store(&two.a, two.at + PAGE, &pattern(2, 2 * PAGE)).unwrap();
                if resident {
                    assert!(two.shared(rig) == pattern(1, 4 * PAGE));
                }
                let before = rig.vm.swap_census();
                assert_eq!(two.push(rig, 1, 2, how), Ok(2));
                rig.check();
                assert_eq!(rig.vm.swap_census().free, before.free + 2);
                assert!(two.shared(rig) == pushed(1..3));
                two.end(rig);
                assert_eq!(rig.vm.swap_census().free, 512);
            }
        }
    });
}

#[test]
fn what_goes_down_to_a_file_is_written_to_its_blocks() {
    paged(|rig| {
        for how in BOTH {
            let first = rig.vm.file_blocks().start;
            let file = rig.vm.file_object((first..first + 4).collect()).unwrap();
            let two = Two::filled(rig, file, 1..3);
            rig.vm.clean_file(rig.t(), &two.object).unwrap();
            // The file's own pages are on the disk alone; the private ones in the swap area.
            assert_eq!(rig.vm.reclaim(rig.t()), 6);
            assert_eq!(two.push(rig, 0, 4, how), Ok(2));
            rig.check();
            assert!(rig.m.disk_block(first + 1) == pattern(1, 2 * PAGE)[PAGE..], "not yet");
            rig.vm.clean_file(rig.t(), &two.object).unwrap();
            for page in 0..4 {
                let block = rig.m.disk_block(first + page as u64);
                assert!(block == pushed(1..3)[page * PAGE..][..PAGE], "block {page}");
            }
            // Clean, so that nothing but the anons that kept their pages need room in the swap area.
            rig.vm.reclaim(rig.t());
            rig.check();
            assert!(two.shared(rig) == pushed(1..3) && two.private(rig) == pushed(1..3));
            // What lies behind the end has nowhere to go.
            rig.store(&two.a, two.at, &pattern(4, 4 * PAGE)).unwrap();
            let cut = rig.vm.truncate_file(rig.t(), &two.object, 3);
            assert_eq!(cut, [first + 3]);
            let end = two.at + 3 * PAGE;
            assert_eq!(two.push(rig, 0, 4, how), Err(VmError::Bus(end)));
            rig.check();
            assert_eq!(rig.load(&two.b, two.there, 3 * PAGE).unwrap(), pattern(4, 3 * PAGE));
            assert_eq!(two.private(rig), pattern(4, 4 * PAGE), "what is refused is still there");
            rig.exit(two.a);
            rig.exit(two.b);
            assert_eq!(rig.vm.end_file(&two.object).unwrap(), [first, first + 1, first + 2]);
            assert_eq!(rig.vm.swap_census().free, 512);
        }
    });
}

/// Every allocation fails once, in a mapping whose amap waits to be copied, with the page in the swap area: what the
/// two mappings read is as before, and the next attempt succeeds.
#[test]
fn a_failed_allocation_loses_nothing() {
    paged(|rig| {
        for how in BOTH {
            let free = rig.vm.free_frames();
            for n in 0.. {
                let two = Two::filled(rig, rig.vm.object(4, Backing::Zero).unwrap(), 1..3);
                let child = two.a.fork(rig.t()).unwrap();
                rig.vm.reclaim(rig.t());
                rig.vm.fail_after(Some(n));
                let result = two.push(rig, 0, 4, how);
                let struck = !rig.vm.failure_pending();
                rig.vm.fail_after(None);
                rig.check();
                // What is shared with a child is lent, and never given.
                let possible = if how == PushDown::Lend { Ok(2) } else { Err(VmError::Busy) };
                assert_eq!(result, if struck { Err(VmError::NoMemory) } else { possible });
                if struck && n == 0 {
                    assert!(two.shared(rig) == pattern(1, 4 * PAGE), "nothing is down");
                }
                assert!(two.private(rig) == pushed(1..3));
                assert!(rig.load(&child, two.at, 4 * PAGE).unwrap() == pushed(1..3));
                rig.exit(child);
                let left = 2 - (1..3).filter(|&page| is_down(&two, rig, page)).count();
                let again = (1..3).filter(|&page| !is_down(&two, rig, page));
                let again: usize = again.map(|page| two.push(rig, page, 1, how).unwrap()).sum();
                assert_eq!(again, left, "what is not down goes down now");
                rig.check();
                assert!(two.shared(rig) == pushed(1..3) && two.private(rig) == pushed(1..3));
                two.end(rig);
                assert_eq!((rig.vm.free_frames(), rig.vm.swap_census().free), (free, 512));
                if !struck {
                    assert!(n >= 3, "{n} allocations: an amap, its slots, and a frame at least");
                    break;
                }
            }
        }
    });
}

/// True when the object has the private mapping's bytes.
fn is_down(two: &Two, rig: &Rig, page: usize) -> bool {
    let at = two.there + page * PAGE;
    rig.load(&two.b, at, PAGE).unwrap() == pushed(1..3)[page * PAGE..][..PAGE]
}

/// The object's page is on its way to the disk on another CPU; then the anon's is.
#[test]
fn a_page_that_is_on_its_way_is_refused_or_waited_for() {
    let (refused, waited) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in 0..6 {
        for how in BOTH {
            let (refused, waited) = (refused.clone(), waited.clone());
            with_paging("xeon-mp", 24, Schedule::Seeded(seed), Some(PAGING), move |rig| {
                let first = rig.vm.file_blocks().start;
                let file = rig.vm.file_object((first..first + 4).collect()).unwrap();
                let two = Rc::new(Two::filled(rig, file, 0..4));
                let (mine, theirs) = (two.clone(), two.clone());
                rig.together(vec![
                    Box::new(move |rig| {
                        // The other one has to begin.
                        rig.m.spin_until(&mut || rig.counter(VmCounter::DiskRequests) > 0);
                        while let Err(e) = mine.push(rig, 2, 1, how) {
                            assert_eq!(e, VmError::Busy);
                            let got = rig.load(&mine.a, mine.at, 4 * PAGE).unwrap();
                            assert!(got == pattern(2, 4 * PAGE), "the private mapping has what it had");
                            refused.set(refused.get() + 1);
                        }
                        rig.leave(0);
                    }),
                    Box::new(move |rig| rig.vm.clean_file(rig.t(), &theirs.object).unwrap()),
                ]);
                rig.check();
                assert!(two.shared(rig) == pushed_in_place(2));
                let (mine, ins) = (two.clone(), rig.counter(VmCounter::PageIns));
                let requests = rig.counter(VmCounter::DiskRequests);
                rig.together(vec![
                    Box::new(move |rig| {
                        rig.m.spin_until(&mut || rig.counter(VmCounter::DiskRequests) > requests);
                        assert_eq!(mine.push(rig, 1, 1, how), Ok(1));
                        rig.leave(0);
                    }),
                    Box::new(|rig| {
                        rig.vm.reclaim(rig.t());
                    }),
                ]);
                rig.check();
                waited.set(waited.get() + (rig.counter(VmCounter::PageIns) - ins));
                let mut expected = pushed_in_place(2);
                expected[PAGE..2 * PAGE].copy_from_slice(&pattern(2, 2 * PAGE)[PAGE..]);
                assert!(two.shared(rig) == expected);
                assert!(two.private(rig) == pattern(2, 4 * PAGE));
                let two = Rc::into_inner(two).expect("the jobs are done");
                rig.exit(two.a);
                rig.exit(two.b);
                rig.vm.end_file(&two.object).unwrap();
            });
        }
    }
    assert!(refused.get() > 0, "the object's page was never on its way");
    assert!(waited.get() > 0, "the anon's page was never on its way");
}

/// What the object has when its page `page` is that of a private mapping all of whose pages are its own.
fn pushed_in_place(page: usize) -> Vec<u8> {
    let mut bytes = pattern(1, 4 * PAGE);
    bytes[page * PAGE..][..PAGE].copy_from_slice(&pattern(2, 4 * PAGE)[page * PAGE..][..PAGE]);
    bytes
}
