//! Raw requests of a disk from the caller to the disk's thread and back: hand-offs, buffers of any alignment, many
//! callers, ends, want of memory; and the defects that these would not survive.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::{RunError, Schedule};
use pageferry_vm::MapAddr;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const SECTOR: usize = 512;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn with_disk(u: &U, pages: usize, work: impl FnOnce(Fd)) {
    u.attach_memory_disk((pages * PAGE) as u64).unwrap();
    let fd = u.open("/dev/md0", RW).unwrap();
    work(fd);
    u.close(fd).unwrap();
    u.detach_memory_disk().unwrap();
}

fn loaded(u: &U, at: Va, len: usize) -> Vec<u8> {
    let mut got = vec![0; len];
    u.load(at, &mut got);
    got
}

/// Caller, `g_down`, the disk's thread, `g_up`, caller: a request is handed over four times, whatever its length up to
/// the limit of one, and each thread sleeps again.
#[test]
fn a_request_is_handed_over_four_times() {
    for (len, requests) in [(PAGE, 1), (16 * PAGE, 1), (32 * PAGE, 1), (33 * PAGE, 2), (96 * PAGE, 3)] {
        run("xeon-up", Schedule::Timed, sf_buf(256), move |u| {
            with_disk(u, 96, |fd| {
                let at = map(u, len);
                u.store(at, &bytes(1, 0, len));
                // The threads have not run before.
                assert_eq!(u.write(fd, at, len), Ok(len));
                u.seek(fd, 0).unwrap();
                let of = |u: &U| {
                    let now = u.machine().snapshot();
                    [KernelCounter::Sleeps, KernelCounter::Wakeups, KernelCounter::Switches]
                        .map(|counter| now.counter(counter.metric()))
                };
                let before = of(u);
                assert_eq!(u.read(fd, at, len), Ok(len));
                let after = of(u);
                let counts = [0, 1, 2].map(|i| after[i] - before[i]);
                assert_eq!(counts, [4 * requests; 3], "{len} bytes: sleeps, wakeups, switches");
            });
        });
    }
}

/// Reads and writes at random of sectors at random, from buffers of any alignment, beside a plain copy of what the disk
/// holds. Each process has a part of the disk, and all go on at once.
fn at_random(u: &U, seed: u64, (part, pages): (usize, usize), rounds: usize) {
    let fd = u.open("/dev/md0", RW).unwrap();
    let (begin, len) = (part * pages * PAGE, pages * PAGE);
    let mut expected = vec![0; len];
    let buffer = map(u, len + PAGE);
    let mut state = seed * 31 + part as u64;
    let mut below = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    for round in 0..rounds {
        let from = below(len / SECTOR) * SECTOR;
        let count = (1 + below((len - from) / SECTOR)) * SECTOR;
        let at = buffer + below(PAGE);
        u.seek(fd, (begin + from) as u64).unwrap();
        if below(2) == 0 {
            let new = bytes(seed + round as u64, from, count);
            u.store(at, &new);
            assert_eq!(u.write(fd, at, count), Ok(count));
            expected[from..from + count].copy_from_slice(&new);
        } else {
            assert_eq!(u.read(fd, at, count), Ok(count));
            assert!(loaded(u, at, count) == expected[from..from + count], "part {part}, round {round}");
        }
    }
    u.close(fd).unwrap();
}

#[test]
fn callers_at_once_get_what_they_wrote() {
    const PARTS: usize = 3;
    for (what, name, config) in kernels() {
        for seed in 0..3 {
            let schedule = if seed == 0 { Schedule::Timed } else { Schedule::Seeded(seed) };
            println!("{what}, {schedule}");
            run(name, schedule, config, move |u| {
                with_disk(u, PARTS * 40, |_| {
                    for part in 0..PARTS {
                        fork(u, "caller", move |u| at_random(u, seed, (part, 40), 12));
                    }
                    for _ in 0..PARTS {
                        u.wait().unwrap();
                    }
                });
            });
        }
    }
}

/// A disk goes and another comes while callers use whichever there is: each finds one, or none, or is told that it is
/// in use.
#[test]
fn disks_come_and_go() {
    for (_, name, config) in kernels() {
        run(name, Schedule::Seeded(7), config, |u| {
            for _ in 0..2 {
                fork(u, "maker", |u| {
                    for _ in 0..10 {
                        match u.attach_memory_disk(4 * PAGE as u64) {
                            Ok(()) | Err(Errno::Busy) => {}
                            other => panic!("{other:?}"),
                        }
                        match u.open("/dev/md0", RW) {
                            Ok(fd) => {
                                let at = map(u, PAGE);
                                assert_eq!(u.read(fd, at, PAGE), Ok(PAGE));
                                u.close(fd).unwrap();
                            }
                            Err(e) => assert_eq!(e, Errno::NoDevice),
                        }
                        match u.detach_memory_disk() {
                            Ok(()) | Err(Errno::Busy | Errno::NoDevice) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
            u.wait().unwrap();
            u.wait().unwrap();
        });
    }
}

/// A request that memory does not suffice for does what it can: the bytes before have moved, and the next call says
/// why.
#[test]
fn a_disk_larger_than_memory_takes_what_there_is_room_for() {
    run("xeon-mp", Schedule::Timed, original(), |u| {
        let free = u.kernel().vm().free_frames();
        with_disk(u, free, |fd| {
            let len = 64 * PAGE;
            let at = map(u, len);
            u.store(at, &bytes(3, 0, len));
            let mut written = 0;
            let last = loop {
                match u.write(fd, at, len) {
                    Ok(some) => written += some,
                    Err(e) => break e,
                }
            };
            assert_eq!(last, Errno::NoMemory);
            assert!(
                written > (free - 300) * PAGE && written.is_multiple_of(PAGE),
                "{written} of {free} pages"
            );
            u.seek(fd, 0).unwrap();
            for begin in (0..written).step_by(len) {
                let len = len.min(written - begin);
                assert_eq!(u.read(fd, at, len), Ok(len));
                assert!(loaded(u, at, len) == bytes(3, 0, len), "from {begin}");
            }
        });
    });
}

// ----------------------------------------------------------------------------------------------- defects

#[test]
fn an_answer_that_wakes_nobody_is_a_deadlock() {
    for (what, name, config) in kernels() {
        let defect = KernelDefect::DiskAnswerLost.into();
        let ended = try_run(name, Schedule::Timed, KernelConfig { defect, ..config }, |u| {
            with_disk(u, 4, |fd| {
                let at = map(u, PAGE);
                _ = u.read(fd, at, PAGE);
            });
        });
        assert!(matches!(ended.result, Err(RunError::Deadlock { .. })), "{what}: {:?}", ended.result);
        let sleepers = ended.kernel.expect("it booted").sleepers();
        assert!(sleepers.contains("init: physio"), "{what}: {sleepers}");
    }
}

/// What a disk reads where only some sectors of a page were written, in frames that others have used.
fn rest_of_a_page(config: KernelConfig) -> Vec<u8> {
    let got = Rc::new(RefCell::new(Vec::new()));
    let found = got.clone();
    run("xeon-up", Schedule::Timed, config, move |u| {
        let used = map(u, 64 * PAGE);
        u.store(used, &vec![0xee; 64 * PAGE]);
        u.unmap(used, 64 * PAGE).unwrap();
        with_disk(u, 32, |fd| {
            let at = map(u, PAGE);
            u.store(at, &[7; PAGE]);
            u.seek(fd, SECTOR as u64).unwrap();
            assert_eq!(u.write(fd, at, SECTOR), Ok(SECTOR));
            u.seek(fd, 0).unwrap();
            assert_eq!(u.read(fd, at, PAGE), Ok(PAGE));
            found.replace(loaded(u, at, PAGE));
        });
    });
    got.take()
}

#[test]
fn a_page_that_is_not_cleared_shows_old_bytes() {
    for config in [sf_buf(64), original()] {
        let mut expected = vec![0; PAGE];
        expected[SECTOR..2 * SECTOR].fill(7);
        assert_eq!(rest_of_a_page(config), expected);
        let defect = KernelDefect::DiskPageNotCleared.into();
        assert_ne!(rest_of_a_page(KernelConfig { defect, ..config }), expected);
    }
}

/// A process reads the disk into the pages of a file. While it sleeps for that another one truncates the file, takes
/// memory, and looks whether it keeps what is stored there; answers whether it does.
fn read_into_what_goes(seed: u64, config: KernelConfig) -> bool {
    const LEN: usize = 32 * PAGE;
    let kept = Rc::new(Cell::new(true));
    let found = kept.clone();
    let ended = try_run("xeon-mp", Schedule::Seeded(seed), config, move |u| {
        with_disk(u, 32, |disk| {
            let at = map(u, LEN);
            u.store(at, &bytes(5, 0, LEN));
            assert_eq!(u.write(disk, at, LEN), Ok(LEN));
            let file = u.open("f", OpenFlags::CREATE | RW).unwrap();
            for _ in 0..4 {
                u.truncate(file, LEN as u64).unwrap();
                let reader = fork(u, "reader", move |u| {
                    let own = u.map_file(file, 0, MapAddr::Anywhere, LEN, Prot::RW, true).unwrap();
                    u.store(own, &vec![1; LEN]);
                    u.seek(disk, 0).unwrap();
                    assert_eq!(u.read(disk, own, LEN), Ok(LEN));
                });
                until_asleep(u, reader);
                u.truncate(file, 0).unwrap();
                let taken = map(u, LEN);
                u.store(taken, &bytes(6, 0, LEN));
                u.wait().unwrap();
                found.set(found.get() && loaded(u, taken, LEN) == bytes(6, 0, LEN));
                u.unmap(taken, LEN).unwrap();
            }
            u.close(file).unwrap();
            u.unlink("f").unwrap();
        });
    });
    let sound = ended.result.is_ok() && ended.kernel.is_some_and(|kernel| kernel.check_quiescent().is_ok());
    sound && kept.get()
}

#[test]
fn a_buffer_that_is_not_wired_is_written_when_others_have_it() {
    for config in [sf_buf(64), original()] {
        assert!((0..6).all(|seed| read_into_what_goes(seed, config)));
        let defect = KernelDefect::BufferNotWired.into();
        let broken = KernelConfig { defect, ..config };
        assert!((0..6).any(|seed| !read_into_what_goes(seed, broken)));
    }
}
