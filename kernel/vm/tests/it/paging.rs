//! Pages go to the disk and come back: anonymous memory through the swap area, with every sharer, borrower and lender
//! that an anon or a frame can have; and what happens when the area is full or the disk fails.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_vm::*;

const PAGE: usize = PAGE_SIZE;

fn each(body: impl Fn(&Rig) + Clone + 'static) {
    for machine in MACHINES {
        for schedule in [Schedule::Timed, Schedule::Seeded(11)] {
            let body = body.clone();
            with_paging(machine, 24, schedule, Some(PAGING), move |rig| body(rig));
        }
    }
}

/// Space with `pages` pages of pattern `tag`.
fn filled(rig: &Rig, pages: usize, tag: u8) -> (AddressSpace, Va) {
    let space = rig.vm.space().unwrap();
    let va = space.map(rig.t(), None, pages * PAGE, Prot::RW, Inherit::Copy).unwrap();
    rig.store(&space, va, &pattern(tag, pages * PAGE)).unwrap();
    (space, va)
}

fn expect(rig: &Rig, space: &AddressSpace, va: Va, bytes: &[u8]) {
    let got = rig.load(space, va, bytes.len()).unwrap();
    let at = got.iter().zip(bytes).position(|(a, b)| a != b);
    assert_eq!(at, None, "the byte at {at:?} differs");
}

/// Takes what can be taken, and sees that the free list has grown by exactly what is said.
fn reclaim(rig: &Rig) -> usize {
    let before = rig.vm.free_frames();
    let reclaimed = rig.vm.reclaim(rig.t());
    assert_eq!(rig.vm.free_frames(), before + reclaimed, "what counts as reclaimed is free");
    rig.check();
    reclaimed
}

#[test]
fn memory_goes_out_and_comes_back() {
    each(|rig| {
        let (s, va) = filled(rig, 20, 1);
        assert_eq!(reclaim(rig), 20);
        let swap = rig.vm.swap_census();
        assert_eq!((swap.free, swap.only), (492, 20));
        expect(rig, &s, va, &pattern(1, 20 * PAGE));
        rig.check();
        assert_eq!(rig.vm.swap_census().only, 0, "pages are in both places now");
        // Clean pages go without being written again.
        let wrote = rig.counter(VmCounter::PageOuts);
        assert_eq!(reclaim(rig), 20);
        assert_eq!(rig.counter(VmCounter::PageOuts), wrote);
        // A dirty one goes to a new slot, and the old one is free.
        rig.store(&s, va + 3 * PAGE, &[0xaa]).unwrap();
        assert_eq!(reclaim(rig), 1);
        assert_eq!(rig.counter(VmCounter::PageOuts), wrote + 1);
        assert_eq!(rig.vm.swap_census().free, 492);
        let mut expected = pattern(1, 20 * PAGE);
        expected[3 * PAGE] = 0xaa;
        expect(rig, &s, va, &expected);
        rig.exit(s);
        assert_eq!(rig.vm.swap_census().free, 512, "slots go with their anons");
    });
}

#[test]
fn clusters_go_in_one_request() {
    let mut paging = PAGING;
    paging.inactive_percent = 100;
    with_paging("xeon-up", 24, Schedule::Timed, Some(paging), |rig| {
        let (s, _) = filled(rig, 32, 2);
        let before = rig.counter(VmCounter::DiskRequests);
        assert_eq!(reclaim(rig), 32);
        assert_eq!(rig.counter(VmCounter::DiskRequests) - before, 4, "eight pages a request");
        rig.exit(s);
        assert_eq!(rig.vm.swap_census().free, 512);
    });
}

#[test]
fn a_used_page_has_a_second_chance() {
    let mut paging = PAGING;
    paging.inactive_percent = 100;
    paging.free_target_pages = 60;
    with_paging("xeon-up", 24, Schedule::Timed, Some(paging), move |rig| {
        let (s, va) = filled(rig, 24, 3);
        // So many are wanted as were not used.
        let hoard = rig.hoard(60 - 21);
        // All become inactive; then three are used.
        s.advise(rig.t(), va, 24 * PAGE, Madvise::DontNeed).unwrap();
        for page in [5, 9, 10] {
            rig.load(&s, va + page * PAGE, 1).unwrap();
        }
        let before = rig.counter(VmCounter::PageIns);
        assert_eq!(rig.vm.reclaim(rig.t()), 21);
        for page in [5, 9, 10] {
            rig.load(&s, va + page * PAGE, 1).unwrap();
        }
        assert_eq!(rig.counter(VmCounter::PageIns), before, "the used ones stayed");
        rig.load(&s, va, 1).unwrap();
        assert_eq!(rig.counter(VmCounter::PageIns), before + 1);
        rig.exit(s);
        rig.vm.free_kernel_pages(hoard);
    });
}

#[test]
fn fork_shares_what_is_out_and_writes_part() {
    each(|rig| {
        let (s, va) = filled(rig, 8, 4);
        reclaim(rig);
        let child = s.fork(rig.t()).unwrap();
        rig.check();
        rig.store(&child, va + PAGE, b"child").unwrap();
        rig.store(&s, va + PAGE, b"parent").unwrap();
        reclaim(rig);
        let grandchild = child.fork(rig.t()).unwrap();
        rig.store(&grandchild, va, b"grand").unwrap();
        reclaim(rig);
        let mut expected = pattern(4, 8 * PAGE);
        expected[PAGE..PAGE + 6].copy_from_slice(b"parent");
        expect(rig, &s, va, &expected);
        expected[PAGE..PAGE + 6].copy_from_slice(&pattern(4, PAGE + 6)[PAGE..]);
        expected[PAGE..PAGE + 5].copy_from_slice(b"child");
        expect(rig, &child, va, &expected);
        expected[..5].copy_from_slice(b"grand");
        expect(rig, &grandchild, va, &expected);
        [s, child, grandchild].into_iter().for_each(|s| rig.exit(s));
        assert_eq!(rig.vm.swap_census().free, 512);
    });
}

#[test]
fn pages_on_loan_to_the_kernel_stay_and_are_not_counted() {
    each(|rig| {
        let (s, va) = filled(rig, 6, 5);
        let loan = s.loan_to_kernel(rig.t(), va, 3 * PAGE).unwrap();
        let wired = s.wire(rig.t(), va + 3 * PAGE, PAGE, Prot::READ).unwrap();
        assert_eq!(reclaim(rig), 2);
        for (i, &frame) in loan.frames().iter().enumerate() {
            assert_eq!(rig.m.frame_bytes(frame), pattern(5, 6 * PAGE)[i * PAGE..][..PAGE]);
        }
        // A broken loan: the old frame is an orphan, which is nobody's to take; the new one is.
        rig.store(&s, va, b"new").unwrap();
        assert_eq!(reclaim(rig), 1);
        rig.vm.unwire(wired);
        rig.vm.unloan(loan);
        // The orphan was freed with its loan.
        assert_eq!(reclaim(rig), 3);
        let mut expected = pattern(5, 6 * PAGE);
        expected[..3].copy_from_slice(b"new");
        expect(rig, &s, va, &expected);
        rig.exit(s);
    });
}

#[test]
fn anons_on_loan_go_out_with_their_loan() {
    each(|rig| {
        let (s, va) = filled(rig, 4, 6);
        let (r, at) = filled(rig, 4, 7);
        let loan = s.loan_to_anons(rig.t(), va, 4 * PAGE).unwrap();
        assert_eq!(reclaim(rig), 8);
        rig.exit(s);
        rig.check();
        assert_eq!(rig.vm.swap_census().only, 8, "the borrower still has them");
        r.transfer_anons(rig.t(), Some(at), loan).unwrap();
        rig.check();
        expect(rig, &r, at, &pattern(6, 4 * PAGE));
        reclaim(rig);
        // Lending what is out brings it in.
        let again = r.loan_to_anons(rig.t(), at, 2 * PAGE).unwrap();
        let kernel = r.loan_to_kernel(rig.t(), at + 2 * PAGE, PAGE).unwrap();
        rig.check();
        rig.vm.unloan(kernel);
        rig.vm.release_anons(again);
        r.anflush(rig.t(), at, 4 * PAGE).unwrap();
        rig.exit(r);
        assert_eq!(rig.vm.swap_census().free, 512);
    });
}

#[test]
fn passing_and_transfer_over_pages_that_are_out() {
    each(|rig| {
        let (s, va) = filled(rig, 4, 8);
        let (r, at) = filled(rig, 4, 9);
        reclaim(rig);
        let to = pass(&s, &r, rig.t(), va, 2 * PAGE, None, PassMode::Copy).unwrap();
        let pages = rig.vm.kernel_pages(1).unwrap();
        r.transfer_pages(rig.t(), Some(at), pages).unwrap();
        rig.store(&r, at, &[1; PAGE]).unwrap();
        rig.store(&r, to, b"copy").unwrap();
        let gone = pass(&s, &r, rig.t(), va + 2 * PAGE, 2 * PAGE, None, PassMode::Donate).unwrap();
        rig.check();
        expect(rig, &r, gone, &pattern(8, 4 * PAGE)[2 * PAGE..]);
        expect(rig, &s, va, &pattern(8, 2 * PAGE));
        expect(rig, &r, at + PAGE, &pattern(9, 4 * PAGE)[PAGE..]);
        rig.exit(s);
        rig.exit(r);
        assert_eq!(rig.vm.swap_census().free, 512);
    });
}

#[test]
fn an_objects_page_on_loan_to_an_anon_becomes_the_anons_and_frees_nothing() {
    each(|rig| {
        let object = rig.vm.object(2, Backing::Zero).unwrap();
        let s = rig.vm.space().unwrap();
        let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: false };
        let va = s.map_object(rig.t(), None, 2 * PAGE, Prot::RW, Inherit::Share, mapped).unwrap();
        rig.store(&s, va, &pattern(1, 2 * PAGE)).unwrap();
        // Out and in: clean now, with a slot.
        assert_eq!(reclaim(rig), 2);
        rig.load(&s, va, 2 * PAGE).unwrap();
        let loan = s.loan_to_anons(rig.t(), va, 2 * PAGE).unwrap();
        // The object lets go of both, which frees nothing; the anons' pages go after that.
        let freed = reclaim(rig) + reclaim(rig);
        assert_eq!(freed, 2);
        assert_eq!(rig.vm.swap_census().only, 4, "object and anons have slots of their own");
        let (r, at) = filled(rig, 2, 3);
        r.transfer_anons(rig.t(), Some(at), loan).unwrap();
        rig.store(&s, va, b"lender").unwrap();
        expect(rig, &r, at, &pattern(1, 2 * PAGE));
        rig.exit(s);
        rig.exit(r);
        rig.vm.release_object(object);
        assert_eq!(rig.vm.swap_census().free, 512);
    });
}

#[test]
fn a_full_swap_area_keeps_what_it_cannot_take() {
    let mut paging = PAGING;
    paging.swap_pages = 10;
    with_paging("xeon-up", 24, Schedule::Timed, Some(paging), |rig| {
        let (s, va) = filled(rig, 30, 1);
        assert_eq!(reclaim(rig), 10);
        assert!(rig.counter(VmCounter::SwapFull) >= 20);
        assert_eq!(reclaim(rig), 0, "nothing more can go, and the daemon stops trying");
        expect(rig, &s, va, &pattern(1, 30 * PAGE));
        reclaim(rig);
        expect(rig, &s, va, &pattern(1, 30 * PAGE));
        rig.exit(s);
        assert_eq!(rig.vm.swap_census().free, 10);
    });
}

#[test]
fn what_the_disk_cannot_write_stays_and_its_slot_is_never_used_again() {
    each(|rig| {
        let (s, va) = filled(rig, 12, 1);
        rig.m.break_disk(2..4, true);
        let reclaimed = reclaim(rig);
        assert!(reclaimed >= 4, "{reclaimed}");
        for _ in 0..3 {
            reclaim(rig);
        }
        let bad = rig.vm.swap_census().bad;
        assert!((1..=2).contains(&bad), "{bad} slots are bad");
        rig.m.break_disk(2..4, false);
        expect(rig, &s, va, &pattern(1, 12 * PAGE));
        rig.exit(s);
        assert_eq!(rig.vm.swap_census().free, 512 - bad);
    });
}

#[test]
fn what_the_disk_cannot_read_is_an_error_of_its_own() {
    each(|rig| {
        let (s, va) = filled(rig, 3, 1);
        assert_eq!(reclaim(rig), 3);
        rig.m.break_disk(0..512, true);
        assert_eq!(rig.load(&s, va, 1), Err(VmError::Io));
        assert_eq!(s.loan_to_kernel(rig.t(), va, PAGE).err(), Some(VmError::Io));
        assert_eq!(s.wire(rig.t(), va, PAGE, Prot::READ).err(), Some(VmError::Io));
        rig.check();
        rig.m.break_disk(0..512, false);
        expect(rig, &s, va, &pattern(1, 3 * PAGE));
        rig.exit(s);
    });
}

#[test]
fn a_space_ends_while_its_pages_go_out_and_come_in() {
    for seed in 0..30 {
        with_paging("xeon-mp-htt", 24, Schedule::Seeded(seed), Some(PAGING), |rig| {
            let (s, va) = filled(rig, 24, 1);
            let (other, at) = filled(rig, 8, 2);
            let ending = s.clone();
            let toucher = other.clone();
            rig.together(vec![
                Box::new(move |rig| {
                    let _ = rig.load(&toucher, at, 8 * PAGE).unwrap();
                    let _ = rig.vm.reclaim(rig.t());
                    rig.leave(0);
                }),
                Box::new(move |rig| {
                    rig.vm.reclaim(rig.t());
                }),
                Box::new(move |rig| {
                    let _ = rig.load(&ending, va + 5 * PAGE, 9 * PAGE).unwrap();
                    rig.leave(2);
                    ending.terminate(rig.t());
                }),
            ]);
            rig.check();
            rig.exit(s);
            expect(rig, &other, at, &pattern(2, 8 * PAGE));
            rig.exit(other);
            assert_eq!(rig.vm.swap_census().free, 512);
        });
    }
}

/// Memory overcommitted four times: each CPU works on its own space, all pages again and again, and forks in between.
fn overcommit(machine: &'static str, schedule: Schedule, workers: usize, defect: Option<VmDefect>) {
    const PAGES: usize = 60;
    let mut paging = PAGING;
    paging.free_target_pages = 32;
    with_paging(machine, 24, schedule, Some(paging), move |rig| {
        rig.vm.plant(defect);
        let spaces: Vec<(AddressSpace, Va)> = (0..workers)
            .map(|_| {
                let s = rig.vm.space().unwrap();
                let va = s.map(rig.t(), None, PAGES * PAGE, Prot::RW, Inherit::Copy).unwrap();
                (s, va)
            })
            .collect();
        let hoard = rig.hoard(12 + 8 * workers + workers * PAGES / 4);
        let left = std::rc::Rc::new(std::cell::Cell::new(workers));
        let mut jobs: Vec<Job> = vec![Box::new(|rig| rig.vm.run_page_daemon(rig.t(), &|| 0))];
        for (i, (s, va)) in spaces.iter().cloned().enumerate() {
            let left = left.clone();
            jobs.push(Box::new(move |rig| {
                for round in 0..3u8 {
                    for page in 0..PAGES {
                        let at = va + page * PAGE;
                        if round > 0 {
                            let expected = pattern(i as u8 ^ (round - 1), PAGE);
                            assert!(rig.load(&s, at, PAGE).unwrap() == expected, "page {page} of {i}");
                        }
                        rig.store(&s, at, &pattern(i as u8 ^ round, PAGE)).unwrap();
                    }
                }
                rig.leave(i + 1);
                left.set(left.get() - 1);
                if left.get() == 0 {
                    rig.vm.stop_page_daemon(rig.t());
                }
            }));
        }
        rig.together(jobs);
        rig.check();
        assert!(rig.counter(VmCounter::PageOuts) > (workers * PAGES) as u64);
        assert!(rig.vm.free_frames() >= 4, "the daemon's reserve is kept");
        for (i, (s, va)) in spaces.into_iter().enumerate() {
            rig.vm.reclaim(rig.t());
            for page in (0..PAGES).step_by(7) {
                expect(rig, &s, va + page * PAGE, &pattern(i as u8 ^ 2, PAGE));
            }
            rig.exit(s);
        }
        rig.vm.free_kernel_pages(hoard);
        assert_eq!(rig.vm.swap_census().free, 512);
    });
}

#[test]
fn memory_is_overcommitted_four_times() {
    overcommit("xeon-mp", Schedule::Timed, 1, None);
    overcommit("xeon-mp-htt", Schedule::Timed, 3, None);
    for seed in 0..4 {
        overcommit("xeon-mp-htt", Schedule::Seeded(seed), 3, None);
        overcommit("opteron-mp", Schedule::Seeded(seed), 1, None);
    }
}

#[test]
fn a_daemon_that_waits_for_memory_is_found() {
    let defect = Some(VmDefect::DaemonWaitsForMemory);
    let waits = || overcommit("xeon-mp-htt", Schedule::Timed, 3, defect);
    let said = std::panic::catch_unwind(waits).expect_err("a daemon that waits for itself");
    let said = said.downcast_ref::<String>().expect("the text of the panic");
    assert!(said.contains("the page daemon waits for itself"), "{said}");
}

#[test]
fn a_devices_pages_are_mapped_as_they_are_and_never_taken() {
    each(|rig| {
        assert_eq!(rig.vm.device_object(0).err(), Some(VmError::Invalid));
        let device = rig.vm.device_object(3).unwrap();
        let s = rig.vm.space().unwrap();
        let mapped = |copy_on_write| Mapped { object: device.clone(), first_page: 0, copy_on_write };
        let va = s.map_object(rig.t(), None, 3 * PAGE, Prot::RW, Inherit::Share, mapped(false)).unwrap();
        let private = s.map_object(rig.t(), None, PAGE, Prot::RW, Inherit::Copy, mapped(true)).unwrap();
        assert_eq!(rig.load(&s, va, 3 * PAGE).unwrap(), vec![0; 3 * PAGE]);
        rig.store(&s, va, &pattern(1, 3 * PAGE)).unwrap();
        assert_eq!(reclaim(rig), 0);
        assert_eq!(s.loan_to_kernel(rig.t(), va, PAGE).err(), Some(VmError::Busy));
        assert_eq!(s.loan_to_anons(rig.t(), va, PAGE).err(), Some(VmError::Busy));
        let wired = s.wire(rig.t(), va, PAGE, Prot::RW).unwrap();
        assert_eq!(rig.m.frame_bytes(wired.frames()[0]), pattern(1, PAGE));
        rig.vm.unwire(wired);
        rig.store(&s, private, b"copied").unwrap();
        rig.store(&s, va, b"device").unwrap();
        let child = s.fork(rig.t()).unwrap();
        assert_eq!(rig.load(&child, va, 6).unwrap(), b"device");
        assert_eq!(rig.load(&child, private, 6).unwrap(), b"copied");
        rig.exit(s);
        rig.exit(child);
        rig.vm.release_object(device);
        assert_eq!(rig.vm.wired_frames(), 0);
    });
}

#[test]
fn shared_memory_objects_go_to_the_swap_area_too() {
    each(|rig| {
        let object = rig.vm.object(12, Backing::Zero).unwrap();
        let (a, b) = (rig.vm.space().unwrap(), rig.vm.space().unwrap());
        let mapped = || Mapped { object: object.clone(), first_page: 0, copy_on_write: false };
        let va = a.map_object(rig.t(), None, 12 * PAGE, Prot::RW, Inherit::Share, mapped()).unwrap();
        let vb = b.map_object(rig.t(), None, 12 * PAGE, Prot::RW, Inherit::Share, mapped()).unwrap();
        rig.store(&a, va, &pattern(1, 6 * PAGE)).unwrap();
        rig.load(&b, vb + 6 * PAGE, 6 * PAGE).unwrap();
        assert_eq!(reclaim(rig), 12);
        assert_eq!(rig.vm.swap_census().only, 6, "clear pages need no slot");
        rig.store(&b, vb + 2 * PAGE, b"from b").unwrap();
        let mut expected = pattern(1, 6 * PAGE);
        expected[2 * PAGE..2 * PAGE + 6].copy_from_slice(b"from b");
        expected.resize(12 * PAGE, 0);
        reclaim(rig);
        expect(rig, &a, va, &expected);
        rig.exit(a);
        rig.exit(b);
        reclaim(rig);
        rig.vm.release_object(object);
        assert_eq!(rig.vm.swap_census().free, 512);
    });
}

#[test]
fn several_work_while_one_reclaims_all_the_time() {
    for seed in 0..12 {
        with_paging("xeon-mp-htt", 24, Schedule::Seeded(seed), Some(PAGING), |rig| {
            const PAGES: usize = 6;
            let (s, va) = filled(rig, PAGES, 1);
            let mut jobs: Vec<Job> = vec![Box::new(|rig| {
                for _ in 0..6 {
                    rig.vm.reclaim(rig.t());
                }
            })];
            // Two threads write to bytes of their own in the same space; one lends, forks and copies.
            for cpu in 1..3 {
                let s = s.clone();
                jobs.push(Box::new(move |rig| {
                    for value in 1..=4u8 {
                        for page in 0..PAGES {
                            let at = va + page * PAGE + 1024 * cpu;
                            rig.store(&s, at, &[value]).unwrap();
                            assert_eq!(rig.load(&s, at, 1).unwrap(), [value], "a write of cpu{cpu} is lost");
                        }
                    }
                    rig.leave(cpu);
                }));
            }
            let lender = s.clone();
            jobs.push(Box::new(move |rig| {
                for _ in 0..3 {
                    let loan = lender.loan_to_kernel(rig.t(), va, 3 * PAGE).unwrap();
                    let lent: Vec<_> = loan.frames().iter().map(|&f| rig.m.frame_bytes(f)).collect();
                    let child = lender.fork(rig.t()).unwrap();
                    let snapshot = rig.load(&child, va + 3 * PAGE, PAGE).unwrap();
                    rig.store(&child, va + 3 * PAGE, b"child").unwrap();
                    let mut expected = snapshot;
                    expected[..5].copy_from_slice(b"child");
                    assert!(rig.load(&child, va + 3 * PAGE, PAGE).unwrap() == expected, "a copy changes");
                    let now: Vec<_> = loan.frames().iter().map(|&f| rig.m.frame_bytes(f)).collect();
                    assert!(lent == now, "what is lent stays as it is");
                    rig.vm.unloan(loan);
                    rig.leave(3);
                    child.terminate(rig.t());
                }
            }));
            rig.together(jobs);
            rig.check();
            for page in 0..PAGES {
                for cpu in 1..3 {
                    assert_eq!(rig.load(&s, va + page * PAGE + 1024 * cpu, 1).unwrap(), [4]);
                }
            }
            rig.exit(s);
            assert_eq!(rig.vm.swap_census().free, 512);
        });
    }
}
