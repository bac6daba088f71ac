//! The kernel's own memory where memory is short: pipe buffers and clusters of mbufs wait for the page daemon, like
//! user memory, if their caller may sleep; and no call waits for what does not come.

use crate::common::*;
use pageferry_ephemeral::Scheme;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::VmCounter;

const PAGE: usize = PAGE_SIZE;

fn load(u: &U, from: Va, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    u.load(from, &mut buf);
    buf
}

/// Through what a stream goes.
#[derive(Clone, Copy, Debug)]
enum By {
    Pipe,
    Socket(SendMode),
}

/// Sends stream `seed` to a child, `chunk` bytes at a time; every call must succeed.
fn send(u: &U, to: Fd, by: By, seed: u64, len: usize, chunk: usize) {
    let at = map(u, len);
    u.store(at, &bytes(seed, 0, len));
    let mut sent = 0;
    while sent < len {
        let chunk = (len - sent).min(chunk);
        let part = match by {
            By::Pipe => u.write(to, at + sent, chunk),
            By::Socket(mode) => u.send(to, at + sent, chunk, mode),
        };
        sent += part.expect("a sender that may sleep gets its memory");
    }
}

/// Receives it: from a socket every other time by transfer, to where the kernel likes.
fn receive(u: &U, from: Fd, by: By, seed: u64, len: usize) {
    let at = map(u, 2 * PAGE);
    let mut got = Vec::new();
    for call in 0.. {
        let transfer = matches!(by, By::Socket(_)) && call % 2 == 0;
        let part = if transfer {
            let received = u.receive_transfer(from, None, 2 * PAGE);
            let received = received.expect("a receiver that may sleep gets its memory");
            got.extend(load(u, received.at, received.len_bytes));
            if received.len_bytes > 0 {
                u.anflush(received.at, received.len_bytes.next_multiple_of(PAGE)).unwrap();
            }
            received.len_bytes
        } else {
            let len = u.read(from, at, 2 * PAGE).expect("a reader that may sleep gets its memory");
            got.extend(load(u, at, len));
            len
        };
        if part == 0 {
            break;
        }
    }
    assert!(got == bytes(seed, 0, len), "stream {seed} by {by:?}");
    u.unmap(at, 2 * PAGE).unwrap();
}

/// A new pipe or pair for each of `rounds` streams.
fn streams(u: &U, by: By, rounds: u64, len: usize) {
    for round in 0..rounds {
        let made = match by {
            By::Pipe => u.pipe(),
            By::Socket(_) => u.socket_pair(),
        };
        let (from, to) = made.expect("a caller that may sleep gets its memory");
        let sender = fork(u, "sender", move |u| {
            u.close(from).unwrap();
            send(u, to, by, round, len, 3 * PAGE + 500);
            u.close(to).unwrap();
        });
        u.close(to).unwrap();
        receive(u, from, by, round, len);
        u.close(from).unwrap();
        assert_eq!(u.wait(), Ok(sender));
    }
}

/// Goes over more pages than there are, again and again.
fn press(u: &U, seed: u64, pages: usize, rounds: u64) {
    let va = map(u, pages * PAGE);
    for round in 0..rounds {
        for page in 0..pages {
            if round > 0 {
                let expected = bytes(seed + round - 1, page, 64);
                assert!(load(u, va + page * PAGE, 64) == expected, "page {page} of {seed}");
            }
            u.store(va + page * PAGE, &bytes(seed + round, page, 64));
        }
    }
}

fn overcommitted(name: &'static str, schedule: Schedule, config: KernelConfig, rounds: u64) {
    let mut config = paging(config, 1024);
    // Frames are short most of the time, for the kernel too.
    let daemon = config.vm.paging.as_mut().expect("just set");
    (daemon.kernel_reserve_pages, daemon.free_min_pages, daemon.free_target_pages) = (6, 8, 12);
    let ended = run(name, schedule, config, move |u| {
        let vm = u.kernel().vm().clone();
        // With fewer than about 135 a fault may find a frame for its page and none for a page table, again and again.
        let hoarded = hoard(u, 130);
        for worker in 0..2 {
            fork(u, "press", move |u| press(u, 1000 * worker, 260, rounds));
        }
        for by in [By::Pipe, By::Pipe, By::Socket(SendMode::Copy), By::Socket(SendMode::Loan)] {
            fork(u, "streams", move |u| streams(u, by, 3 * rounds, 20 * PAGE + 123));
        }
        for _ in 0..6 {
            u.wait().unwrap();
        }
        vm.free_kernel_pages(hoarded);
    });
    let killed = ended.kernel.as_ref().expect("it booted").killed();
    assert!(killed.is_empty(), "{killed:?}");
    assert!(
        ended.counter(VmCounter::PageOuts) > 500,
        "{} pages went out",
        ended.counter(VmCounter::PageOuts)
    );
    let sleeps = ended.counter(VmCounter::MemorySleeps);
    assert!(sleeps > 100, "{sleeps} sleeps for memory");
}

#[test]
fn streams_flow_while_memory_is_overcommitted() {
    for (name, config) in [
        ("xeon-up", sf_buf(64)),
        ("xeon-mp-htt", sf_buf(64)),
        ("opteron-mp", with_scheme(Scheme::Direct)),
        ("xeon-mp", original()),
    ] {
        overcommitted(name, Schedule::Timed, config, 3);
    }
    for seed in 0..2 {
        overcommitted("xeon-mp-htt", Schedule::Seeded(seed), sf_buf(16), 1);
    }
}

/// Clusters that are not in use are the first that the page daemon takes.
#[test]
fn free_clusters_go_where_memory_is_short() {
    run("xeon-mp", Schedule::Timed, paging(sf_buf(64), 64), |u| {
        let (from, to) = u.socket_pair().unwrap();
        let at = map(u, 8 * PAGE);
        u.lock_memory(at, 8 * PAGE).unwrap();
        u.set_nonblocking(to, true).unwrap();
        let sent = u.send(to, at, 8 * PAGE, SendMode::Copy).unwrap();
        assert_eq!(u.receive(from, at, sent), Ok(sent));
        let free = || u.machine().inspect(|| u.kernel().free_clusters().len());
        assert!(free() > 1, "what was sent has left clusters");
        let hoarded = hoard(u, 4);
        let (r, w) = u.pipe().expect("all that can be taken are clusters");
        assert_eq!(free(), 0);
        u.close(r).unwrap();
        u.close(w).unwrap();
        u.kernel().vm().free_kernel_pages(hoarded);
    });
}

/// Nothing can be taken, with a page daemon and without: callers get an error, and none hangs.
#[test]
fn what_does_not_come_is_not_waited_for() {
    for config in [paging(sf_buf(64), 64), sf_buf(64)] {
        run("xeon-mp", Schedule::Timed, config, |u| {
            let vm = u.kernel().vm().clone();
            let (from, to) = u.socket_pair().unwrap();
            let at = map(u, PAGE);
            u.store(at, &bytes(1, 0, PAGE));
            u.lock_memory(at, PAGE).unwrap();
            let before = u.machine().snapshot().counter(VmCounter::MemorySleeps);
            let hoarded = hoard(u, if u.kernel().config().vm.paging.is_some() { 4 } else { 0 });
            assert_eq!(u.pipe(), Err(Errno::NoMemory));
            // Without a cluster there are small mbufs: slow, but it goes.
            assert_eq!(u.send(to, at, PAGE, SendMode::Copy), Ok(PAGE));
            assert_eq!(u.receive_transfer(from, None, PAGE), Err(Errno::NoMemory));
            let slept = u.machine().snapshot().counter(VmCounter::MemorySleeps) - before;
            assert_eq!(slept > 0, u.kernel().config().vm.paging.is_some(), "{slept}");
            // A nonblocking call does not sleep.
            u.set_nonblocking(to, true).unwrap();
            u.set_nonblocking(from, true).unwrap();
            assert_eq!(u.send(to, at, PAGE, SendMode::Copy), Ok(PAGE));
            assert_eq!(u.receive_transfer(from, None, PAGE), Err(Errno::NoMemory));
            assert_eq!(u.machine().snapshot().counter(VmCounter::MemorySleeps) - before, slept);
            vm.free_kernel_pages(hoarded);
            // All is there yet.
            for _ in 0..2 {
                let got = u.receive_transfer(from, None, PAGE).unwrap();
                assert!(got.len_bytes == PAGE && load(u, got.at, PAGE) == bytes(1, 0, PAGE));
            }
            let (r, w) = u.pipe().unwrap();
            u.close(r).unwrap();
            u.close(w).unwrap();
            vm.check().unwrap();
        });
    }
}
