//! Files on the modelled disk, their mappings, and memory overcommitted: the payload is checked everywhere.

use crate::common::*;
use pageferry_ephemeral::Scheme;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::{Model, Schedule};
use pageferry_pmap::KernelMapping;
use pageferry_vm::{BufferHeads, Inherit, Madvise, MapAddr, PushDown, VmCounter};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
pub const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
pub const NEW: OpenFlags = RW.union(OpenFlags::CREATE);

/// On one and on four CPUs, with a mapping cache and with a direct map.
pub fn each(body: impl Fn(&U) + Clone + 'static) {
    for (name, config) in [
        ("xeon-up", paging(sf_buf(64), 512)),
        ("xeon-mp-htt", paging(sf_buf(8), 512)),
        ("opteron-mp", paging(with_scheme(Scheme::Direct), 512)),
        ("xeon-up", sf_buf(64)),
    ] {
        let body = body.clone();
        run(name, Schedule::Timed, config, move |u| {
            body(u);
            // Files outlive their processes; these do not.
            for name in ["a", "f", "g", "x"] {
                let _ = u.unlink(name);
            }
        });
    }
}

pub fn load(u: &U, from: Va, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    u.load(from, &mut buf);
    buf
}

/// Makes a file of `len` bytes of stream `seed`, open for both.
pub fn file(u: &U, name: &str, seed: u64, len: usize) -> Fd {
    let fd = u.open(name, NEW).unwrap();
    let at = map(u, len.max(1));
    u.store(at, &bytes(seed, 0, len));
    assert_eq!(u.write(fd, at, len), Ok(len));
    u.unmap(at, len.max(1)).unwrap();
    fd
}

#[test]
fn what_is_written_is_read() {
    each(|u| {
        let blocks = u.kernel().free_file_blocks();
        let len = 5 * PAGE + 777;
        let fd = file(u, "a", 1, len);
        assert_eq!(u.file_size(fd), Ok(len as u64));
        u.seek(fd, 0).unwrap();
        let at = map(u, 1 << 16);
        assert!(read_all(u, fd, at, 3000, 1 << 20) == bytes(1, 0, len));
        // Another descriptor has an offset of its own; a write in the middle leaves the rest.
        let other = u.open("a", RW).unwrap();
        u.seek(other, 5000).unwrap();
        u.store(at, &bytes(9, 0, 4000));
        assert_eq!(u.write(other, at, 4000), Ok(4000));
        let mut expected = bytes(1, 0, len);
        expected[5000..9000].copy_from_slice(&bytes(9, 0, 4000));
        u.seek(fd, 0).unwrap();
        assert!(read_all(u, fd, at, 70_000, 1 << 20) == expected);
        // A hole is clear, and so is what was cut off before.
        u.truncate(fd, 5000).unwrap();
        u.truncate(fd, 9000).unwrap();
        u.seek(fd, 0).unwrap();
        expected.truncate(5000);
        expected.resize(9000, 0);
        assert!(read_all(u, fd, at, 10_000, 1 << 20) == expected);
        u.close(other).unwrap();
        u.unlink("a").unwrap();
        assert_eq!(u.open("a", OpenFlags::READ), Err(Errno::NoFile));
        u.seek(fd, 4990).unwrap();
        assert_eq!(u.read(fd, at, 100), Ok(100), "an open file without a name can be read");
        u.close(fd).unwrap();
        assert_eq!(u.kernel().free_file_blocks(), blocks);
    });
}

/// The last page of the buffer is not there: a write from it stops, or fails, and the file ends where it stopped.
#[test]
fn a_write_that_stops_leaves_the_file_as_long_as_what_was_written() {
    each(|u| {
        let blocks = u.kernel().free_file_blocks();
        let len = PAGE + 100;
        let fd = file(u, "a", 1, len);
        let left = u.kernel().free_file_blocks();
        let at = map(u, 3 * PAGE);
        u.store(at, &bytes(7, 0, 2 * PAGE));
        u.unmap(at + 2 * PAGE, PAGE).unwrap();
        let gone = at + 2 * PAGE;
        // Nothing is written: at the end, in the middle, and far behind the end.
        for to in [len, 50, 5 * PAGE + 9] {
            u.seek(fd, to as u64).unwrap();
            assert_eq!(u.write(fd, gone, 3 * PAGE), Err(Errno::Fault));
            assert_eq!(u.file_size(fd), Ok(len as u64), "from byte {to}");
            assert_eq!(u.kernel().free_file_blocks(), left, "from byte {to}");
        }
        // Some of it is: within the file, which grows by nothing, and behind its end.
        u.seek(fd, 0).unwrap();
        assert_eq!(u.write(fd, at + (2 * PAGE - 60), 4 * PAGE), Ok(60));
        assert_eq!(u.file_size(fd), Ok(len as u64));
        u.seek(fd, len as u64).unwrap();
        assert_eq!(u.write(fd, at, 7 * PAGE), Ok(2 * PAGE));
        assert_eq!(u.file_size(fd), Ok((len + 2 * PAGE) as u64));
        assert_eq!(u.kernel().free_file_blocks(), left - 2);
        let mut expected = bytes(1, 0, len);
        expected[..60].copy_from_slice(&bytes(7, 2 * PAGE - 60, 60));
        expected.extend(bytes(7, 0, 2 * PAGE));
        let to = map(u, 1 << 16);
        u.seek(fd, 0).unwrap();
        assert!(read_all(u, fd, to, 9000, 1 << 20) == expected);
        // What is behind the end is clear when the file grows.
        u.truncate(fd, 4 * PAGE as u64).unwrap();
        expected.resize(4 * PAGE, 0);
        u.seek(fd, 0).unwrap();
        assert!(read_all(u, fd, to, 9000, 1 << 20) == expected);
        u.close(fd).unwrap();
        u.unlink("a").unwrap();
        assert_eq!(u.kernel().free_file_blocks(), blocks);
    });
}

#[test]
fn bad_calls_are_refused() {
    each(|u| {
        assert_eq!(u.open("", NEW), Err(Errno::Invalid));
        assert_eq!(u.open("x", RW), Err(Errno::NoFile));
        assert_eq!(u.open("x", OpenFlags::CREATE), Err(Errno::Invalid));
        assert_eq!(u.unlink("x"), Err(Errno::NoFile));
        let fd = file(u, "x", 1, 100);
        let ro = u.open("x", OpenFlags::READ).unwrap();
        let at = map(u, PAGE);
        assert_eq!(u.write(ro, at, 1), Err(Errno::BadFd));
        assert_eq!(u.truncate(ro, 0), Err(Errno::BadFd));
        let (r, _w) = u.pipe().unwrap();
        assert_eq!(u.seek(r, 0), Err(Errno::BadFd));
        let m = |fd, offset, len, prot, shared| u.map_file(fd, offset, MapAddr::Anywhere, len, prot, shared);
        assert_eq!(m(ro, 0, PAGE, Prot::RW, true), Err(Errno::Access));
        assert_eq!(m(fd, 100, PAGE, Prot::RW, true), Err(Errno::Invalid));
        assert_eq!(m(fd, 0, 0, Prot::RW, true), Err(Errno::Invalid));
        // What was mapped for reading of a file that is open for reading is never to be written.
        let va = m(ro, 0, PAGE, Prot::READ, true).unwrap();
        assert_eq!(u.protect(va, PAGE, Prot::RW), Err(Errno::Access));
        let private = m(ro, 0, PAGE, Prot::READ, false).unwrap();
        u.protect(private, PAGE, Prot::RW).unwrap();
        u.store(private, b"mine");
        assert_eq!(load(u, va, 4), bytes(1, 0, 4));
        assert_eq!(u.sync_memory(va + 1, PAGE), Err(Errno::Invalid));
        assert_eq!(u.sync_memory(Va(0x7000_0000), PAGE), Err(Errno::NoMemory));
        assert_eq!(u.lock_memory(Va(0x7000_0000), PAGE), Err(Errno::NoMemory));
        assert_eq!(u.advise(Va(0x7000_0000), PAGE, Madvise::WillNeed), Err(Errno::NoMemory));
        assert_eq!(u.truncate(fd, 1 << 50), Err(Errno::NoSpace));
        assert_eq!(u.file_size(fd), Ok(100));
    });
}

#[test]
fn a_shared_mapping_is_the_file_and_a_private_one_is_not() {
    each(|u| {
        let fd = file(u, "f", 2, 3 * PAGE);
        let shared = u.map_file(fd, 0, MapAddr::Anywhere, 3 * PAGE, Prot::RW, true).unwrap();
        let private = u.map_file(fd, PAGE as u64, MapAddr::Anywhere, 2 * PAGE, Prot::RW, false).unwrap();
        u.close(fd).unwrap();
        u.store(shared + 10, b"to all");
        u.store(private + 20, b"to me");
        u.store(shared + PAGE + 20, b"hidden");
        let child = fork(u, "child", move |u| {
            u.store(shared + 2 * PAGE, b"child");
            u.store(private + PAGE, b"its own");
        });
        assert_eq!(u.wait(), Ok(child));
        let fd = u.open("f", RW).unwrap();
        let mut expected = bytes(2, 0, 3 * PAGE);
        expected[10..16].copy_from_slice(b"to all");
        expected[PAGE + 20..PAGE + 26].copy_from_slice(b"hidden");
        expected[2 * PAGE..2 * PAGE + 5].copy_from_slice(b"child");
        let at = map(u, PAGE);
        assert!(read_all(u, fd, at, PAGE, 3 * PAGE) == expected);
        assert_eq!(load(u, private + 20, 5), b"to me");
        assert_eq!(load(u, private + PAGE, 5), b"child", "not promoted here: it sees the file");
        // The same page through `write`.
        u.store(at, b"written");
        u.seek(fd, 100).unwrap();
        u.write(fd, at, 7).unwrap();
        assert_eq!(load(u, shared + 100, 7), b"written");
    });
}

#[test]
fn sync_writes_what_is_dirty_once() {
    each(|u| {
        let fd = file(u, "f", 3, 4 * PAGE);
        let out = || u.machine().snapshot().counter(VmCounter::PageOuts);
        let va = u.map_file(fd, 0, MapAddr::Anywhere, 4 * PAGE, Prot::RW, true).unwrap();
        let before = out();
        u.sync_memory(va, 4 * PAGE).unwrap();
        assert_eq!(out() - before, 4, "written by `write`, not on the disk yet");
        u.sync_memory(va, 4 * PAGE).unwrap();
        assert_eq!(out() - before, 4, "all is clean");
        u.store(va + PAGE, b"dirty");
        u.sync_memory(va, PAGE).unwrap();
        assert_eq!(out() - before, 4, "not in the range");
        u.sync_memory(va, 4 * PAGE).unwrap();
        assert_eq!(out() - before, 5);
        // A page on loan is written, and stays on loan; a locked one is written and stays locked.
        let (to, from) = u.socket_pair().unwrap();
        u.store(va + 2 * PAGE, b"lent");
        assert_eq!(u.send(to, va + 2 * PAGE, PAGE, SendMode::Loan), Ok(PAGE));
        assert_eq!(u.machine().snapshot().counter(KernelCounter::PagesLent), 1);
        u.lock_memory(va + 3 * PAGE, PAGE).unwrap();
        u.store(va + 3 * PAGE, b"locked");
        u.sync_file(fd).unwrap();
        assert_eq!(out() - before, 7);
        u.store(va + 3 * PAGE, b"again");
        u.sync_file(fd).unwrap();
        assert_eq!(out() - before, 8);
        u.unlock_memory(va, 4 * PAGE).unwrap();
        let got = map(u, PAGE);
        assert_eq!(u.receive(from, got, PAGE), Ok(PAGE));
        assert!(load(u, got, PAGE) == load(u, va + 2 * PAGE, PAGE), "what was lent");
        let first = u.kernel().vm().file_blocks().start;
        let mut expected = bytes(3, PAGE, PAGE);
        expected[..5].copy_from_slice(b"dirty");
        assert!(u.machine().disk_block(first + 1) == expected, "the block on the disk");
    });
}

/// A request looks at the head of each of its blocks twice, when it is made and when it is done. Where a head has a
/// page of its own, and the kernel is mapped by pages, that is a miss each time.
#[test]
fn a_request_looks_at_the_heads_of_its_blocks() {
    on_named_machines!();
    // Their heads are more than a TLB has entries.
    const PAGES: usize = 64;
    let misses = |heads: Option<BufferHeads>| {
        let mut config = paging(sf_buf(64), 512);
        config.pmap.mapping = KernelMapping::Pages;
        let daemon = config.vm.paging.as_mut().expect("it has a page daemon");
        (daemon.heads, daemon.cluster_pages) = (heads, PAGES);
        let counted = Rc::new(Cell::new(0));
        let told = counted.clone();
        run("ppc603", Schedule::Timed, config, move |u| {
            let fd = file(u, "f", 4, PAGES * PAGE);
            let before = u.machine().snapshot();
            u.sync_file(fd).unwrap();
            let after = u.machine().snapshot();
            assert_eq!(after.counter(VmCounter::DiskRequests) - before.counter(VmCounter::DiskRequests), 1);
            told.set(after.since(&before).hardware.kernel_misses());
            u.close(fd).unwrap();
            u.unlink("f").unwrap();
        });
        counted.get()
    };
    let without = misses(None);
    for (block_bytes, blocks) in [(1024, 4 * PAGES), (PAGE / 2, 2 * PAGES)] {
        let with = misses(Some(BufferHeads { head_bytes: PAGE, block_bytes, buckets: 1 }));
        let more = with - without;
        // The table's page is there; what the heads displace is missed, too.
        let expected = 2 * blocks as u64..=2 * blocks as u64 + 64;
        assert!(expected.contains(&more), "{more} misses more by heads of {blocks} blocks");
    }
}

/// What comes over a socket goes to a private mapping of a file, and from there to the file: no byte is copied on the
/// way.
#[test]
fn what_is_received_in_a_private_mapping_is_pushed_down_to_the_file() {
    for how in [PushDown::Lend, PushDown::Give] {
        each(move |u| {
            let fd = file(u, "f", 1, 4 * PAGE);
            let private = u.map_file(fd, 0, MapAddr::Anywhere, 4 * PAGE, Prot::RW, false).unwrap();
            let (to, from) = u.socket_pair().unwrap();
            let sender = fork(u, "sender", move |u| {
                let at = map(u, 2 * PAGE);
                u.store(at, &bytes(2, 0, 2 * PAGE));
                assert_eq!(u.send(to, at, 2 * PAGE, SendMode::Loan), Ok(2 * PAGE));
            });
            let reader = fork(u, "reader", move |u| {
                let shared = u.map_file(fd, 0, MapAddr::Anywhere, 4 * PAGE, Prot::READ, true).unwrap();
                while load(u, shared + PAGE, 2 * PAGE) != bytes(2, 0, 2 * PAGE) {
                    assert!(load(u, shared, PAGE) == bytes(1, 0, PAGE));
                    u.yield_now().unwrap();
                }
            });
            let copied = || {
                let s = u.machine().snapshot();
                s.counter(VmCounter::CowCopies) + s.counter(KernelCounter::BytesCopied)
            };
            let mut got = 0;
            while got < 2 * PAGE {
                let at = Some(private + PAGE + got);
                let received = u.receive_transfer(from, at, 2 * PAGE - got).unwrap();
                assert_eq!(Some(received.at), at);
                got += received.len_bytes;
            }
            // Whose pages they were has them as long as it lives: till then they can be lent, not given.
            assert_eq!(u.wait(), Ok(sender));
            let before = copied();
            assert_eq!(u.push_down(fd, private, 4 * PAGE, how), Ok(2));
            assert_eq!(copied(), before);
            u.kernel().check().unwrap();
            assert_eq!(u.wait(), Ok(reader), "it has seen them");
            let mut expected = bytes(1, 0, 4 * PAGE);
            expected[PAGE..3 * PAGE].copy_from_slice(&bytes(2, 0, 2 * PAGE));
            let at = map(u, 4 * PAGE);
            u.seek(fd, 0).unwrap();
            assert!(read_all(u, fd, at, 5000, 4 * PAGE) == expected, "by `read`");
            u.sync_file(fd).unwrap();
            let first = u.kernel().vm().file_blocks().start;
            assert!(u.machine().disk_block(first + 2) == expected[2 * PAGE..3 * PAGE], "on the disk");
            // The two are two again.
            u.store(private + PAGE, b"mine");
            assert!(load(u, private + 2 * PAGE, PAGE) == expected[2 * PAGE..3 * PAGE]);
            u.seek(fd, PAGE as u64).unwrap();
            assert!(read_all(u, fd, at, PAGE, PAGE) == expected[PAGE..2 * PAGE]);
        });
    }
}

#[test]
fn only_who_may_write_a_file_pushes_down_to_it() {
    each(|u| {
        let fd = file(u, "f", 1, 2 * PAGE);
        let other = file(u, "g", 2, 2 * PAGE);
        let ro = u.open("f", OpenFlags::READ).unwrap();
        let wo = u.open("f", OpenFlags::WRITE).unwrap();
        let (r, _w) = u.pipe().unwrap();
        // A private mapping may be written, whatever the file was opened for: that gives no right to the file.
        let private = u.map_file(ro, 0, MapAddr::Anywhere, 2 * PAGE, Prot::RW, false).unwrap();
        u.store(private, &bytes(3, 0, 2 * PAGE));
        let push = |fd, at, len| u.push_down(fd, at, len, PushDown::Give);
        assert_eq!(push(ro, private, 2 * PAGE), Err(Errno::Access));
        assert_eq!(push(other, private, 2 * PAGE), Err(Errno::Invalid), "that file is not mapped there");
        assert_eq!(push(r, private, 2 * PAGE), Err(Errno::BadFd));
        assert_eq!(push(Fd(99), private, 2 * PAGE), Err(Errno::BadFd));
        assert_eq!(push(fd, private + 1, PAGE), Err(Errno::Invalid));
        assert_eq!(push(fd, private, 0), Err(Errno::Invalid));
        assert_eq!(push(fd, private, 1 << 40), Err(Errno::NoMemory));
        let anonymous = map(u, PAGE);
        u.store(anonymous, b"x");
        assert_eq!(push(fd, anonymous, PAGE), Err(Errno::Invalid));
        u.lock_memory(private, PAGE).unwrap();
        assert_eq!(push(fd, private, 2 * PAGE), Err(Errno::Busy));
        u.unlock_memory(private, PAGE).unwrap();
        u.kernel().check().unwrap();
        let at = map(u, 2 * PAGE);
        let contents = |fd| {
            u.seek(fd, 0).unwrap();
            read_all(u, fd, at, PAGE, 1 << 20)
        };
        assert!(contents(fd) == bytes(1, 0, 2 * PAGE) && contents(other) == bytes(2, 0, 2 * PAGE));
        assert!(load(u, private, 2 * PAGE) == bytes(3, 0, 2 * PAGE), "what was refused is still there");
        // The right is the descriptor's, not the mapping's.
        assert_eq!(push(wo, private, PAGE), Ok(1));
        u.truncate(fd, PAGE as u64).unwrap();
        assert_eq!(push(fd, private, 2 * PAGE), Err(Errno::Fault), "the file ends before the second");
        assert!(contents(ro) == bytes(3, 0, PAGE));
        // What is behind the end in the last page does not show when the file grows.
        u.truncate(fd, 100).unwrap();
        u.store(private, &bytes(4, 0, PAGE));
        assert_eq!(push(fd, private, PAGE), Ok(1));
        u.truncate(fd, PAGE as u64).unwrap();
        let mut expected = bytes(4, 0, 100);
        expected.resize(PAGE, 0);
        assert!(contents(fd) == expected);
    });
}

/// A page of a file is lent by its mapping; then the file is written to, and cut off. The borrower has what was there.
#[test]
fn what_is_lent_of_a_file_stays_as_it_was() {
    each(|u| {
        let fd = file(u, "f", 3, 4 * PAGE);
        let va = u.map_file(fd, 0, MapAddr::Anywhere, 4 * PAGE, Prot::RW, true).unwrap();
        let (to, from) = u.socket_pair().unwrap();
        let (new, got) = (map(u, PAGE), map(u, PAGE));
        u.store(new, &bytes(4, 0, PAGE));
        let received = || {
            assert_eq!(u.receive(from, got, PAGE), Ok(PAGE));
            load(u, got, PAGE)
        };
        assert_eq!(u.send(to, va + PAGE, PAGE, SendMode::Loan), Ok(PAGE));
        u.seek(fd, PAGE as u64).unwrap();
        assert_eq!(u.write(fd, new, PAGE), Ok(PAGE));
        assert!(
            load(u, va + PAGE, PAGE) == bytes(4, 0, PAGE),
            "a mapping of the file shows what was written"
        );
        u.kernel().check().unwrap();
        assert!(received() == bytes(3, PAGE, PAGE), "what was lent");

        assert_eq!(u.send(to, va + 3 * PAGE, PAGE, SendMode::Loan), Ok(PAGE));
        u.truncate(fd, 2 * PAGE as u64).unwrap();
        u.truncate(fd, 4 * PAGE as u64).unwrap();
        assert!(load(u, va + 3 * PAGE, PAGE) == [0; PAGE], "what was cut off is gone");
        u.kernel().check().unwrap();
        assert!(received() == bytes(3, 3 * PAGE, PAGE), "what was lent, and cut off");

        // The object ends while a page of it is lent.
        assert_eq!(u.send(to, va, PAGE, SendMode::Loan), Ok(PAGE));
        u.unmap(va, 4 * PAGE).unwrap();
        u.close(fd).unwrap();
        u.unlink("f").unwrap();
        u.kernel().check().unwrap();
        assert!(received() == bytes(3, 0, PAGE), "what was lent, of a file that is no more");
    });
}

#[test]
fn a_disk_that_fails_is_told_and_nothing_is_lost() {
    each(|u| {
        let fd = file(u, "f", 3, 4 * PAGE);
        let first = u.kernel().vm().file_blocks().start;
        u.machine().break_disk(first + 1..first + 2, true);
        assert_eq!(u.sync_file(fd), Err(Errno::Io));
        u.machine().break_disk(first + 1..first + 2, false);
        u.sync_file(fd).unwrap();
        for page in 0..4 {
            let stored = u.machine().disk_block(first + page as u64);
            assert!(stored == bytes(3, page * PAGE, PAGE), "page {page}");
        }
    });
}

#[test]
fn behind_the_end_of_a_file_is_a_fatal_signal() {
    each(|u| {
        let fd = file(u, "f", 4, 3 * PAGE);
        let va = u.map_file(fd, 0, MapAddr::Anywhere, 8 * PAGE, Prot::RW, true).unwrap();
        assert_eq!(load(u, va + 2 * PAGE, 10), bytes(4, 2 * PAGE, 10));
        u.truncate(fd, PAGE as u64 + 5).unwrap();
        assert_eq!(load(u, va + PAGE, 7), [bytes(4, PAGE, 5), vec![0; 2]].concat());
        let killed = fork(u, "killed", move |u| {
            u.store(va + 2 * PAGE, b"x");
            assert!(u.is_killed());
        });
        assert_eq!(u.wait(), Ok(killed));
        // A system call gets an error instead.
        let other = file(u, "g", 1, 1);
        assert_eq!(u.write(other, va + 2 * PAGE, 1), Err(Errno::Fault));
        u.truncate(fd, 3 * PAGE as u64).unwrap();
        assert_eq!(load(u, va + 2 * PAGE, 4), [0; 4], "it has grown again, clear");
        u.close(fd).unwrap();
        u.unlink("f").unwrap();
        u.store(va, b"still mapped");
        u.unmap(va, 8 * PAGE).unwrap();
    });
}

#[test]
fn mappings_go_where_they_are_wanted() {
    each(|u| {
        let va = map(u, 4 * PAGE);
        u.store(va, &bytes(1, 0, 4 * PAGE));
        assert_eq!(u.map_at(MapAddr::Free(va + PAGE), PAGE, Prot::RW, Inherit::Copy), Err(Errno::Invalid));
        let hinted = u.map_at(MapAddr::Hint(va + PAGE), PAGE, Prot::RW, Inherit::Copy).unwrap();
        assert!(hinted < va || hinted >= va + 4 * PAGE);
        u.unmap(hinted, PAGE).unwrap();
        assert_eq!(u.map_at(MapAddr::Hint(hinted), PAGE, Prot::RW, Inherit::Copy), Ok(hinted));
        let replaced = u.map_at(MapAddr::Replace(va + PAGE), 2 * PAGE, Prot::RW, Inherit::Copy);
        assert_eq!(replaced, Ok(va + PAGE));
        assert_eq!(load(u, va + PAGE, 4), [0; 4]);
        assert_eq!(load(u, va, 4), bytes(1, 0, 4));
        assert_eq!(load(u, va + 3 * PAGE, 4), bytes(1, 3 * PAGE, 4));
        assert_eq!(u.map_at(MapAddr::Replace(va + 1), PAGE, Prot::RW, Inherit::Copy), Err(Errno::Invalid));
    });
}

#[test]
fn advice_brings_pages_in_and_gives_them_up() {
    run("xeon-mp", Schedule::Timed, paging(sf_buf(64), 512), |u| {
        let fd = file(u, "f", 5, 40 * PAGE);
        u.sync_file(fd).unwrap();
        let va = u.map_file(fd, 0, MapAddr::Anywhere, 40 * PAGE, Prot::READ, true).unwrap();
        let vm = u.kernel().vm().clone();
        let empty = || {
            u.advise(va, 40 * PAGE, Madvise::DontNeed).unwrap();
            let hoard = hoard(u, 4);
            vm.reclaim(u.thread());
            vm.free_kernel_pages(hoard);
            u.machine().snapshot().counter(VmCounter::DiskRequests)
        };
        let requests = || u.machine().snapshot().counter(VmCounter::DiskRequests);
        let before = empty();
        u.advise(va, 40 * PAGE, Madvise::WillNeed).unwrap();
        let read = requests() - before;
        assert!((1..=8).contains(&read), "{read} requests for 40 pages, nine at a time");
        assert_eq!(load(u, va, 40 * PAGE), bytes(5, 0, 40 * PAGE));
        assert_eq!(requests() - before, read);
        let before = empty();
        u.advise(va, 40 * PAGE, Madvise::Use(pageferry_vm::Advice::Random)).unwrap();
        assert_eq!(load(u, va, 40 * PAGE), bytes(5, 0, 40 * PAGE));
        assert!(requests() - before >= 35, "one at a time");
        u.unlink("f").unwrap();
        // Contents that are given up are gone.
        let own = map(u, 2 * PAGE);
        u.store(own, &[7; 2 * PAGE]);
        u.advise(own, PAGE, Madvise::Free).unwrap();
        assert_eq!((load(u, own, 1), load(u, own + PAGE, 1)), (vec![0], vec![7]));
    });
}

#[test]
fn locked_memory_stays() {
    run("xeon-mp", Schedule::Timed, paging(sf_buf(64), 512), |u| {
        let va = map(u, 10 * PAGE);
        u.store(va, &bytes(6, 0, 10 * PAGE));
        u.lock_memory(va + 2 * PAGE, 3 * PAGE).unwrap();
        let vm = u.kernel().vm().clone();
        vm.check().unwrap();
        let hoarded = hoard(u, 4);
        vm.reclaim(u.thread());
        let ins = || u.machine().snapshot().counter(VmCounter::PageIns);
        let before = ins();
        assert_eq!(load(u, va + 2 * PAGE, 3 * PAGE), bytes(6, 2 * PAGE, 3 * PAGE));
        assert_eq!(ins(), before, "they were there");
        vm.free_kernel_pages(hoarded);
        assert_eq!(load(u, va, 10 * PAGE), bytes(6, 0, 10 * PAGE));
        assert!(ins() > before);
        // A child's copy is not locked, and the parent's does not move under its writes.
        let child = fork(u, "child", move |u| {
            u.store(va + 2 * PAGE, b"child");
            u.kernel().vm().check().unwrap();
        });
        u.store(va + 2 * PAGE, b"parent");
        assert_eq!(u.wait(), Ok(child));
        vm.check().unwrap();
        assert_eq!(load(u, va + 2 * PAGE, 6), b"parent");
        // Cutting and unmapping a locked range unlocks what goes.
        u.unmap(va + 3 * PAGE, PAGE).unwrap();
        vm.check().unwrap();
        u.unlock_memory(va + 4 * PAGE, PAGE).unwrap();
        let third = vm.free_frames();
        let all = map(u, third * PAGE);
        assert_eq!(u.lock_memory(all, third * PAGE), Err(Errno::WouldBlock), "more than may be");
        vm.check().unwrap();
    });
}

/// Several processes, each with more than its share of memory, anonymous and of a file, forking and checking all of it.
fn overcommit(
    name: &'static str,
    schedule: Schedule,
    config: KernelConfig,
    workers: u64,
    pages: usize,
) -> (u64, u64) {
    let ended = run(name, schedule, paging(config, 1024), move |u| {
        let vm = u.kernel().vm().clone();
        // Each worker has `pages` of its own and half as many of the file that they share.
        let fd = file(u, "shared", 99, pages / 2 * PAGE);
        u.sync_file(fd).unwrap();
        let hoarded = hoard(u, 60 + 20 * workers as usize + workers as usize * pages / 4);
        for worker in 0..workers {
            fork(u, &format!("worker{worker}"), move |u| {
                let va = map(u, pages * PAGE);
                let half = pages / 2 * PAGE;
                let shared = u.map_file(fd, 0, MapAddr::Anywhere, half, Prot::RW, true).unwrap();
                let private = u.map_file(fd, 0, MapAddr::Anywhere, half, Prot::RW, false).unwrap();
                for round in 0..2 {
                    for page in 0..pages {
                        u.store(va + page * PAGE, &bytes(worker * 100 + round, page, PAGE));
                        if page.is_multiple_of(2) {
                            let own = page / 2 * PAGE + 64 * worker as usize;
                            u.store(shared + own, &bytes(worker * 7 + round, page, 64));
                            if page.is_multiple_of(8) {
                                u.store(private + page / 2 * PAGE, &bytes(worker, page, 100));
                            }
                        }
                    }
                    let child = fork(u, "child", move |u| {
                        u.store(va, b"a child's own");
                        let got = load(u, va + 3 * PAGE, PAGE);
                        assert!(
                            got == bytes(worker * 100 + round, 3, PAGE),
                            "a child's copy of worker {worker}"
                        );
                    });
                    for page in 0..pages {
                        let got = load(u, va + page * PAGE, PAGE);
                        assert!(
                            got == bytes(worker * 100 + round, page, PAGE),
                            "page {page} of worker {worker}"
                        );
                        if page.is_multiple_of(2) {
                            let own = page / 2 * PAGE + 64 * worker as usize;
                            let got = load(u, shared + own, 64);
                            assert!(
                                got == bytes(worker * 7 + round, page, 64),
                                "shared page {page} of {worker}"
                            );
                        }
                        if page.is_multiple_of(8) {
                            let got = load(u, private + page / 2 * PAGE, 100);
                            assert!(got == bytes(worker, page, 100), "private page {page} of {worker}");
                        }
                    }
                    assert_eq!(u.wait(), Ok(child));
                }
            });
        }
        for _ in 0..workers {
            u.wait().unwrap();
        }
        vm.free_kernel_pages(hoarded);
        u.close(fd).unwrap();
        u.unlink("shared").unwrap();
    });
    let killed = ended.kernel.as_ref().unwrap().killed();
    assert!(killed.is_empty(), "{killed:?}");
    let clock = ended.m.snapshot().clocks.iter().sum();
    (ended.counter(VmCounter::PageOuts), clock)
}

#[test]
fn memory_is_overcommitted_four_times() {
    let small = |config, schedule, name| overcommit(name, schedule, config, 4, 120);
    for (name, config) in [
        ("xeon-up", sf_buf(64)),
        ("xeon-mp-htt", sf_buf(64)),
        ("opteron-mp", with_scheme(Scheme::Direct)),
        ("xeon-mp", original()),
    ] {
        let (outs, clock) = small(config, Schedule::Timed, name);
        assert!(outs > 4 * 120, "{name}: {outs} pages went out");
        assert_eq!(small(config, Schedule::Timed, name), (outs, clock), "{name}: the same again");
    }
}

#[test]
fn memory_is_overcommitted_under_seeded_schedules() {
    for seed in 0..3 {
        overcommit("xeon-mp-htt", Schedule::Seeded(seed), sf_buf(16), 4, 40);
        overcommit("xeon-mp", Schedule::Seeded(seed), original(), 3, 40);
    }
}

#[test]
fn who_asks_for_more_than_memory_and_swap_is_killed_and_the_others_go_on() {
    for name in ["xeon-up", "xeon-mp"] {
        let order = Rc::new(RefCell::new(Vec::new()));
        let told = order.clone();
        let ended = run(name, Schedule::Timed, paging(sf_buf(64), 64), move |u| {
            let at = map(u, 8 * PAGE);
            u.store(at, &bytes(1, 0, 8 * PAGE));
            let hoarded = hoard(u, 100);
            let glutton = fork(u, "glutton", move |u| {
                let va = map(u, 400 * PAGE);
                for page in 0..400 {
                    u.store(va + page * PAGE, &[1]);
                }
                told.borrow_mut().push(u.is_killed());
            });
            assert_eq!(u.wait(), Ok(glutton));
            assert!(load(u, at, 8 * PAGE) == bytes(1, 0, 8 * PAGE));
            u.kernel().vm().free_kernel_pages(hoarded);
        });
        assert_eq!(*order.borrow(), [true]);
        let kernel: std::sync::Arc<Kernel<Model>> = ended.kernel.clone().unwrap();
        assert_eq!(kernel.killed().len(), 1);
        assert_eq!(kernel.vm().swap_census().free, 64);
    }
}
