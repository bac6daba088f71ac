//! Sockets: every byte, in order, by copy, loan and transfer; what the sender does afterwards does not show; and how
//! they end.

use crate::common::*;
use pageferry_ephemeral::Scheme;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::Inherit;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const SIZES: [usize; 7] = [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + PAGE / 2, 64 << 10, 1 << 20];
const SENDS: [SendMode; 2] = [SendMode::Copy, SendMode::Loan];

/// How a receiver reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receive {
    Copy,
    To,
    Area,
}
const RECEIVES: [Receive; 3] = [Receive::Copy, Receive::To, Receive::Area];

/// Machines, and kernels whose pipes are sockets.
fn places() -> Vec<(&'static str, KernelConfig)> {
    let with = |scheme| {
        let mut config = sockets();
        config.ephemeral.scheme = scheme;
        config
    };
    let mut small = sockets();
    small.socket.high_water_bytes = PAGE;
    small.pipe.socket_buffer_bytes = PAGE;
    let mut few = sockets();
    few.socket.clusters = 3;
    vec![
        ("xeon-up", sockets()),
        ("pentium-iii", with(Scheme::Original)),
        ("xeon-mp", small),
        ("xeon-mp-htt", sockets()),
        ("opteron-mp", with(Scheme::Direct)),
        ("xeon-htt", few),
    ]
}

/// A message of `len` bytes from `skew` bytes into a page, received to `in_skew` bytes into one.
#[derive(Clone, Copy, Debug)]
struct Message {
    len: usize,
    skew: usize,
    in_skew: usize,
    send: SendMode,
    receive: Receive,
    times: usize,
}

/// Receives `len` bytes, at most `max_bytes` at a time, to memory at `at`.
fn receive_all(u: &U, fd: Fd, at: Va, max_bytes: usize, len: usize, how: Receive) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let want = max_bytes.min(len - all.len());
        let to = at + all.len();
        let got = match how {
            Receive::Copy => u.receive(fd, to, want).map(|n| (to, n)),
            Receive::To => u.receive_transfer(fd, Some(to), want).map(|r| (r.at, r.len_bytes)),
            Receive::Area => u.receive_transfer(fd, None, want).map(|r| (r.at, r.len_bytes)),
        };
        match got {
            Ok((_, 0)) => break,
            Ok((from, n)) => {
                let mut part = vec![0; n];
                u.load(from, &mut part);
                if how == Receive::Area {
                    rest_is_clear(u, from, n);
                    u.anflush(from, n.next_multiple_of(PAGE)).unwrap();
                }
                all.extend(part);
            }
            Err(Errno::WouldBlock) => u.yield_now().unwrap(),
            Err(Errno::Interrupted) => {}
            Err(e) => panic!("receive: {e}"),
        }
    }
    all
}

/// Nothing but what was sent can be read of a transferred page.
pub fn rest_is_clear(u: &U, at: Va, len: usize) {
    let end = at + len;
    if !end.is_page_aligned() {
        let mut rest = vec![1; PAGE - end.offset()];
        u.load(end, &mut rest);
        assert!(rest.iter().all(|&b| b == 0), "bytes that were not sent can be read");
    }
}

fn send_all(u: &U, fd: Fd, from: Va, len: usize, mode: SendMode) {
    let mut done = 0;
    while done < len {
        match u.send(fd, from + done, len - done, mode) {
            Ok(n) => done += n,
            Err(Errno::WouldBlock) => u.yield_now().unwrap(),
            Err(Errno::Interrupted) => {}
            Err(e) => panic!("send: {e}"),
        }
    }
}

/// The child sends a message, overwrites its buffer at once, and again; the parent must get each as it was sent.
fn exchange(name: &str, schedule: Schedule, config: KernelConfig, m: Message) -> Ended {
    run(name, schedule, config, move |u| {
        let (mine, yours) = u.socket_pair().unwrap();
        fork(u, "sender", move |u| {
            u.close(mine).unwrap();
            let buffer = map(u, m.len + m.skew);
            for i in 0..m.times {
                u.store(buffer + m.skew, &bytes(i as u64, 0, m.len));
                send_all(u, yours, buffer + m.skew, m.len, m.send);
                u.store(buffer, &vec![0xee; m.len + m.skew]);
            }
            u.close(yours).unwrap();
        });
        u.close(yours).unwrap();
        let buffer = map(u, m.len + m.in_skew);
        for i in 0..m.times {
            let got = receive_all(u, mine, buffer + m.in_skew, usize::MAX, m.len, m.receive);
            assert!(got == bytes(i as u64, 0, m.len), "{m:?}: message {i} is not as sent");
        }
        assert_eq!(u.receive(mine, buffer, 1), Ok(0), "the end");
        assert_eq!(u.receive_transfer(mine, None, 1).map(|r| r.len_bytes), Ok(0), "the end");
        u.wait().unwrap();
    })
}

#[test]
fn every_pair_of_modes_carries_every_size() {
    for len in SIZES {
        for send in SENDS {
            for receive in RECEIVES {
                let m = Message { len, skew: 0, in_skew: 0, send, receive, times: 2 };
                for name in ["xeon-up", "opteron-mp"] {
                    let mut config = sockets();
                    if name == "opteron-mp" {
                        config.ephemeral.scheme = Scheme::Direct;
                    }
                    let ended = exchange(name, Schedule::Timed, config, m);
                    let pages = (2 * (len / PAGE)) as u64;
                    let (lent, donated, on) = (
                        ended.counter(KernelCounter::PagesLent),
                        ended.counter(KernelCounter::PagesDonated),
                        ended.counter(KernelCounter::PagesLentOn),
                    );
                    assert_eq!(lent, if send == SendMode::Loan { pages } else { 0 }, "{m:?}");
                    assert_eq!(on, if receive == Receive::Copy { 0 } else { lent }, "{m:?}");
                    if receive == Receive::To && send == SendMode::Copy {
                        assert_eq!(donated, pages, "{m:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_place_under_seeded_schedules() {
    for seed in 0..4 {
        for (name, config) in places() {
            for send in SENDS {
                for receive in RECEIVES {
                    let (skew, in_skew) = [(0, 0), (100, 0), (0, 77), (5, 5)][seed as usize];
                    let m = Message { len: 3 * PAGE + 123, skew, in_skew, send, receive, times: 3 };
                    exchange(name, Schedule::Seeded(seed), config, m);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn any_sizes_any_modes(
        place in 0usize..6,
        seed in any::<u64>(),
        out_chunk in prop_oneof![1usize..600, 4000usize..9000, 8192usize..70_000],
        in_chunk in prop_oneof![100usize..600, 4000usize..9000, 8192usize..70_000],
        skew in prop_oneof![Just(0usize), 0usize..4096],
        len in 1usize..120_000,
        modes in any::<u64>(),
        nonblocking in any::<(bool, bool)>(),
    ) {
        let len = len.min(out_chunk * 100);
        let (name, config) = places()[place];
        let schedule = if seed % 2 == 0 { Schedule::Timed } else { Schedule::Seeded(seed) };
        run(name, schedule, config, move |u| {
            let (r, w) = u.pipe().unwrap();
            fork(u, "sender", move |u| {
                u.close(r).unwrap();
                u.set_nonblocking(w, nonblocking.0).unwrap();
                let at = map(u, out_chunk + skew) + skew;
                let mut done = 0;
                for i in 0.. {
                    let part = bytes(3, done, out_chunk.min(len - done));
                    u.store(at, &part);
                    send_all(u, w, at, part.len(), SENDS[(modes >> (i % 32) & 1) as usize]);
                    done += part.len();
                    if done == len {
                        break;
                    }
                }
            });
            u.close(w).unwrap();
            u.set_nonblocking(r, nonblocking.1).unwrap();
            let at = map(u, in_chunk + skew / 2) + skew / 2;
            let mut all = Vec::new();
            for i in 0.. {
                let how = RECEIVES[(modes >> (i % 31 + 32) & 3) as usize % 3];
                let part = receive_all(u, r, at, in_chunk, in_chunk, how);
                if part.is_empty() {
                    break;
                }
                all.extend(part);
            }
            assert!(all == bytes(3, 0, len), "{} of {len} bytes, not all as sent", all.len());
        });
    }
}

// --------------------------------------------------------------------------------------------- pages that may not move

/// A cluster that two sockets have is copied by each receiver; the last one may have it.
#[test]
fn a_cluster_with_two_references_is_not_donated() {
    for send in SENDS {
        let ended = run("xeon-up", Schedule::Timed, sockets(), move |u| {
            let (a, b) = u.socket_pair().unwrap();
            let (c, d) = u.socket_pair().unwrap();
            let len = 2 * PAGE + 50;
            let at = map(u, len);
            u.store(at, &bytes(1, 0, len));
            assert_eq!(u.send(a, at, len, send), Ok(len));
            assert_eq!(u.tee(b, c, usize::MAX), Ok(len));
            u.store(at, &vec![0; len]);
            let to = map(u, len);
            let first = u.receive_transfer(b, Some(to), len).unwrap();
            let mut got = vec![0; len];
            u.load(to, &mut got);
            assert!(got == bytes(1, 0, len));
            // Pages on loan may be lent twice.
            let lent = if send == SendMode::Loan { 2 } else { 0 };
            assert_eq!((first.len_bytes, first.donated_pages, first.lent_pages), (len, 0, lent));
            // What the first does to its copy is not seen by the second.
            u.store(to, &vec![7; len]);
            let also = map(u, len);
            let second = u.receive_transfer(d, Some(also), len).unwrap();
            u.load(also, &mut got);
            assert!(got == bytes(1, 0, len));
            assert_eq!((second.donated_pages, second.lent_pages), (2 - lent, lent));
        });
        assert_eq!(
            ended.counter(KernelCounter::TransferBytesCopied),
            if send == SendMode::Copy { 2 * 4096 + 100 } else { 100 }
        );
    }
}

#[test]
fn wired_pages_are_copied_not_lent_and_not_replaced() {
    let ended = run("xeon-mp", Schedule::Timed, sockets(), |u| {
        let (a, b) = u.socket_pair().unwrap();
        let (from, to) = (map(u, 4 * PAGE), map(u, 4 * PAGE));
        u.store(from, &bytes(1, 0, 4 * PAGE));
        u.store(to, &[1; 4 * PAGE]);
        let (kernel, thread) = (u.kernel(), u.thread());
        let space = u.space();
        let wired = space.wire(thread, from + PAGE, PAGE, Prot::RW).unwrap();
        assert_eq!(u.send(a, from, 4 * PAGE, SendMode::Loan), Ok(4 * PAGE));
        kernel.vm().unwire(wired);
        assert_eq!(u.send(a, from, 4 * PAGE, SendMode::Loan), Ok(4 * PAGE));
        u.store(from, &[0; 4 * PAGE]);
        let wired = space.wire(thread, to, PAGE, Prot::RW).unwrap();
        for _ in 0..2 {
            let got = receive_all(u, b, to, 4 * PAGE, 4 * PAGE, Receive::To);
            assert!(got == bytes(1, 0, 4 * PAGE));
        }
        assert_eq!(u.anflush(to, PAGE), Err(Errno::Busy));
        kernel.vm().unwire(wired);
    });
    assert_eq!(ended.counter(KernelCounter::LoansRefused), 1);
    assert_eq!(ended.counter(KernelCounter::PagesLent), 4);
}

#[test]
fn memory_that_ends_gives_partial_counts() {
    for send in SENDS {
        run("xeon-up", Schedule::Timed, sockets(), move |u| {
            let (a, b) = u.socket_pair().unwrap();
            let at = map(u, 4 * PAGE);
            u.store(at, &bytes(1, 0, 4 * PAGE));
            u.unmap(at + 2 * PAGE, 2 * PAGE).unwrap();
            assert_eq!(u.send(a, at + 100, 4 * PAGE - 100, send), Ok(2 * PAGE - 100));
            assert_eq!(u.send(a, at + 2 * PAGE, 8, send), Err(Errno::Fault));
            let to = map(u, 2 * PAGE);
            u.unmap(to + PAGE, PAGE).unwrap();
            assert_eq!(u.receive_transfer(b, Some(to), 2 * PAGE).map(|r| r.len_bytes), Ok(PAGE));
            let mut got = vec![0; PAGE];
            u.load(to, &mut got);
            assert!(got == bytes(1, 100, PAGE));
            assert_eq!(u.receive(b, to + PAGE, 10), Err(Errno::Fault));
            assert_eq!(
                u.receive(b, to, 2 * PAGE),
                Ok(PAGE - 100),
                "what could not be delivered is still there"
            );
            u.load(to, &mut got);
            assert!(got[..PAGE - 100] == bytes(1, 100 + PAGE, PAGE - 100));
            // Read-only memory is not written to, nor replaced.
            u.send(a, at, PAGE, send).unwrap();
            let sealed = map(u, PAGE);
            u.protect(sealed, PAGE, Prot::READ).unwrap();
            assert_eq!(u.receive_transfer(b, Some(sealed), PAGE), Err(Errno::Fault));
            assert_eq!(receive_all(u, b, to, PAGE, PAGE, Receive::To), bytes(1, 0, PAGE));
        });
    }
}

#[test]
fn bad_arguments() {
    run("xeon-up", Schedule::Timed, sockets(), |u| {
        let (a, b) = u.socket_pair().unwrap();
        let (r, w) = u.pipe().unwrap();
        let at = map(u, PAGE);
        let top = Va(u64::MAX - 100);
        assert_eq!(u.send(a, top, 1000, SendMode::Loan), Err(Errno::Fault));
        assert_eq!(u.send(a, Va(0), 0, SendMode::Loan), Ok(0));
        assert_eq!(u.receive_transfer(b, Some(top), 1000), Err(Errno::Fault));
        assert_eq!(u.receive_transfer(b, None, 0).map(|r| r.len_bytes), Ok(0));
        assert_eq!(u.send(r, at, 1, SendMode::Copy), Err(Errno::BadFd));
        assert_eq!(u.receive_transfer(w, None, 1), Err(Errno::BadFd));
        assert_eq!(u.send(Fd(99), at, 1, SendMode::Loan), Err(Errno::BadFd));
        assert_eq!(u.anflush(at + 1, PAGE), Err(Errno::Invalid));
        assert_eq!(u.anflush(at, 0), Err(Errno::Invalid));
        assert_eq!(u.anflush(at + PAGE, PAGE), Err(Errno::NoMemory));
        assert_eq!(u.tee(b, a, 1).unwrap_err(), Errno::Invalid, "a's sending is b's receiving");
        assert_eq!(u.tee(r, w, 1), Err(Errno::Invalid));
        u.set_nonblocking(b, true).unwrap();
        assert_eq!(u.receive_transfer(b, None, 1), Err(Errno::WouldBlock));
        assert_eq!(u.receive(b, at, 1), Err(Errno::WouldBlock));
        assert_eq!(u.tee(b, w, 1), Err(Errno::WouldBlock));
    });
    run("xeon-up", Schedule::Timed, sf_buf(8), |u| {
        let (r, w) = u.pipe().unwrap();
        let at = map(u, PAGE);
        assert_eq!(u.send(w, at, 1, SendMode::Loan), Err(Errno::NotSupported));
        assert_eq!(u.send(w, at, 1, SendMode::Copy), Ok(1));
        assert_eq!(u.receive_transfer(r, None, 1), Err(Errno::NotSupported));
        assert_eq!(u.receive(r, at, 1), Ok(1));
    });
}

// ----------------------------------------------------------------------------------------------- lives that cross

/// What the sender does while its pages are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Exit,
    Unmap,
    Fork,
    Protect,
    Die,
}

#[test]
fn data_in_flight_survives_its_sender() {
    for then in [Then::Exit, Then::Unmap, Then::Fork, Then::Protect, Then::Die] {
        for receive in RECEIVES {
            for seed in 0..6 {
                let (name, mut config) = places()[seed as usize];
                config.socket.high_water_bytes = config.socket.high_water_bytes.max(16 * PAGE);
                let schedule = if seed % 2 == 0 { Schedule::Timed } else { Schedule::Seeded(seed) };
                let lives = move |u: &U| {
                    let (mine, yours) = u.socket_pair().unwrap();
                    let len = 5 * PAGE;
                    fork(u, "sender", move |u| {
                        let at = map(u, len);
                        u.store(at, &bytes(9, 0, len));
                        assert_eq!(u.send(yours, at, len, SendMode::Loan), Ok(len));
                        match then {
                            Then::Exit => {}
                            Then::Unmap => u.unmap(at, 3 * PAGE).unwrap(),
                            Then::Protect => u.protect(at, len, Prot::empty()).unwrap(),
                            Then::Die => u.store(Va(PAGE as u64), &[1]),
                            Then::Fork => {
                                fork(u, "grandchild", move |u| {
                                    u.store(at, &vec![5; len]);
                                    let mut seen = vec![0; len];
                                    u.load(at, &mut seen);
                                    assert!(seen == vec![5; len]);
                                });
                                u.store(at, &vec![6; len]);
                                u.wait().unwrap();
                                let mut seen = vec![0; len];
                                u.load(at, &mut seen);
                                assert!(seen == vec![6; len]);
                            }
                        }
                    });
                    u.close(yours).unwrap();
                    if seed % 3 == 0 {
                        u.wait().unwrap();
                    }
                    let at = map(u, len);
                    assert!(
                        receive_all(u, mine, at, len, len, receive) == bytes(9, 0, len),
                        "{then:?} {receive:?}"
                    );
                    u.store(at, &vec![1; len]);
                };
                run(name, schedule, config, lives);
            }
        }
    }
}

/// The receiver goes: what is in the socket is freed, and the sender, asleep or not, learns it.
#[test]
fn senders_learn_that_nobody_reads() {
    for send in SENDS {
        for seed in 0..12 {
            let (name, config) = places()[seed as usize % 6];
            run(name, Schedule::Seeded(seed), config, move |u| {
                let (r, w) = u.pipe().unwrap();
                let child = fork(u, "reader", move |u| {
                    u.close(w).unwrap();
                    let at = map(u, PAGE);
                    if seed % 2 == 0 {
                        u.receive(r, at, PAGE).unwrap();
                        u.receive_transfer(r, None, PAGE).unwrap();
                    }
                });
                u.close(r).unwrap();
                let at = map(u, 40 * PAGE);
                u.store(at, &vec![3; 40 * PAGE]);
                let mut sent = 0;
                loop {
                    match u.send(w, at, 40 * PAGE, send) {
                        Ok(n) => sent += n,
                        Err(e) => break assert_eq!(e, Errno::BrokenPipe),
                    }
                }
                assert!(sent <= 2 * PAGE, "{sent} bytes were taken without a reader");
                assert_eq!(u.wait(), Ok(child));
                // The pages are the sender's own again.
                u.store(at, &vec![4; 40 * PAGE]);
            });
        }
    }
}

/// A signal at each place where a call sleeps: nothing is lost, the counts are right.
#[test]
fn signals_end_sleeps_and_lose_nothing() {
    let cut = Rc::new(Cell::new((0, 0)));
    for seed in 0..48 {
        let (name, config) = places()[seed as usize % 6];
        let (send, receive) = (SENDS[seed as usize % 2], RECEIVES[seed as usize / 2 % 3]);
        let cut = cut.clone();
        run(name, Schedule::Seeded(seed), config, move |u| {
            let (mine, yours) = u.socket_pair().unwrap();
            let len = 20 * PAGE;
            let counts = cut.clone();
            let reader = fork(u, "reader", move |u| {
                u.close(yours).unwrap();
                let at = map(u, len);
                let mut all = Vec::new();
                while all.len() < 2 * len {
                    let got = match receive {
                        Receive::Copy => u.receive(mine, at, len).map(|n| (at, n)),
                        Receive::To => u.receive_transfer(mine, Some(at), len).map(|r| (r.at, r.len_bytes)),
                        Receive::Area => u.receive_transfer(mine, None, len).map(|r| (r.at, r.len_bytes)),
                    };
                    match got {
                        Ok((from, n)) => {
                            assert!(n > 0, "the stream ended after {} bytes", all.len());
                            let mut part = vec![0; n];
                            u.load(from, &mut part);
                            all.extend(part);
                            if receive == Receive::Area {
                                u.anflush(from, n.next_multiple_of(PAGE)).unwrap();
                            }
                        }
                        Err(e) => {
                            assert_eq!(e, Errno::Interrupted);
                            counts.set((counts.get().0, counts.get().1 + 1));
                        }
                    }
                }
                assert!(all == bytes(2, 0, 2 * len));
            });
            let counts = cut.clone();
            let writer = fork(u, "writer", move |u| {
                u.close(mine).unwrap();
                let at = map(u, len);
                for round in 0..2 {
                    u.store(at, &bytes(2, round * len, len));
                    let mut done = 0;
                    while done < len {
                        match u.send(yours, at + done, len - done, send) {
                            Ok(n) => done += n,
                            Err(e) => assert_eq!(e, Errno::Interrupted),
                        }
                        counts.set((counts.get().0 + usize::from(done < len), counts.get().1));
                    }
                }
            });
            u.close(mine).unwrap();
            u.close(yours).unwrap();
            // Until both are gone.
            while u.signal(reader).is_ok() | u.signal(writer).is_ok() {
                u.compute(Instructions(3000));
                u.yield_now().unwrap();
            }
            u.wait().unwrap();
            u.wait().unwrap();
        });
    }
    let (writers, readers) = cut.get();
    assert!(writers > 5 && readers > 5, "{writers} writes and {readers} reads were interrupted");
}

/// Several senders and receivers on one socket: messages are not mixed.
#[test]
fn messages_of_many_are_not_mixed() {
    for seed in 0..12 {
        let (name, config) = places()[seed as usize % 6];
        run(name, Schedule::Seeded(seed), config, move |u| {
            let (r, w) = u.pipe().unwrap();
            for sender in 0..3u8 {
                fork(u, "sender", move |u| {
                    u.close(r).unwrap();
                    let at = map(u, 2 * PAGE);
                    for i in 0..6u8 {
                        u.store(at, &vec![sender << 4 | i; 2 * PAGE]);
                        send_all(u, w, at, 300, SendMode::Copy);
                        send_all(u, w, at, PAGE, SENDS[usize::from(i) % 2]);
                    }
                });
            }
            u.close(w).unwrap();
            let at = map(u, 1 << 17);
            let all = receive_all(u, r, at, 5000, usize::MAX, RECEIVES[seed as usize % 2]);
            let runs: Vec<(u8, usize)> = all.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
            assert_eq!(all.len(), 3 * 6 * (300 + PAGE));
            assert!(runs.iter().all(|&(_, n)| [300, PAGE, 300 + PAGE].contains(&n)), "{runs:?}");
        });
    }
}

// ----------------------------------------------------------------------------------------------- limits

#[test]
fn a_socket_buffer_takes_no_more_than_its_limit() {
    for send in SENDS {
        run("xeon-up", Schedule::Timed, sockets(), move |u| {
            let (a, b) = u.socket_pair().unwrap();
            u.set_nonblocking(a, true).unwrap();
            let at = map(u, 1 << 20);
            assert_eq!(u.send(a, at, 1 << 20, send), Ok(65536));
            assert_eq!(u.send(a, at, 1 << 20, send), Err(Errno::WouldBlock));
            u.kernel().check().unwrap();
            assert_eq!(u.receive(b, at, 100), Ok(100));
            assert_eq!(u.send(a, at, 1 << 20, send), Err(Errno::WouldBlock), "less than a page of room");
            assert_eq!(u.send(a, at, 100, send), Ok(100), "a write that fits is not kept waiting");
            assert_eq!(u.receive(b, at, 1 << 20), Ok(65536));
            // Small writes share mbufs.
            let before = u.machine().snapshot().counter(KernelCounter::BytesCopied);
            for i in 0..2000 {
                assert_eq!(u.send(a, at + i, 1, send), Ok(1));
            }
            assert!(u.machine().snapshot().counter(KernelCounter::BytesCopied) > before);
            assert_eq!(u.receive(b, at, 1 << 20), Ok(2000));
        });
    }
}

#[test]
fn clusters_keep_their_number_and_are_replaced() {
    let ended = run("xeon-mp", Schedule::Timed, sockets(), |u| {
        let null = u.null_socket().unwrap();
        let at = map(u, 8 * PAGE);
        for _ in 0..50 {
            let got = u.receive_transfer(null, Some(at), 8 * PAGE).unwrap();
            assert_eq!((got.len_bytes, got.donated_pages), (8 * PAGE, 8));
            u.anflush(at, 8 * PAGE).unwrap();
            assert_eq!(u.kernel().free_clusters().len(), 8);
        }
        assert_eq!(u.receive(null, at, 8 * PAGE), Ok(8 * PAGE));
        assert_eq!(u.send(null, at, 8 * PAGE, SendMode::Copy), Ok(8 * PAGE));
        assert_eq!(u.send(null, at, 8 * PAGE, SendMode::Loan), Ok(8 * PAGE));
        assert_eq!(u.kernel().free_clusters().len(), 8);
    });
    assert_eq!(ended.counter(KernelCounter::PagesDonated), 400);
    assert_eq!(ended.counter(KernelCounter::PagesLent), 8);
}

#[test]
fn no_memory_at_any_point_loses_nothing() {
    let tried = Rc::new(Cell::new(0));
    for send in SENDS {
        for receive in RECEIVES {
            let tried = tried.clone();
            run("xeon-up", Schedule::Timed, sockets(), move |u| {
                let (a, b) = u.socket_pair().unwrap();
                let len = 3 * PAGE + 50;
                let (from, to) = (map(u, len), map(u, len));
                for after in 0..40 {
                    u.store(from, &bytes(after, 0, len));
                    u.kernel().vm().fail_after(Some(after as u32));
                    let sent = match u.send(a, from, len, send) {
                        Ok(n) => n,
                        Err(e) => {
                            assert_eq!(e, Errno::NoMemory);
                            0
                        }
                    };
                    let mut all = Vec::new();
                    while all.len() < sent {
                        let got = match receive {
                            Receive::Copy => u.receive(b, to, len).map(|n| (to, n)),
                            Receive::To => u.receive_transfer(b, Some(to), len).map(|r| (r.at, r.len_bytes)),
                            Receive::Area => u.receive_transfer(b, None, len).map(|r| (r.at, r.len_bytes)),
                        };
                        match got {
                            Ok((at, n)) => {
                                u.kernel().vm().fail_after(None);
                                let mut part = vec![0; n];
                                u.load(at, &mut part);
                                all.extend(part);
                                if receive == Receive::Area {
                                    u.anflush(at, n.next_multiple_of(PAGE)).unwrap();
                                }
                            }
                            Err(e) => assert_eq!(e, Errno::NoMemory, "after {after}"),
                        }
                    }
                    tried.set(tried.get() + usize::from(!u.kernel().vm().failure_pending()));
                    u.kernel().vm().fail_after(None);
                    assert!(all == bytes(after, 0, sent), "{send:?} {receive:?} after {after}");
                    u.kernel().check().unwrap();
                }
            });
        }
    }
    assert!(tried.get() > 20, "only {} allocations failed", tried.get());
}

/// Sockets whose null protocol answers with memory of its own.
fn answering() -> KernelConfig {
    let mut config = sockets();
    config.socket.null_answers = NullAnswers::Memory;
    config
}

#[test]
fn the_null_protocol_answers_with_memory_of_its_own() {
    on_named_machines!();
    for machine in ["xeon-mp", "opteron-mp", "mini-soft", "mini-blocks"] {
        let ended = run(machine, Schedule::Timed, answering(), |u| {
            let null = u.null_socket().unwrap();
            let (at, len) = (map(u, 8 * PAGE), 4 * PAGE + 100);
            assert!(u.machine().inspect(|| u.kernel().null_answer()).is_empty(), "none is made ahead");
            assert_eq!(u.receive(null, at, len), Ok(len));
            for round in 0..6u8 {
                // What it answers next is written from outside; by each way it is what comes.
                let pages = u.machine().inspect(|| u.kernel().null_answer());
                assert_eq!(pages.len(), 5, "as many pages as the largest read has asked for");
                let wanted = bytes(round.into(), 1, 5 * PAGE);
                let fill = |(page, &at): (&[u8], &Va)| assert!(u.machine().poke(at, page));
                wanted.chunks(PAGE).zip(&pages).for_each(fill);
                let mut found = vec![0; len];
                let at = match round {
                    0 | 3 => {
                        assert_eq!(u.receive(null, at, len), Ok(len));
                        at
                    }
                    1 | 4 => {
                        let got = u.receive_transfer(null, Some(at), len).unwrap();
                        assert_eq!((got.len_bytes, got.donated_pages), (len, 4), "the rest is copied");
                        at
                    }
                    2 => {
                        let got = u.receive_transfer(null, None, len).unwrap();
                        assert_eq!(
                            (got.len_bytes, got.donated_pages),
                            (4 * PAGE, 4),
                            "whole pages, in a run"
                        );
                        found.truncate(4 * PAGE);
                        got.at
                    }
                    // Not at a page: all is copied.
                    _ => {
                        let got = u.receive_transfer(null, Some(at + 1), len).unwrap();
                        assert_eq!((got.len_bytes, got.donated_pages), (len, 0));
                        at + 1
                    }
                };
                u.load(at, &mut found);
                assert!(found == wanted[..found.len()], "round {round}");
            }
            // Less than a page goes to the area in a page that is clear behind it.
            let got = u.receive_transfer(null, None, 10).unwrap();
            let mut found = vec![1; PAGE];
            u.load(got.at, &mut found);
            assert_eq!((got.len_bytes, &found[10..]), (10, &[0; PAGE - 10][..]));
            assert_eq!(u.send(null, at, 8 * PAGE, SendMode::Copy), Ok(8 * PAGE));
            // A second socket shares the answer, and the last that is closed gives it back.
            let second = u.null_socket().unwrap();
            u.close(null).unwrap();
            assert_eq!(u.machine().inspect(|| u.kernel().null_answer()).len(), 5);
            u.close(second).unwrap();
            assert!(u.machine().inspect(|| u.kernel().null_answer()).is_empty());
        });
        assert_eq!(ended.counter(KernelCounter::PagesDonated), 13);
    }
}

#[test]
fn an_answer_that_cannot_be_had_or_given_loses_nothing() {
    run("xeon-mp", Schedule::Timed, answering(), |u| {
        let null = u.null_socket().unwrap();
        let at = map(u, 4 * PAGE);
        // Memory that may not be written refuses pages, and then bytes; a hole does.
        let closed = u.map(4 * PAGE, Prot::READ, Inherit::Copy).unwrap();
        assert_eq!(u.receive_transfer(null, Some(closed), 4 * PAGE).map(drop), Err(Errno::Fault));
        u.unmap(closed, 4 * PAGE).unwrap();
        assert_eq!(u.receive_transfer(null, Some(closed), 4 * PAGE).map(drop), Err(Errno::Fault));
        for after in 0..12 {
            u.kernel().vm().fail_after(Some(after));
            let got = u.receive_transfer(null, Some(at), 4 * PAGE);
            u.kernel().vm().fail_after(None);
            match got {
                Ok(got) => assert_eq!(got.len_bytes, 4 * PAGE, "what has no pages is copied"),
                Err(e) => assert_eq!(e, Errno::NoMemory),
            }
            assert_eq!(u.receive(null, at, 4 * PAGE), Ok(4 * PAGE));
        }
        // Two readers at a time, of one socket.
        let reads = move |u: &U| {
            let at = map(u, 2 * PAGE);
            for _ in 0..20 {
                assert_eq!(u.receive(null, at, 2 * PAGE), Ok(2 * PAGE));
            }
        };
        u.fork("reader", Box::new(reads)).unwrap();
        for _ in 0..20 {
            assert_eq!(u.receive_transfer(null, Some(at), 4 * PAGE).unwrap().donated_pages, 4);
        }
        u.wait().unwrap();
    });
}

/// Reads by transfer and then by copy, with the net's `defect`: whether a stale translation was used.
fn reads_both_ways(defect: Option<NetDefect>) -> bool {
    let mut config = internet();
    (config.socket, config.pipe) = (answering().socket, answering().pipe);
    config.net.as_mut().expect("it has one").defect = defect.into();
    let ended = try_run("xeon-mp", Schedule::Timed, config, |u| {
        let null = u.null_socket().unwrap();
        let at = map(u, 4 * PAGE);
        for _ in 0..3 {
            assert_eq!(u.receive(null, at, 4 * PAGE), Ok(4 * PAGE));
            assert_eq!(u.receive_transfer(null, Some(at), 4 * PAGE).unwrap().donated_pages, 4);
        }
    });
    !ended.m.stale_uses().is_empty()
}

#[test]
fn an_answer_whose_pages_went_is_not_read_through_what_a_tlb_knows() {
    // Where all frames are at addresses for ever, no address of an answer changes.
    on_named_machines!();
    assert!(!reads_both_ways(None));
    assert!(reads_both_ways(Some(NetDefect::FlippedNotFlushed)), "the planted defect is not noticed");
}
