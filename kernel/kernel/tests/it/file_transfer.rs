//! Files read by page transfer: whole pages go without a copy, everything else as by copy, and what was read stays.

use crate::common::*;
use crate::paging::{RW, each, file, load};
use crate::socket::rest_is_clear;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::{Madvise, MapAddr, VmCounter};
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;

/// Reads `len` bytes from `from` on by transfer, to an address or piece by piece to the transfer area.
fn read(u: &U, fd: Fd, from: usize, len: usize, to: Option<Va>) -> Vec<u8> {
    u.seek(fd, from as u64).unwrap();
    if let Some(at) = to {
        let got = u.receive_transfer(fd, to, len).unwrap();
        assert!(got.at == at || got == Received::default());
        return load(u, at, got.len_bytes);
    }
    let mut all = Vec::new();
    loop {
        let got = u.receive_transfer(fd, None, len - all.len()).unwrap();
        if got.len_bytes == 0 {
            return all;
        }
        all.extend(load(u, got.at, got.len_bytes));
        rest_is_clear(u, got.at, got.len_bytes);
        u.anflush(got.at, got.len_bytes.next_multiple_of(PAGE)).unwrap();
    }
}

#[test]
fn whole_pages_go_and_the_rest_is_copied() {
    each(|u| {
        let len = 6 * PAGE + 500;
        let fd = file(u, "f", 3, len);
        let at = map(u, 8 * PAGE);
        let moved = |from: usize, want: usize, to: Va| {
            let copied = || u.machine().snapshot().counter(KernelCounter::TransferBytesCopied) as usize;
            let before = copied();
            u.seek(fd, from as u64).unwrap();
            let got = u.receive_transfer(fd, Some(to), want).unwrap();
            assert!(load(u, to, got.len_bytes) == bytes(3, from, got.len_bytes));
            assert_eq!((got.at, got.donated_pages), (to, 0));
            assert_eq!(copied() - before, got.len_bytes - got.lent_pages * PAGE);
            u.kernel().check().unwrap();
            (got.len_bytes, got.lent_pages)
        };
        assert_eq!(moved(0, 8 * PAGE, at), (len, 6), "the last page is not whole");
        assert_eq!(moved(PAGE, 2 * PAGE, at + 3 * PAGE), (2 * PAGE, 2));
        assert_eq!(moved(100, 3 * PAGE, at + 100), (3 * PAGE, 2), "pages within, the same way into a page");
        assert_eq!(moved(100, 3 * PAGE, at), (3 * PAGE, 0), "no page there is a page here");
        assert_eq!(moved(0, PAGE - 1, at), (PAGE - 1, 0));
        u.seek(fd, len as u64).unwrap();
        assert_eq!(u.receive_transfer(fd, Some(at), PAGE), Ok(Received::default()), "the end of the file");
        assert_eq!(u.receive_transfer(fd, None, PAGE), Ok(Received::default()));
        u.seek(fd, 0).unwrap();
        let got = u.receive_transfer(fd, None, 3 * PAGE).unwrap();
        assert_eq!((got.len_bytes, got.lent_pages, got.donated_pages), (3 * PAGE, 3, 0));
        assert_eq!(u.read(fd, at, PAGE), Ok(PAGE), "the offset has moved");
        assert!(load(u, at, PAGE) == bytes(3, 3 * PAGE, PAGE));
        assert_eq!(u.seek(fd, 2 * PAGE as u64 + 7), Ok(()));
        let got = u.receive_transfer(fd, None, 3 * PAGE).unwrap();
        assert_eq!((got.len_bytes, got.donated_pages), (PAGE, 1), "what begins within a page is gathered");
        rest_is_clear(u, got.at, got.len_bytes);
    });
}

#[test]
fn bad_calls_are_refused() {
    each(|u| {
        let wo = {
            file(u, "f", 3, 2 * PAGE);
            u.open("f", OpenFlags::WRITE).unwrap()
        };
        let at = map(u, 2 * PAGE);
        assert_eq!(u.receive_transfer(wo, Some(at), PAGE), Err(Errno::BadFd));
        let fd = u.open("f", OpenFlags::READ).unwrap();
        assert_eq!(u.receive_transfer(fd, Some(Va(u64::MAX - 5)), PAGE), Err(Errno::Fault));
        u.unmap(at, 2 * PAGE).unwrap();
        assert_eq!(u.receive_transfer(fd, Some(at), PAGE), Err(Errno::Fault));
        let got = read(u, fd, 0, 2 * PAGE, None);
        assert!(got == bytes(3, 0, 2 * PAGE), "a call that is refused leaves the offset");
    });
}

/// Each of the two may write, and the file may be cut or end: neither sees the other's.
#[test]
fn what_was_read_is_the_readers_own() {
    each(|u| {
        let fd = file(u, "f", 3, 4 * PAGE);
        let (at, new) = (map(u, 4 * PAGE), map(u, PAGE));
        u.store(new, &bytes(4, 0, PAGE));
        let frame = |page: usize| u.machine().inspect(|| u.frame_behind(at + page * PAGE));
        let again = || read(u, fd, 0, 4 * PAGE, Some(at));
        assert!(again() == bytes(3, 0, 4 * PAGE));
        let shared = frame(0);
        u.store(at, b"mine");
        assert_ne!(frame(0), shared, "a write to a page of a file goes to another frame");
        assert!(again() == bytes(3, 0, 4 * PAGE), "the file never saw it");
        assert_eq!(frame(0), shared);

        u.seek(fd, PAGE as u64).unwrap();
        assert_eq!(u.write(fd, new, PAGE), Ok(PAGE));
        let va = u.map_file(fd, 0, MapAddr::Anywhere, 4 * PAGE, Prot::RW, true).unwrap();
        u.store(va + 2 * PAGE, b"theirs");
        u.kernel().check().unwrap();
        assert!(load(u, at, 4 * PAGE) == bytes(3, 0, 4 * PAGE), "what was written to the file later");
        let now = again();
        assert!(now[PAGE..2 * PAGE] == bytes(4, 0, PAGE) && now[2 * PAGE..].starts_with(b"theirs"));

        u.truncate(fd, PAGE as u64).unwrap();
        u.kernel().check().unwrap();
        assert!(load(u, at, 4 * PAGE) == now, "what was cut off");
        assert_eq!(again().len(), PAGE);
        u.unmap(va, 4 * PAGE).unwrap();
        u.close(fd).unwrap();
        u.unlink("f").unwrap();
        u.kernel().check().unwrap();
        assert!(load(u, at, 4 * PAGE) == now, "what was read of a file that is no more");
    });
}

/// A mapping may store behind the end of the file; a reader gets nothing of it.
#[test]
fn what_is_behind_the_end_is_nobody_elses() {
    each(|u| {
        let fd = file(u, "f", 3, PAGE + 10);
        let va = u.map_file(fd, 0, MapAddr::Anywhere, 2 * PAGE, Prot::RW, true).unwrap();
        u.store(va + PAGE + 10, b"secret");
        let at = map(u, 2 * PAGE);
        assert_eq!(read(u, fd, 0, 2 * PAGE, Some(at)).len(), PAGE + 10);
        assert_eq!(load(u, at + PAGE + 10, 6), [0; 6]);
        assert_eq!(read(u, fd, 0, 2 * PAGE, None).len(), PAGE + 10);
    });
}

#[test]
fn wired_pages_are_copied_there_and_here() {
    run("xeon-mp", Schedule::Timed, paging(sf_buf(64), 512), |u| {
        let fd = file(u, "f", 3, 4 * PAGE);
        let va = u.map_file(fd, 0, MapAddr::Anywhere, 4 * PAGE, Prot::READ, true).unwrap();
        let at = map(u, 4 * PAGE);
        let lent = || {
            u.seek(fd, 0).unwrap();
            let got = u.receive_transfer(fd, Some(at), 4 * PAGE).unwrap();
            assert!(load(u, at, 4 * PAGE) == bytes(3, 0, 4 * PAGE));
            u.kernel().check().unwrap();
            got.lent_pages
        };
        u.lock_memory(va + PAGE, PAGE).unwrap();
        assert_eq!(lent(), 0, "a page of the file is wired");
        u.unlock_memory(va + PAGE, PAGE).unwrap();
        u.lock_memory(at + 2 * PAGE, PAGE).unwrap();
        assert_eq!(lent(), 0, "a page of the buffer is wired");
        u.unlock_memory(at + 2 * PAGE, PAGE).unwrap();
        assert_eq!(lent(), 4);
        assert_eq!(u.unlink("f"), Ok(()));
    });
}

/// Unlike a mapping of the file, in a buffer that is read into again and again (UVM paper, 4.2.3).
#[test]
fn no_map_entry_is_cut() {
    each(|u| {
        let fd = file(u, "f", 3, 8 * PAGE);
        let at = map(u, 64 * PAGE);
        let entries = || u.space().entry_count(u.thread());
        let before = entries();
        for page in [3, 9, 30, 50] {
            assert!(read(u, fd, 0, 8 * PAGE, Some(at + page * PAGE)) == bytes(3, 0, 8 * PAGE));
        }
        assert_eq!(entries(), before);
        u.map_file(fd, 0, MapAddr::Replace(at + 20 * PAGE), 8 * PAGE, Prot::RW, false).unwrap();
        assert!(entries() > before, "a mapping cuts");
    });
}

#[test]
fn pages_on_the_disk_come_in_first() {
    run("xeon-mp", Schedule::Timed, paging(sf_buf(64), 512), |u| {
        let fd = file(u, "f", 5, 40 * PAGE);
        u.sync_file(fd).unwrap();
        let va = u.map_file(fd, 0, MapAddr::Anywhere, 40 * PAGE, Prot::READ, true).unwrap();
        u.advise(va, 40 * PAGE, Madvise::DontNeed).unwrap();
        let hoard = hoard(u, 4);
        u.kernel().vm().reclaim(u.thread());
        u.kernel().vm().free_kernel_pages(hoard);
        let requests = || u.machine().snapshot().counter(VmCounter::DiskRequests);
        let (before, at) = (requests(), map(u, 40 * PAGE));
        u.seek(fd, 0).unwrap();
        let got = u.receive_transfer(fd, Some(at), 40 * PAGE).unwrap();
        assert_eq!((got.len_bytes, got.lent_pages), (40 * PAGE, 40));
        assert!((1..=8).contains(&(requests() - before)), "nine at a time");
        assert!(load(u, at, 40 * PAGE) == bytes(5, 0, 40 * PAGE));
        u.unlink("f").unwrap();
    });
}

/// The reader keeps many pages of a file, with memory for a fraction of it: what it has goes to the swap area, whether
/// the file is on the disk yet or not.
#[test]
fn more_is_read_than_memory_holds() {
    for (name, schedule, synced) in [
        ("xeon-up", Schedule::Timed, true),
        ("xeon-up", Schedule::Timed, false),
        ("xeon-mp-htt", Schedule::Seeded(5), false),
    ] {
        more_than_memory(name, schedule, synced);
    }
}

fn more_than_memory(name: &str, schedule: Schedule, synced: bool) {
    run(name, schedule, paging(sf_buf(64), 2000), move |u| {
        let pages = 600;
        let fd = file(u, "f", 5, pages * PAGE);
        if synced {
            u.sync_file(fd).unwrap();
        }
        let at = map(u, pages * PAGE);
        let hoard = hoard(u, 200);
        assert!(read(u, fd, 0, pages * PAGE, Some(at)) == bytes(5, 0, pages * PAGE));
        u.truncate(fd, 0).unwrap();
        assert!(load(u, at, pages * PAGE) == bytes(5, 0, pages * PAGE), "and the file is gone meanwhile");
        u.kernel().vm().free_kernel_pages(hoard);
        u.unlink("f").unwrap();
    });
}

#[test]
fn no_memory_at_any_point_loses_nothing() {
    let struck = Rc::new(Cell::new(0));
    for area in [false, true] {
        let struck = struck.clone();
        run("xeon-up", Schedule::Timed, sf_buf(64), move |u| {
            let fd = file(u, "f", 3, 3 * PAGE + 50);
            let to = map(u, 4 * PAGE);
            for after in 0..60 {
                for from in [0, 50] {
                    u.store(to, &[9; 4 * PAGE]);
                    u.seek(fd, from as u64).unwrap();
                    u.kernel().vm().fail_after(Some(after));
                    let got = u.receive_transfer(fd, (!area).then_some(to), 3 * PAGE);
                    struck.set(struck.get() + usize::from(!u.kernel().vm().failure_pending()));
                    u.kernel().vm().fail_after(None);
                    u.kernel().check().unwrap();
                    let (at, len) = match got {
                        Ok(got) => (got.at, got.len_bytes),
                        Err(e) => {
                            assert_eq!(e, Errno::NoMemory);
                            (to, 0)
                        }
                    };
                    assert!(load(u, at, len) == bytes(3, from, len));
                    let rest = read(u, fd, from + len, 3 * PAGE - len, Some(to));
                    assert!(rest == bytes(3, from + len, rest.len()) && rest.len() + len == 3 * PAGE);
                    if area && len > 0 {
                        u.anflush(at, len.next_multiple_of(PAGE)).unwrap();
                    }
                }
            }
            u.unlink("f").unwrap();
        });
    }
    assert!(struck.get() > 8, "only {} allocations failed", struck.get());
}

/// Pages of a file that is written all the time: what a call reads is one state of the file, and stays.
#[test]
fn readers_and_a_writer_under_seeded_schedules() {
    for seed in 0..6 {
        run("xeon-mp-htt", Schedule::Seeded(seed), paging(sf_buf(8), 512), |u| {
            const PAGES: usize = 3;
            let _stays_open = file(u, "f", 0, PAGES * PAGE);
            for reader in 0..2 {
                fork(u, "reader", move |u| {
                    let fd = u.open("f", OpenFlags::READ).unwrap();
                    let at = map(u, PAGES * PAGE);
                    for round in 0..6 {
                        let got = read(u, fd, 0, PAGES * PAGE, Some(at));
                        let version = (0..8).find(|&v| got == bytes(v, 0, PAGES * PAGE));
                        assert!(version.is_some(), "reader {reader} sees two states at once");
                        if round % 2 == 0 {
                            u.store(at + PAGE, b"scribble");
                            assert_eq!(load(u, at + PAGE, 8), b"scribble");
                        }
                        u.yield_now().unwrap();
                        assert!(load(u, at, PAGE) == got[..PAGE], "what was read changes");
                    }
                });
            }
            let fd = u.open("f", RW).unwrap();
            let from = map(u, PAGES * PAGE);
            for version in 1..8 {
                u.store(from, &bytes(version, 0, PAGES * PAGE));
                u.seek(fd, 0).unwrap();
                assert_eq!(u.write(fd, from, PAGES * PAGE), Ok(PAGES * PAGE));
            }
            u.wait().unwrap();
            u.wait().unwrap();
            u.unlink("f").unwrap();
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Reading by transfer gives what reading by copy gives, whatever the places.
    #[test]
    fn any_place_any_length(
        size in 0usize..5 * PAGE,
        reads in prop::collection::vec(
            (0usize..5 * PAGE, 0usize..5 * PAGE, 0usize..PAGE, any::<bool>(), any::<bool>()),
            1..6,
        ),
    ) {
        run("opteron-mp", Schedule::Timed, sf_buf(64), move |u| {
            let fd = file(u, "f", 3, size);
            let buffer = map(u, 8 * PAGE);
            for (from, len, skew, agree, area) in reads {
                let to = buffer + if agree { from % PAGE } else { skew };
                let there = size.saturating_sub(from).min(len);
                let got = read(u, fd, from, len, (!area).then_some(to));
                assert!(got == bytes(3, from, there));
                u.kernel().check().unwrap();
            }
            u.unlink("f").unwrap();
        });
    }
}

#[test]
fn auto_takes_what_is_cheaper() {
    run("pentium-iii", Schedule::Timed, sockets(), |u| {
        u.measure_moves().unwrap();
        let fd = file(u, "f", 3, 256 * PAGE);
        let at = map(u, 256 * PAGE);
        u.seek(fd, 0).unwrap();
        let got = u.receive_auto(fd, at, 256 * PAGE).unwrap();
        assert_eq!((got.len_bytes, got.lent_pages), (256 * PAGE, 256), "a megabyte is lent");
        assert!(load(u, at, 256 * PAGE) == bytes(3, 0, 256 * PAGE));
        u.unlink("f").unwrap();
    });
}

/// Page by page written, and read by transfer at once: all that is in memory is dirty and on loan.
#[test]
fn what_is_written_and_lent_goes_to_the_disk_where_memory_is_short() {
    for (name, schedule) in [("xeon-up", Schedule::Timed), ("xeon-mp-htt", Schedule::Seeded(6))] {
        let ended = run(name, schedule, paging(sf_buf(64), 2000), |u| {
            let pages = 400;
            let (fd, from, at) = (file(u, "f", 5, 0), map(u, PAGE), map(u, pages * PAGE));
            let hoard = hoard(u, 120);
            for page in 0..pages {
                u.store(from, &bytes(5, page * PAGE, PAGE));
                u.seek(fd, (page * PAGE) as u64).unwrap();
                assert_eq!(u.write(fd, from, PAGE), Ok(PAGE), "page {page}");
                assert!(
                    read(u, fd, page * PAGE, PAGE, Some(at + page * PAGE)) == bytes(5, page * PAGE, PAGE)
                );
            }
            u.kernel().check().unwrap();
            assert!(load(u, at, pages * PAGE) == bytes(5, 0, pages * PAGE), "what was lent");
            assert!(read(u, fd, 0, pages * PAGE, None) == bytes(5, 0, pages * PAGE), "the file");
            u.kernel().vm().free_kernel_pages(hoard);
            u.unlink("f").unwrap();
        });
        assert!(ended.counter(VmCounter::PageOuts) > 300);
    }
}
