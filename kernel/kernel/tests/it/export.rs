//! Export and import: which process may have what, in which mode, how often, and what is left when something goes wrong
//! or one exits at any point.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::{Inherit, PassMode};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const MODES: [PassMode; 4] = [PassMode::Share, PassMode::Copy, PassMode::Donate, PassMode::DonateZero];

/// What processes tell each other outside of the kernel.
type Slot<T> = Rc<RefCell<Option<T>>>;

fn wait_for<T>(u: &U, slot: &Slot<T>) -> T {
    loop {
        if let Some(value) = slot.borrow_mut().take() {
            return value;
        }
        u.yield_now().expect("alive");
        u.compute(Instructions(100));
    }
}

fn load(u: &U, at: Va, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    u.load(at, &mut buf);
    buf
}

fn is_donation(mode: PassMode) -> bool {
    matches!(mode, PassMode::Donate | PassMode::DonateZero)
}

/// The laws, where no other CPU can be in the middle of something.
fn check(u: &U) {
    if u.machine().board().cpus == 1 {
        u.kernel().check().unwrap();
    }
}

/// Eight pages: three used, one hole, two used, two never touched.
fn prepare(u: &U) -> Va {
    let at = map(u, 8 * PAGE);
    u.store(at, &bytes(7, 0, 6 * PAGE));
    u.unmap(at + 3 * PAGE, PAGE).unwrap();
    at
}

/// Pages 1 to 6 of what [`prepare`] made: clipped at both ends, with the hole inside.
fn expected() -> [Option<Vec<u8>>; 6] {
    let page = |n: usize| Some(bytes(7, n * PAGE, PAGE));
    [page(1), page(2), None, page(4), page(5), Some(vec![0; PAGE])]
}

fn see(u: &U, at: Va) {
    for (i, page) in expected().iter().enumerate() {
        if let Some(page) = page {
            assert!(load(u, at + i * PAGE, PAGE) == *page, "page {i}");
        }
    }
}

#[test]
fn four_modes_over_holes_entries_and_clipped_ends() {
    for mode in MODES {
        for name in ["xeon-up", "xeon-mp", "opteron-mp"] {
            let ids: Slot<ExportId> = Slot::default();
            let done: Slot<()> = Slot::default();
            run(name, Schedule::Timed, sf_buf(16), move |u| {
                let (their_ids, their_done) = (ids.clone(), done.clone());
                let child = fork(u, "importer", move |u| {
                    let id = wait_for(u, &their_ids);
                    let got = u.import(id, None).expect("imported");
                    assert_eq!(got.len_bytes, 6 * PAGE);
                    see(u, got.at);
                    u.store(got.at + 10, b"importer");
                    let again = u.import(id, None);
                    if is_donation(mode) {
                        assert_eq!(again, Err(Errno::Removed), "a donation is imported once");
                    } else {
                        let again = again.expect("imported again");
                        let seen = load(u, again.at + 10, 8) == b"importer";
                        assert_eq!(seen, mode == PassMode::Share);
                    }
                    their_done.replace(Some(()));
                });
                let at = prepare(u);
                let id = u.export(at + PAGE, 6 * PAGE, mode, ExportTo::Process(child)).unwrap();
                see(u, at + PAGE);
                ids.replace(Some(id));
                wait_for(u, &done);
                check(u);
                let seen = match mode {
                    PassMode::Share => b"importer".to_vec(),
                    PassMode::Copy => bytes(7, PAGE + 10, 8),
                    PassMode::DonateZero => vec![0; 8],
                    PassMode::Donate => Vec::new(),
                };
                if mode == PassMode::Donate {
                    // Nothing is mapped there any more.
                    assert_eq!(u.export(at + PAGE, 6 * PAGE, mode, ExportTo::Anyone), Err(Errno::Fault));
                } else {
                    assert_eq!(load(u, at + PAGE + 10, 8), seen, "{mode:?}");
                }
                // What lies beside the range stays the exporter's.
                assert!(
                    load(u, at, PAGE) == bytes(7, 0, PAGE) && load(u, at + 7 * PAGE, PAGE) == vec![0; PAGE]
                );
                let taken_back = u.withdraw(id);
                assert_eq!(taken_back, if is_donation(mode) { Err(Errno::Removed) } else { Ok(()) });
                u.wait().unwrap();
            });
        }
    }
}

#[test]
fn who_may_not_gets_nothing() {
    run("xeon-mp", Schedule::Timed, sf_buf(16), |u| {
        let at = prepare(u);
        let to = ExportTo::Process(Pid(4711));
        let id = u.export(at, PAGE, PassMode::Donate, to).unwrap();
        let anyone = u.export(at, PAGE, PassMode::Share, ExportTo::Anyone).unwrap();
        assert_eq!(u.import(id, None), Err(Errno::Access), "not even its maker");
        fork(u, "stranger", move |u| {
            assert_eq!(u.import(id, None), Err(Errno::Access));
            assert_eq!(u.withdraw(id), Err(Errno::Access));
            assert_eq!(u.withdraw(anyone), Err(Errno::Access));
            assert_eq!(u.import(ExportId(99), None), Err(Errno::Invalid), "never given out");
            assert_eq!(u.import(ExportId(0), None), Err(Errno::Invalid));
            u.import(anyone, None).expect("anyone may");
        });
        u.wait().unwrap();
        assert!(load(u, at, PAGE) == bytes(7, 0, PAGE));
        u.withdraw(id).unwrap();
        assert_eq!((u.import(id, None), u.withdraw(id)), (Err(Errno::Removed), Err(Errno::Removed)));
        u.import(anyone, None).expect("also its maker");
    });
}

#[test]
fn bad_arguments_change_nothing() {
    run("xeon-up", Schedule::Timed, sf_buf(16), |u| {
        let at = prepare(u);
        let export = |at, len| u.export(at, len, PassMode::Donate, ExportTo::Anyone);
        assert_eq!(export(at, 0), Err(Errno::Invalid));
        assert_eq!(export(at + 8, PAGE), Err(Errno::Invalid));
        assert_eq!(export(at + 3 * PAGE, PAGE), Err(Errno::Fault), "a hole");
        assert_eq!(export(Va(u64::MAX - 4095), 2 * PAGE), Err(Errno::Fault), "it wraps");
        assert_eq!(export(at, usize::MAX), Err(Errno::Fault));
        assert_eq!(export(Va(0xc000_0000), PAGE), Err(Errno::Fault), "the kernel's");
        let id = export(at, 3 * PAGE).unwrap();
        assert_eq!(u.import(id, Some(at + 4 * PAGE)), Err(Errno::Invalid), "in use");
        assert_eq!(u.import(id, Some(at + 5)), Err(Errno::Invalid), "not aligned");
        assert_eq!(u.import(id, Some(Va(0xc000_0000))), Err(Errno::NoMemory), "the kernel's");
        assert!(load(u, at, 3 * PAGE) == bytes(7, 0, 3 * PAGE));
        // It still stands, and goes to the address that is given.
        let free = at + 64 * PAGE;
        assert_eq!(u.import(id, Some(free)), Ok(Imported { at: free, len_bytes: 3 * PAGE }));
        assert!(load(u, free, 3 * PAGE) == bytes(7, 0, 3 * PAGE));
        // What was unmapped since cannot be had; the offer stays.
        let id = u.export(at + 4 * PAGE, PAGE, PassMode::Share, ExportTo::Anyone).unwrap();
        u.unmap(at + 4 * PAGE, PAGE).unwrap();
        assert_eq!(u.import(id, None), Err(Errno::Fault));
        u.withdraw(id).unwrap();
        // A part of a page is a page.
        let id = u.export(at + 5 * PAGE, 9, PassMode::Copy, ExportTo::Anyone).unwrap();
        assert_eq!(u.import(id, None).map(|i| i.len_bytes), Ok(PAGE));
        let mut made = 1;
        while u.export(at + 5 * PAGE, PAGE, PassMode::Copy, ExportTo::Anyone).is_ok() {
            made += 1;
        }
        assert_eq!(made, MAX_EXPORTS);
    });
}

#[test]
fn every_allocation_of_an_import_may_fail() {
    for mode in MODES {
        run("xeon-up", Schedule::Timed, sf_buf(16), move |u| {
            let at = prepare(u);
            let id = u.export(at + PAGE, 6 * PAGE, mode, ExportTo::Anyone).unwrap();
            let ids = Rc::new(Cell::new(0));
            let count = ids.clone();
            fork(u, "importer", move |u| {
                let vm = u.kernel().vm();
                for n in 0.. {
                    vm.fail_after(Some(n));
                    let imported = u.import(id, None);
                    let struck = !vm.failure_pending();
                    vm.fail_after(None);
                    check(u);
                    if !struck {
                        see(u, imported.unwrap().at);
                        count.set(n);
                        break;
                    }
                    assert_eq!(imported, Err(Errno::NoMemory), "{mode:?}, allocation {n}");
                }
            });
            u.wait().unwrap();
            assert!(ids.get() >= 4, "{mode:?}: {} allocations", ids.get());
        });
    }
}

/// A donation that many want at once is imported by one.
#[test]
fn one_of_many_gets_a_donation() {
    for seed in 0..30 {
        let winners = Rc::new(Cell::new(0));
        let count = winners.clone();
        run("xeon-mp-htt", Schedule::Seeded(seed), sf_buf(16), move |u| {
            let at = prepare(u);
            let mode = if seed % 2 == 0 { PassMode::Donate } else { PassMode::DonateZero };
            let id = u.export(at, 3 * PAGE, mode, ExportTo::Anyone).unwrap();
            for _ in 0..4 {
                let count = count.clone();
                fork(u, "importer", move |u| match u.import(id, None) {
                    Ok(got) => {
                        assert!(load(u, got.at, 3 * PAGE) == bytes(7, 0, 3 * PAGE));
                        count.set(count.get() + 1);
                    }
                    Err(e) => assert!(matches!(e, Errno::Busy | Errno::Removed), "{e}"),
                });
            }
            for _ in 0..4 {
                u.wait().unwrap();
            }
        });
        assert_eq!(winners.get(), 1, "seed {seed}");
    }
}

/// The maker, or the importer, is gone after any number of steps of the other.
#[test]
fn exit_at_any_point_gives_everything_back() {
    for mode in MODES {
        for seed in 0..40 {
            let ids: Slot<ExportId> = Slot::default();
            run("xeon-mp", Schedule::Seeded(seed), sf_buf(16), move |u| {
                let theirs = ids.clone();
                fork(u, "maker", move |u| {
                    let at = prepare(u);
                    let id = u.export(at + PAGE, 6 * PAGE, mode, ExportTo::Anyone).unwrap();
                    // Offers that are not imported go with their maker.
                    u.export(at, PAGE, PassMode::Share, ExportTo::Anyone).unwrap();
                    theirs.replace(Some(id));
                    u.compute(Instructions(1 + (seed as u32 % 8) * 200));
                });
                let id = wait_for(u, &ids);
                match u.import(id, None) {
                    Ok(got) => see(u, got.at),
                    Err(e) => assert!(matches!(e, Errno::Removed | Errno::Fault), "{e}"),
                }
                u.wait().unwrap();
                assert_eq!(u.import(id, None), Err(Errno::Removed), "its maker has exited");
            });
        }
    }
}

#[test]
fn a_parent_reads_and_writes_its_childs_memory() {
    for name in ["xeon-up", "opteron-mp"] {
        let ready: Slot<()> = Slot::default();
        let done: Slot<()> = Slot::default();
        run(name, Schedule::Timed, sf_buf(16), move |u| {
            const LEN: usize = 40 * PAGE;
            let theirs = map(u, LEN);
            u.store(theirs, &bytes(3, 0, LEN));
            let own = map(u, LEN);
            let (start, finish) = (ready.clone(), done.clone());
            let child = fork(u, "child", move |u| {
                u.protect(theirs, LEN, Prot::READ).unwrap();
                u.unmap(theirs + 38 * PAGE, 2 * PAGE).unwrap();
                start.replace(Some(()));
                wait_for(u, &finish);
                assert_eq!(load(u, theirs + 100, 6), b"poked!");
                assert_eq!(u.ptrace_read(Pid(1), theirs, own, 1), Err(Errno::Access), "not its child");
            });
            wait_for(u, &ready);
            // More than a quick reference takes at a time, over unaligned borders.
            assert_eq!(u.ptrace_read(child, theirs + 77, own + 5, 30 * PAGE), Ok(30 * PAGE));
            assert!(load(u, own + 5, 30 * PAGE) == bytes(3, 77, 30 * PAGE));
            u.store(own, b"poked!");
            assert_eq!(u.ptrace_write(child, theirs + 100, own, 6), Ok(6), "read-only or not");
            assert_eq!(load(u, theirs + 100, 6), bytes(3, 100, 6), "the parent's copy is its own");
            assert_eq!(u.ptrace_read(child, theirs, own, 0), Ok(0));
            assert_eq!(u.ptrace_read(child, theirs + 38 * PAGE, own, 1), Err(Errno::Fault));
            assert_eq!(u.ptrace_read(child, Va(u64::MAX), own, 2), Err(Errno::Fault));
            assert_eq!(u.ptrace_read(child, theirs, Va(u64::MAX), 2), Err(Errno::Fault));
            assert_eq!(
                u.ptrace_read(u.pid(), theirs, own, 1),
                Err(Errno::Access),
                "no process is its own child"
            );
            assert_eq!(u.ptrace_read(Pid(99), theirs, own, 1), Err(Errno::NoProcess));
            check(u);
            done.replace(Some(()));
            u.wait().unwrap();
            assert_eq!(u.ptrace_read(child, theirs, own, 1), Err(Errno::NoProcess), "it has exited");
        });
    }
}

#[test]
fn exported_memory_outlives_a_fork_of_its_maker() {
    run("xeon-mp", Schedule::Timed, sf_buf(16), |u| {
        let at = prepare(u);
        let id = u.export(at, PAGE, PassMode::Donate, ExportTo::Anyone).unwrap();
        fork(u, "child", move |u| {
            let got = u.import(id, None).unwrap();
            assert!(load(u, got.at, PAGE) == bytes(7, 0, PAGE));
            assert!(load(u, at, PAGE) == bytes(7, 0, PAGE), "what it inherited is still its own");
        });
        u.wait().unwrap();
        let shared = u.map(PAGE, Prot::RW, Inherit::Share).unwrap();
        let id = u.export(shared, PAGE, PassMode::Copy, ExportTo::Anyone).unwrap();
        u.store(shared, b"before");
        let got = u.import(id, None).unwrap();
        u.store(shared, b"after!");
        assert_eq!(load(u, got.at, 6), b"before", "a copy of shared memory is a snapshot");
    });
}

/// Pages lent from one process to another: both have them, and each its own once it writes (UVM paper, 4.1.3).
#[test]
fn pages_are_lent_from_process_to_process() {
    for (name, schedule) in
        [("xeon-up", Schedule::Timed), ("xeon-mp-htt", Schedule::Timed), ("opteron-mp", Schedule::Seeded(4))]
    {
        run(name, schedule, sf_buf(64), |u| {
            const LEN: usize = 4 * PAGE;
            let at = map(u, LEN);
            u.store(at, &bytes(1, 0, LEN));
            let id = u.export_loan(at, LEN, ExportTo::Anyone).unwrap();
            assert_eq!(u.export_loan(at, LEN - 1, ExportTo::Anyone), Err(Errno::Invalid));
            assert_eq!(u.export_loan(at + 1, PAGE, ExportTo::Anyone), Err(Errno::Invalid));
            let frames = |u: &U, at: Va| {
                [0, 1, 2, 3].map(|page: usize| u.machine().inspect(|| u.frame_behind(at + page * PAGE)))
            };
            let lent = frames(u, at);
            for round in 0..2 {
                fork(u, "borrower", move |u| {
                    // With an address given, and in the transfer area.
                    let to = (round == 0).then(|| map(u, LEN));
                    let entries = u.space().entry_count(u.thread());
                    let got = u.import(id, to).unwrap();
                    assert_eq!(got.len_bytes, LEN);
                    assert!(
                        to.is_none() || (to == Some(got.at) && u.space().entry_count(u.thread()) == entries)
                    );
                    assert!(load(u, got.at, LEN) == bytes(1, 0, LEN));
                    assert_eq!(frames(u, got.at), lent, "no byte was copied");
                    u.store(got.at + PAGE, b"mine");
                    assert_ne!(frames(u, got.at)[1], lent[1]);
                    assert!(load(u, got.at, PAGE) == bytes(1, 0, PAGE));
                    check(u);
                    if round == 1 {
                        u.anflush(got.at, LEN).unwrap();
                        assert_eq!(u.import(id, Some(Va(5))), Err(Errno::Invalid));
                        assert_eq!(
                            u.import(id, Some(got.at + (1 << 24))),
                            Err(Errno::Fault),
                            "nothing is mapped there"
                        );
                    }
                });
                u.wait().unwrap();
            }
            assert!(load(u, at, LEN) == bytes(1, 0, LEN), "a borrower wrote to its own");
            // What is lent is what is there at that moment; a hole or a wired page is not lent.
            u.store(at, b"later");
            u.lock_memory(at, PAGE).unwrap();
            assert_eq!(u.import(id, None), Err(Errno::Busy));
            u.unlock_memory(at, PAGE).unwrap();
            let got = u.import(id, None).unwrap();
            assert_eq!(load(u, got.at, 5), b"later");
            u.anflush(got.at, LEN).unwrap();
            u.unmap(at + PAGE, PAGE).unwrap();
            assert_eq!(u.import(id, None), Err(Errno::Fault));
            check(u);
            // Nor is anything once it was taken back.
            u.withdraw(id).unwrap();
            assert_eq!(u.import(id, None), Err(Errno::Removed));
        });
    }
}

#[test]
fn every_allocation_of_a_borrower_may_fail() {
    run("xeon-up", Schedule::Timed, sf_buf(64), |u| {
        let object = map(u, 3 * PAGE);
        u.store(object, &bytes(2, 0, 3 * PAGE));
        let id = u.export_loan(object, 3 * PAGE, ExportTo::Process(u.pid())).unwrap();
        let mut failed = 0;
        for after in 0.. {
            u.kernel().vm().fail_after(Some(after));
            let got = u.import(id, None);
            let struck = !u.kernel().vm().failure_pending();
            u.kernel().vm().fail_after(None);
            check(u);
            match got {
                Ok(got) => {
                    assert!(load(u, got.at, 3 * PAGE) == bytes(2, 0, 3 * PAGE));
                    u.anflush(got.at, 3 * PAGE).unwrap();
                }
                Err(e) => {
                    assert_eq!(e, Errno::NoMemory);
                    failed += 1;
                }
            }
            if !struck {
                break;
            }
        }
        assert!(failed > 2, "{failed} allocations failed");
    });
}
