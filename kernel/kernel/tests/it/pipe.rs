//! Pipes: every byte, in order, through every kernel; and how they end.

use crate::common::*;
use pageferry_ephemeral::{EphemeralCounter, Scheme};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_pmap::PmapCounter;
use pageferry_vm::Inherit;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A child writes `len` bytes of a stream in pieces of `out_chunk`, from `skew` bytes into a page; the parent reads in
/// pieces of `in_chunk`.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    len: usize,
    out_chunk: usize,
    in_chunk: usize,
    skew: usize,
    nonblocking_writer: bool,
    nonblocking_reader: bool,
}

const PLAIN: Transfer = Transfer {
    len: 300_000,
    out_chunk: 65536,
    in_chunk: 65536,
    skew: 0,
    nonblocking_writer: false,
    nonblocking_reader: false,
};

fn transfer(name: &str, schedule: Schedule, config: KernelConfig, t: Transfer) -> Ended {
    run(name, schedule, config, move |u| {
        let (r, w) = u.pipe().unwrap();
        fork(u, "writer", move |u| {
            u.close(r).unwrap();
            u.set_nonblocking(w, t.nonblocking_writer).unwrap();
            let at = map(u, t.out_chunk + t.skew) + t.skew;
            write_all(u, w, at, t.out_chunk, 11, t.len);
        });
        u.close(w).unwrap();
        u.set_nonblocking(r, t.nonblocking_reader).unwrap();
        let at = map(u, t.in_chunk + t.skew / 2) + t.skew / 2;
        let got = read_all(u, r, at, t.in_chunk, usize::MAX);
        assert!(got == bytes(11, 0, t.len), "{} of {} bytes, not all as sent", got.len(), t.len);
        assert_eq!(u.read(r, at, 10), Ok(0), "the end stays the end");
    })
}

#[test]
fn every_kernel_carries_every_byte() {
    for (what, name, config) in kernels() {
        let ended = transfer(name, Schedule::Timed, config, PLAIN);
        let direct = ended.counter(KernelCounter::PipeDirectWrites);
        assert_eq!(direct > 0, config.pipe.direct, "{what}: {direct} direct writes");
    }
}

#[test]
fn every_kernel_under_seeded_schedules() {
    for seed in 0..10 {
        for (_, name, config) in kernels() {
            transfer(name, Schedule::Seeded(seed), config, Transfer { len: 100_000, skew: 77, ..PLAIN });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn any_sizes_any_kernel(
        kernel in 0usize..14,
        seed in any::<u64>(),
        len in 1usize..120_000,
        out_chunk in prop_oneof![1usize..600, 4000usize..9000, 8192usize..90_000],
        in_chunk in prop_oneof![100usize..600, 4000usize..9000, 8192usize..90_000],
        skew in 0usize..4096,
        nonblocking_writer in any::<bool>(),
        nonblocking_reader in any::<bool>(),
    ) {
        let len = len.min(out_chunk * 200);
        let (_, name, config) = kernels()[kernel];
        let schedule = if seed % 2 == 0 { Schedule::Timed } else { Schedule::Seeded(seed) };
        let t = Transfer { len, out_chunk, in_chunk, skew, nonblocking_writer, nonblocking_reader };
        transfer(name, schedule, config, t);
    }
}

/// Several writers and readers on one pipe: small writes are not mixed, and every byte arrives once.
#[test]
fn small_writes_of_many_are_not_mixed() {
    for seed in 0..30 {
        let records = Rc::new(RefCell::new(Vec::new()));
        let seen = records.clone();
        run(["xeon-mp", "xeon-mp-htt"][seed as usize % 2], Schedule::Seeded(seed), sf_buf(8), move |u| {
            let (r, w) = u.pipe().unwrap();
            for writer in 0..3u8 {
                fork(u, "writer", move |u| {
                    u.close(r).unwrap();
                    let at = map(u, PAGE_SIZE);
                    for i in 0..40u8 {
                        let len = 1 + (usize::from(i) * 37 + usize::from(writer) * 101) % ATOMIC_WRITE_BYTES;
                        let len = len.max(4);
                        let mut record = vec![i; len];
                        record[..3].copy_from_slice(&[writer, (len & 255) as u8, (len >> 8) as u8]);
                        u.store(at, &record);
                        assert_eq!(u.write(w, at, len), Ok(len));
                    }
                });
            }
            u.close(w).unwrap();
            let at = map(u, 1 << 16);
            let all = read_all(u, r, at, 5000, usize::MAX);
            let mut rest = &all[..];
            while !rest.is_empty() {
                let len = usize::from(rest[1]) | usize::from(rest[2]) << 8;
                let (record, more) = rest.split_at(len);
                assert!(record[3..].iter().all(|&b| b == record[3]), "a record is torn");
                records.borrow_mut().push((record[0], record[3]));
                rest = more;
            }
        });
        let mut seen = seen.borrow().clone();
        for writer in 0..3 {
            let order: Vec<u8> = seen.iter().filter(|r| r.0 == writer).map(|r| r.1).collect();
            assert!(order.is_sorted(), "seed {seed}: records of one writer overtake each other");
        }
        seen.sort_unstable();
        let all: Vec<(u8, u8)> = (0..3).flat_map(|w| (0..40).map(move |i| (w, i))).collect();
        assert_eq!(seen, all, "seed {seed}");
    }
}

/// Large and small writes of several, with signals now and then: direct writes alternate with all others, a cut write
/// says what it has done, and every byte of each arrives once and in order.
#[test]
fn large_writes_of_many_take_turns() {
    let cut = Rc::new(Cell::new(0));
    for seed in 0..56 {
        let (_, name, config) = kernels()[seed as usize % 14];
        let cut = cut.clone();
        run(name, Schedule::Seeded(seed), config, move |u| {
            let (r, w) = u.pipe().unwrap();
            let mut writers = Vec::new();
            for writer in 0..3u8 {
                let cut = cut.clone();
                writers.push(fork(u, "writer", move |u| {
                    u.close(r).unwrap();
                    let at = map(u, 1 << 16);
                    for (round, len) in [30_000usize, 300, 9_000, 20_000].into_iter().enumerate() {
                        u.store(at, &vec![writer << 4 | round as u8; len]);
                        let mut done = 0;
                        while done < len {
                            match u.write(w, at + done, len - done) {
                                Ok(n) => done += n,
                                Err(e) => assert_eq!(e, Errno::Interrupted),
                            }
                            cut.set(cut.get() + usize::from(done < len));
                        }
                    }
                }));
            }
            u.close(w).unwrap();
            let at = map(u, 1 << 16);
            let mut all = Vec::new();
            for round in 0.. {
                let part = read_all(u, r, at, 7000, 7000);
                if part.is_empty() {
                    break;
                }
                all.extend(part);
                if seed % 2 == 0 {
                    // They may be gone already.
                    let _ = u.signal(writers[round % 3]);
                }
            }
            for writer in 0..3u8 {
                let mine: Vec<u8> = all.iter().copied().filter(|b| b >> 4 == writer).collect();
                assert!(mine.is_sorted(), "seed {seed}: bytes of one writer overtake each other");
                let count = |round: u8| mine.iter().filter(|b| *b & 15 == round).count();
                assert_eq!([0, 1, 2, 3].map(count), [30_000, 300, 9_000, 20_000], "seed {seed}");
            }
        });
    }
    assert!(cut.get() > 20, "only {} writes were cut short", cut.get());
}

/// A signal to a writer that waits for its reader: what is left moves into the kernel buffer, the call says how much
/// was taken, and no byte is lost or doubled.
#[test]
fn a_signal_to_a_blocked_writer_loses_no_byte() {
    for seed in 0..60 {
        let (_, name, config) = kernels()[seed as usize % 14];
        if !config.pipe.direct {
            continue;
        }
        let interrupted = Rc::new(Cell::new(false));
        let saw = interrupted.clone();
        run(name, Schedule::Seeded(seed), config, move |u| {
            let (r, w) = u.pipe().unwrap();
            let writer = fork(u, "writer", move |u| {
                u.close(r).unwrap();
                let len = 150_000;
                let at = map(u, len);
                u.store(at, &bytes(5, 0, len));
                let n = u.write(w, at, len).expect("something was taken");
                if n < len {
                    saw.set(true);
                    // Its pages are its own again: what it does to them is not seen by the reader.
                    u.store(at, &vec![0xee; n]);
                    let again = u.write(w, at + n, len - n).expect("the rest");
                    assert_eq!(n + again, len);
                }
            });
            u.close(w).unwrap();
            let at = map(u, 1 << 16);
            // A part is read before, so that the signal comes in the middle of a piece.
            let before = [0, 5_000, 20_000][seed as usize % 3];
            let mut got = read_all(u, r, at, 5_000, before);
            until_asleep(u, writer);
            u.signal(writer).unwrap();
            // It gives its pages up before a reader reads on.
            while u.kernel().killed().is_empty() && !u.kernel().is_asleep(writer) {
                u.yield_now().unwrap();
            }
            got.extend(read_all(u, r, at, 9_000, usize::MAX));
            assert!(got == bytes(5, 0, 150_000), "seed {seed}: {} bytes", got.len());
        });
        assert!(interrupted.get(), "seed {seed}, {name}: the write was not cut short");
    }
}

#[test]
fn a_signal_to_a_blocked_reader() {
    for seed in 0..20 {
        run("xeon-mp", Schedule::Seeded(seed), sf_buf(8), |u| {
            let (r, w) = u.pipe().unwrap();
            let (interrupted, tell) = u.pipe().unwrap();
            let reader = fork(u, "reader", move |u| {
                let at = map(u, PAGE_SIZE);
                assert_eq!(u.read(r, at, 100), Err(Errno::Interrupted));
                assert_eq!(u.write(tell, at, 1), Ok(1));
                assert_eq!(u.read(r, at, 100), Ok(3), "it can read on");
            });
            until_asleep(u, reader);
            u.signal(reader).unwrap();
            let at = map(u, PAGE_SIZE);
            assert_eq!(u.read(interrupted, at, 1), Ok(1));
            until_asleep(u, reader);
            assert_eq!(u.write(w, at, 3), Ok(3));
            u.wait().unwrap();
        });
    }
}

/// The last reader goes while writers sleep: all of them learn it, wherever they sleep.
#[test]
fn the_end_of_the_last_reader_breaks_the_pipe() {
    for seed in 0..42 {
        let (_, name, config) = kernels()[seed as usize % 14];
        run(name, Schedule::Seeded(seed), config, move |u| {
            let (r, w) = u.pipe().unwrap();
            let mut writers = Vec::new();
            for len in [100_000usize, 20_000, 600] {
                writers.push(fork(u, "writer", move |u| {
                    u.close(r).unwrap();
                    let at = map(u, len);
                    loop {
                        match u.write(w, at, len) {
                            Ok(n) => assert_eq!(n, len),
                            Err(e) => break assert_eq!(e, Errno::BrokenPipe),
                        }
                    }
                    assert_eq!(u.write(w, at, 1), Err(Errno::BrokenPipe), "for good");
                }));
            }
            u.close(w).unwrap();
            let at = map(u, PAGE_SIZE);
            assert!(u.read(r, at, 4000).unwrap() > 0);
            if seed % 2 == 0 {
                writers.iter().for_each(|&writer| until_asleep(u, writer));
            }
            u.close(r).unwrap();
            for _ in 0..3 {
                u.wait().unwrap();
            }
        });
    }
}

#[test]
fn nonblocking_ends_do_not_sleep() {
    run("xeon-up", Schedule::Timed, sf_buf(8), |u| {
        let (r, w) = u.pipe().unwrap();
        u.set_nonblocking(r, true).unwrap();
        u.set_nonblocking(w, true).unwrap();
        let at = map(u, 1 << 17);
        assert_eq!(u.read(r, at, 10), Err(Errno::WouldBlock));
        u.store(at, &bytes(1, 0, 1 << 17));
        let room = u.write(w, at, 1 << 17).unwrap();
        assert_eq!(room, 65536, "the buffer has grown for a large write, and is full");
        assert_eq!(u.write(w, at, 1), Err(Errno::WouldBlock));
        assert_eq!(u.read(r, at, 100), Ok(100));
        assert_eq!(u.write(w, at, 200), Err(Errno::WouldBlock), "a small write is all or nothing");
        assert_eq!(u.write(w, at, 600), Ok(100), "a larger one takes what there is");
        u.set_nonblocking(r, false).unwrap();
        let mut left = 65536;
        while left > 0 {
            left -= u.read(r, at, 10_000).unwrap();
        }
        u.close(w).unwrap();
        assert_eq!(u.read(r, at, 1), Ok(0));
    });
}

#[test]
fn descriptors_and_their_misuse() {
    run("xeon-mp", Schedule::Timed, sf_buf(8), |u| {
        let (r, w) = u.pipe().unwrap();
        assert_eq!((r, w), (Fd(0), Fd(1)));
        let at = map(u, PAGE_SIZE);
        assert_eq!(u.read(w, at, 1), Err(Errno::BadFd));
        assert_eq!(u.write(r, at, 1), Err(Errno::BadFd));
        assert_eq!(u.close(Fd(9)), Err(Errno::BadFd));
        assert_eq!(u.set_nonblocking(Fd(9), true), Err(Errno::BadFd));
        assert_eq!(u.write(w, at, 0), Ok(0));
        assert_eq!(u.read(r, at, 0), Ok(0));
        u.close(r).unwrap();
        assert_eq!(u.close(r), Err(Errno::BadFd));
        assert_eq!(u.write(w, at, 1), Err(Errno::BrokenPipe));
        let (r2, w2) = u.pipe().unwrap();
        assert_eq!((r2, w2), (Fd(0), Fd(2)), "the lowest free numbers");
        let mut more = 0;
        while u.pipe().is_ok() {
            more += 1;
        }
        assert!(more > 10);
        assert!(matches!(u.pipe(), Err(Errno::TooManyFiles | Errno::NoMemory)));
    });
}

/// Ends are shared by fork; the stream ends when the last copy of the writing end is closed.
#[test]
fn forked_descriptors_share_their_ends() {
    for seed in 0..20 {
        run("xeon-mp-htt", Schedule::Seeded(seed), sf_buf(8), |u| {
            let (r, w) = u.pipe().unwrap();
            for i in 0..3u8 {
                fork(u, "writer", move |u| {
                    let at = map(u, PAGE_SIZE);
                    u.store(at, &[i; 100]);
                    assert_eq!(u.write(w, at, 100), Ok(100));
                    if i == 1 {
                        u.close(w).unwrap();
                    }
                });
            }
            let at = map(u, PAGE_SIZE);
            u.store(at, &[9; 100]);
            assert_eq!(u.write(w, at, 100), Ok(100));
            u.close(w).unwrap();
            let mut got = read_all(u, r, at, 64, usize::MAX);
            got.sort_unstable();
            assert_eq!(got, [[0; 100], [1; 100], [2; 100], [9; 100]].concat());
        });
    }
}

/// Memory that ends in the middle of a write or a read: what was moved counts, the rest stays where it was.
#[test]
fn memory_that_ends_early() {
    for (_, name, config) in kernels() {
        run(name, Schedule::Timed, config, move |u| {
            let (r, w) = u.pipe().unwrap();
            let at = map(u, 2 * PAGE_SIZE);
            u.store(at, &bytes(2, 0, 2 * PAGE_SIZE));
            let near_end = at + (2 * PAGE_SIZE - 100);
            assert_eq!(u.write(w, near_end, 5_000), Ok(100), "buffered: what there was");
            assert_eq!(u.write(w, at + 2 * PAGE_SIZE, 10), Err(Errno::Fault));
            assert_eq!(u.read(r, at, 100), Ok(100));
            let mut buf = [0; 100];
            u.load(at, &mut buf);
            assert_eq!(buf[..], bytes(2, 2 * PAGE_SIZE - 100, 100));
            // A reader without room: the bytes that did not fit are read later.
            u.store(at, &bytes(3, 0, 5000));
            assert_eq!(u.write(w, at, 5000), Ok(5000));
            assert_eq!(u.read(r, near_end, 5000), Ok(100));
            assert_eq!(u.read(r, at, 5000), Ok(4900));
            let mut buf = vec![0; 4900];
            u.load(at, &mut buf);
            assert_eq!(buf, bytes(3, 100, 4900));
            // A large write of memory that is not there.
            if config.pipe.direct {
                assert_eq!(u.write(w, at, 20_000), Err(Errno::Fault), "nothing is handed over");
            } else {
                assert_eq!(u.write(w, at, 20_000), Ok(2 * PAGE_SIZE));
                assert_eq!(u.read(r, at, 20_000), Ok(2 * PAGE_SIZE));
            }
            assert_eq!(u.write(w, near_end, 3), Ok(3), "the pipe still works");
            assert_eq!(u.read(r, at, 10), Ok(3));
        });
    }
}

/// A writer that dies while nothing is in flight, a reader that is killed: the other side learns of it.
#[test]
fn the_other_side_learns_of_a_killed_process() {
    run("xeon-mp", Schedule::Timed, sf_buf(8), |u| {
        let (r, w) = u.pipe().unwrap();
        fork(u, "victim", move |u| {
            u.store(Va(0x10), b"boom");
            let _ = u.write(w, Va(0x1000), 10);
        });
        u.close(w).unwrap();
        let at = map(u, PAGE_SIZE);
        assert_eq!(u.read(r, at, 10), Ok(0));
    });
}

/// The pages of a direct write stay put while the writer's shared memory goes away around them.
#[test]
fn wired_pages_outlive_what_happens_to_their_memory() {
    for seed in 0..20 {
        run("xeon-mp", Schedule::Seeded(seed), sf_buf(8), |u| {
            let shared = u.map(20_000, Prot::RW, Inherit::Share).unwrap();
            u.store(shared, &bytes(8, 0, 20_000));
            let (r, w) = u.pipe().unwrap();
            let writer = fork(u, "writer", move |u| {
                u.close(r).unwrap();
                assert_eq!(u.write(w, shared, 20_000), Ok(20_000));
            });
            u.close(w).unwrap();
            until_asleep(u, writer);
            u.kernel().check().unwrap();
            u.unmap(shared, 20_000).unwrap();
            let at = map(u, 1 << 15);
            let got = read_all(u, r, at, 3_000, usize::MAX);
            assert!(got == bytes(8, 0, 20_000));
        });
    }
}

/// The steady state of the paper's experiment: the same pages again and again cost no invalidation with sf_buf, and two
/// flushes a piece without.
#[test]
fn invalidations_of_the_steady_state() {
    let measure = |name: &str, config: KernelConfig| {
        let counts = Rc::new(RefCell::new(Vec::new()));
        let result = counts.clone();
        run(name, Schedule::Timed, config, move |u| {
            let (r, w) = u.pipe().unwrap();
            fork(u, "writer", move |u| {
                u.close(r).unwrap();
                let at = map(u, 1 << 16);
                u.store(at, &bytes(1, 0, 1 << 16));
                for _ in 0..40 {
                    assert_eq!(u.write(w, at, 1 << 16), Ok(1 << 16));
                }
            });
            u.close(w).unwrap();
            let at = map(u, 1 << 16);
            let mut left = 40 << 16;
            while left > 0 {
                left -= u.read(r, at, 1 << 16).unwrap();
                if left % (10 << 16) == 0 {
                    let s = u.machine().snapshot();
                    let n = |c: Metric| s.counter(c) as i64;
                    counts.borrow_mut().push([
                        n(PmapCounter::TlbInvalidationsLocal.metric()),
                        n(PmapCounter::TlbInvalidationsRemoteIssued.metric()),
                        // Mapped already: by the cache, or with all of memory.
                        n(EphemeralCounter::EphemeralHits.metric())
                            + n(EphemeralCounter::EphemeralDirect.metric()),
                        n(EphemeralCounter::EphemeralMisses.metric()),
                        n(KernelCounter::PipeDirectWrites.metric()),
                    ]);
                }
            }
        });
        let counts = result.borrow();
        assert_eq!(counts.len(), 4);
        let (a, b) = (counts[1], counts[2]);
        [0, 1, 2, 3, 4].map(|i| b[i] - a[i])
    };
    for name in ["xeon-up", "xeon-htt", "xeon-mp", "xeon-mp-htt"] {
        assert_eq!(measure(name, sf_buf(64)), [0, 0, 160, 0, 10], "{name}");
        let [local, remote, hits, misses, direct] = measure(name, original());
        assert_eq!((hits, misses, direct), (0, 0, 10));
        // The writer's unmapping may fall on either side of the reader's look at the counters.
        assert!((304..=336).contains(&local), "{name}: {local}");
        assert_eq!(remote, if name == "xeon-up" { 0 } else { local }, "{name}");
    }
    let direct = with_scheme(Scheme::Direct);
    assert_eq!(measure("opteron-mp", direct), [0, 0, 160, 0, 10]);
}

#[test]
fn the_invalidation_call_measures() {
    for name in ["xeon-up", "xeon-mp-htt", "opteron-mp"] {
        let ended = run(name, Schedule::Timed, original(), |u| {
            let cycles = |kind| u.invalidate(kind, 100).unwrap().0;
            let cached = cycles(InvalidateKind::LocalCached);
            let uncached = cycles(InvalidateKind::LocalUncached);
            let remote = cycles(InvalidateKind::Remote);
            assert!(cached > 0 && uncached > cached, "{cached} {uncached}");
            if u.machine().board().cpus > 1 {
                assert!(remote > cached, "{remote} {cached}");
            }
            let before = u.machine().snapshot();
            u.invalidate(InvalidateKind::Remote, 50).unwrap();
            let after = u.machine().snapshot();
            let issued = |s: &pageferry_model::Snapshot| s.counter(PmapCounter::TlbInvalidationsRemoteIssued);
            let others = u.machine().board().cpus as u64 - 1;
            // Giving the test page back is one more.
            let n = issued(&after) - issued(&before);
            assert!(if others == 0 { n == 0 } else { (50..=52).contains(&n) }, "{n}");
        });
        assert!(ended.counter(PmapCounter::TlbInvalidationsLocal) >= 200);
    }
}
