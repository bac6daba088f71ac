//! The sound device: what is sent is played as it was, what was recorded is received as it was, however either goes.

use crate::common::*;
use crate::socket::rest_is_clear;
use pageferry_ephemeral::Scheme;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::{Model, Schedule};
use pageferry_vm::VmCounter;
use std::cell::Cell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const SENDS: [SendMode; 3] = [SendMode::Copy, SendMode::Loan, SendMode::Auto];

/// How a test receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receive {
    Copy,
    To,
    Area,
    Auto,
}
const RECEIVES: [Receive; 4] = [Receive::Copy, Receive::To, Receive::Area, Receive::Auto];

/// On one CPU that maps pages, and on two with a direct map.
fn places() -> [(&'static str, KernelConfig); 2] {
    let mut direct = sockets();
    direct.ephemeral.scheme = Scheme::Direct;
    [("pentium-pro", sockets()), ("today", direct)]
}

/// Receives up to `len` bytes at `at`.
fn receive(u: &U, fd: Fd, at: Va, len: usize, how: Receive) -> Result<Vec<u8>, Errno> {
    let (from, got) = match how {
        Receive::Copy => (at, u.receive(fd, at, len)?),
        Receive::To => (at, u.receive_transfer(fd, Some(at), len)?.len_bytes),
        Receive::Auto => (at, u.receive_auto(fd, at, len)?.len_bytes),
        Receive::Area => {
            let got = u.receive_transfer(fd, None, len)?;
            (got.at, got.len_bytes)
        }
    };
    let mut bytes = vec![0; got];
    u.load(from, &mut bytes);
    if how == Receive::Area {
        rest_is_clear(u, from, got);
        u.anflush(from, got.next_multiple_of(PAGE)).unwrap();
    }
    Ok(bytes)
}

#[test]
fn what_is_sent_is_played_whatever_the_sender_does_then() {
    for (name, config) in places() {
        for mode in SENDS {
            let sizes = [1, 100, PAGE, 3 * PAGE + 5, 20 * PAGE, 2 * PAGE];
            let config = KernelConfig { measures_at_boot: mode == SendMode::Auto, ..config };
            let ended = run(name, Schedule::Timed, config, move |u| {
                let fd = u.open_audio().unwrap();
                let at = map(u, 21 * PAGE);
                let mut sent = 0;
                for (round, len) in sizes.into_iter().enumerate() {
                    let from = at + if round % 2 == 0 { 0 } else { 77 };
                    u.store(from, &bytes(5, sent, len));
                    assert_eq!(u.send(fd, from, len, mode), Ok(len));
                    u.store(from, &vec![0xee; len]);
                    u.kernel().check().unwrap();
                    sent += len;
                }
                u.close(fd).unwrap();
            });
            let played = ended.m.played();
            assert!(played == bytes(5, 0, sizes.iter().sum()), "{name} {mode:?}");
            let lent = ended.counter(KernelCounter::PagesLent);
            // Before it chooses, the kernel measures, and lends pages of its own.
            assert!(mode == SendMode::Auto || (lent > 0) == (mode == SendMode::Loan), "{name} {mode:?}");
        }
    }
}

#[test]
fn what_was_recorded_is_received_in_order() {
    for (name, config) in places() {
        for how in RECEIVES {
            let ended = run(name, Schedule::Timed, config, move |u| {
                let fd = u.open_audio().unwrap();
                let at = map(u, 6 * PAGE);
                let mut all = Vec::new();
                for len in [10, 5 * PAGE, 2 * PAGE - 3, 6 * PAGE, 6 * PAGE, PAGE] {
                    let got = receive(u, fd, at, len, how).unwrap();
                    assert!(!got.is_empty() && got.len() <= len);
                    all.extend(got);
                    u.kernel().check().unwrap();
                }
                assert!(all == Model::sound(0, all.len()), "{how:?}");
                assert_eq!(u.machine().audio_gaps(), (0, 0));
                u.close(fd).unwrap();
            });
            let donated = ended.counter(KernelCounter::PagesDonated);
            assert!(
                how == Receive::Auto || (donated > 0) == (how != Receive::Copy),
                "{name} {how:?}: {donated}"
            );
        }
    }
}

/// A recorder that does not fetch in time loses sound, and gets what comes after it whole.
#[test]
fn a_late_listener_misses_something() {
    run("pentium-pro", Schedule::Timed, sockets(), |u| {
        let fd = u.open_audio().unwrap();
        let at = map(u, 8 * PAGE);
        let first = receive(u, fd, at, PAGE, Receive::To).unwrap();
        assert!(first == Model::sound(0, PAGE));
        // Half a second.
        for _ in 0..100 {
            u.compute(Instructions(1_000_000));
        }
        let mut all = Vec::new();
        while all.len() < 12 * PAGE {
            all.extend(receive(u, fd, at, PAGE, Receive::To).unwrap());
        }
        assert!(all[..8 * PAGE] == Model::sound(PAGE as u64, 8 * PAGE), "what the device had room for");
        let late = &all[8 * PAGE..9 * PAGE];
        let is_from = |gap: usize, len: usize| late[..len] == Model::sound((9 * PAGE + gap) as u64, len);
        let gap = (1..200_000).find(|&gap| is_from(gap, 8) && is_from(gap, PAGE));
        assert!(gap.is_some(), "sound that comes later, and all of it in one piece");
        assert_eq!(u.machine().audio_gaps(), (0, 1));
        u.close(fd).unwrap();
    });
}

#[test]
fn one_at_a_time_has_the_device() {
    run("xeon-up", Schedule::Timed, sockets(), |u| {
        assert_eq!(u.open_audio(), Err(Errno::NotSupported), "this machine has none");
    });
    for (name, config) in places() {
        run(name, Schedule::Timed, config, |u| {
            let fd = u.open_audio().unwrap();
            assert_eq!(u.open_audio(), Err(Errno::Busy));
            // A child has it too, and the last of both closes it.
            let child = fork(u, "child", move |u| {
                let at = map(u, PAGE);
                assert_eq!(u.write(fd, at, PAGE), Ok(PAGE));
            });
            u.close(fd).unwrap();
            assert_eq!(u.wait(), Ok(child));
            let fd = u.open_audio().unwrap();
            assert_eq!(u.seek(fd, 0), Err(Errno::BadFd));
            assert_eq!(u.send(fd, Va(u64::MAX - 9), PAGE, SendMode::Loan), Err(Errno::Fault));
            assert_eq!(u.receive_transfer(fd, Some(Va(5)), PAGE), Err(Errno::Fault));
            let hole = map(u, PAGE);
            u.unmap(hole, PAGE).unwrap();
            assert_eq!(u.send(fd, hole, PAGE, SendMode::Loan), Err(Errno::Fault));
            assert_eq!(u.receive(fd, hole, PAGE), Err(Errno::Fault));
        });
    }
}

#[test]
fn calls_that_must_not_sleep_do_not() {
    for (name, config) in places() {
        run(name, Schedule::Timed, config, |u| {
            let fd = u.open_audio().unwrap();
            u.set_nonblocking(fd, true).unwrap();
            let at = map(u, 20 * PAGE);
            assert_eq!(u.receive(fd, at, PAGE), Err(Errno::WouldBlock), "nothing is recorded yet");
            assert_eq!(u.send(fd, at, 20 * PAGE, SendMode::Loan), Ok(8 * PAGE), "what there is room for");
            assert_eq!(u.send(fd, at, PAGE, SendMode::Copy), Err(Errno::WouldBlock));
        });
    }
}

/// Signals end waits; what was played and received until then counts.
#[test]
fn signals_end_waits_and_lose_nothing() {
    let cut = Rc::new(Cell::new(0));
    for (place, (name, config)) in places().into_iter().enumerate() {
        for seed in 0..20 {
            let cut = cut.clone();
            let ended = run(name, Schedule::Seeded(seed), config, move |u| {
                let fd = u.open_audio().unwrap();
                let player = fork(u, "player", move |u| {
                    let (at, len) = (map(u, 24 * PAGE), 24 * PAGE);
                    u.store(at, &bytes(5, 0, len));
                    let mut done = 0;
                    while done < len {
                        match u.send(fd, at + done, len - done, SENDS[seed as usize % 2]) {
                            Ok(n) => {
                                cut.set(cut.get() + usize::from(n < len - done));
                                done += n;
                            }
                            Err(e) => assert_eq!(e, Errno::Interrupted),
                        }
                    }
                });
                let recorder = fork(u, "recorder", move |u| {
                    let at = map(u, 4 * PAGE);
                    let mut all = Vec::new();
                    while all.len() < 16 * PAGE {
                        match receive(u, fd, at, 4 * PAGE, RECEIVES[(place + seed as usize) % 4]) {
                            Ok(bytes) => all.extend(bytes),
                            Err(e) => assert_eq!(e, Errno::Interrupted),
                        }
                    }
                    in_order(&all);
                });
                u.close(fd).unwrap();
                while u.signal(player).is_ok() | u.signal(recorder).is_ok() {
                    u.compute(Instructions(100_000));
                    u.yield_now().unwrap();
                }
                u.wait().unwrap();
                u.wait().unwrap();
            });
            assert!(ended.m.played() == bytes(5, 0, 24 * PAGE), "{name} {seed}");
        }
    }
    assert!(cut.get() > 4, "{} calls were cut short", cut.get());
}

/// A process ends, or is killed, while the device has its pages: they stay until they are played.
#[test]
fn pages_outlive_their_process() {
    for (name, config) in places() {
        for killed in [false, true] {
            let ended = run(name, Schedule::Timed, config, move |u| {
                fork(u, "player", move |u| {
                    let fd = u.open_audio().unwrap();
                    let at = map(u, 8 * PAGE);
                    u.store(at, &bytes(5, 0, 8 * PAGE));
                    assert_eq!(u.send(fd, at, 8 * PAGE, SendMode::Loan), Ok(8 * PAGE));
                    assert_eq!(u.receive(fd, at, 1), Ok(1), "recording, too");
                    u.unmap(at, 8 * PAGE).unwrap();
                    if killed {
                        u.store(at, b"gone");
                        assert!(u.is_killed());
                    }
                });
                u.wait().unwrap();
            });
            assert!(ended.m.played() == bytes(5, 0, 8 * PAGE), "{name}");
        }
    }
}

#[test]
fn no_memory_at_any_point_loses_nothing() {
    let struck = Rc::new(Cell::new(0));
    for mode in [SendMode::Copy, SendMode::Loan] {
        for how in [Receive::Copy, Receive::To, Receive::Area] {
            let struck = struck.clone();
            let sent = Rc::new(Cell::new(0));
            let total = sent.clone();
            let ended = run("pentium-pro", Schedule::Timed, sockets(), move |u| {
                let fd = u.open_audio().unwrap();
                let (from, to) = (map(u, 3 * PAGE), map(u, 3 * PAGE));
                let mut heard = 0;
                for after in 0..24 {
                    u.store(from, &bytes(5, total.get(), 2 * PAGE + 50));
                    u.kernel().vm().fail_after(Some(after));
                    match u.send(fd, from, 2 * PAGE + 50, mode) {
                        Ok(n) => total.set(total.get() + n),
                        Err(e) => assert_eq!(e, Errno::NoMemory),
                    }
                    let got = receive(u, fd, to, 2 * PAGE + 50, how);
                    struck.set(struck.get() + usize::from(!u.kernel().vm().failure_pending()));
                    u.kernel().vm().fail_after(None);
                    u.kernel().check().unwrap();
                    match got {
                        Ok(got) => {
                            assert!(got == Model::sound(heard, got.len()));
                            heard += got.len() as u64;
                        }
                        Err(e) => assert_eq!(e, Errno::NoMemory),
                    }
                }
                u.close(fd).unwrap();
            });
            assert!(ended.m.played() == bytes(5, 0, sent.get()), "{mode:?} {how:?}");
        }
    }
    assert!(struck.get() > 20, "only {} allocations failed", struck.get());
}

/// A card records into memory of its own, which it keeps: what is received is copied, however it is asked for (UVM
/// paper, 4.2.3, of memory on network cards).
#[test]
fn pages_of_a_card_are_never_given_away() {
    for how in RECEIVES {
        let config = KernelConfig { measures_at_boot: how == Receive::Auto, ..sockets() };
        let ended = run("pentium", Schedule::Timed, config, move |u| {
            for round in 0..2 {
                let fd = u.open_audio().unwrap();
                let at = map(u, 6 * PAGE);
                let mut all = Vec::new();
                while all.len() < 10 * PAGE {
                    all.extend(receive(u, fd, at, 6 * PAGE, how).unwrap());
                    u.kernel().check().unwrap();
                }
                assert!(round > 0 || all == Model::sound(0, all.len()), "{how:?}");
                u.close(fd).unwrap();
                u.unmap(at, 6 * PAGE).unwrap();
            }
        });
        // Without an address what is copied is gathered in pages of the kernel's.
        let moved = ended.counter(KernelCounter::PagesDonated) + ended.counter(KernelCounter::PagesLentOn);
        // Before it chooses, the kernel measures, with pages of its own.
        assert!(how == Receive::Auto || (moved > 0) == (how == Receive::Area), "{how:?}: {moved}");
    }
}

/// What was recorded is sound in order, page by page; between two pages something may have been missed.
fn in_order(all: &[u8]) {
    let mut position = 0;
    for (index, page) in all.chunks(PAGE).enumerate() {
        let heard_at = |gap: u64, len: usize| Model::sound(position + gap, len) == page[..len];
        // The beginning may come again by chance, the page does not.
        let gap = (0..1u64 << 31).find(|&gap| heard_at(gap, 8.min(page.len())) && heard_at(gap, page.len()));
        position += gap.unwrap_or_else(|| panic!("page {index} is not what was to be heard later"));
        position += page.len() as u64;
    }
}

/// Played is played: the loan is over without another call.
#[test]
fn what_has_been_played_comes_back_by_itself() {
    for (name, config) in places() {
        let ended = run(name, Schedule::Timed, config, |u| {
            let fd = u.open_audio().unwrap();
            let at = map(u, 4 * PAGE);
            u.watch_loans(true).unwrap();
            for round in 0..3 {
                u.store(at, &bytes(5, round * 4 * PAGE, 4 * PAGE));
                assert_eq!(u.send(fd, at, 4 * PAGE, SendMode::Loan), Ok(4 * PAGE));
                assert!(u.pages_on_loan().unwrap() > 0);
                u.wait_for_loans().unwrap();
                assert_eq!(u.machine().played().len(), (round + 1) * 4 * PAGE);
            }
            u.close(fd).unwrap();
        });
        assert!(ended.m.played() == bytes(5, 0, 12 * PAGE));
        assert_eq!(
            ended.counter(VmCounter::CowCopies),
            0,
            "a sender that waits for its pages writes without a copy"
        );
    }
}

/// Another process waits for the device, for long: a nonblocking call does not wait for it to be done.
#[test]
fn a_nonblocking_call_does_not_wait_for_a_blocking_one() {
    for (name, config) in places() {
        run(name, Schedule::Timed, config, move |u| {
            let fd = u.open_audio().unwrap();
            let player = fork(u, "player", move |u| {
                let at = map(u, 24 * PAGE);
                assert_eq!(u.write(fd, at, 24 * PAGE), Ok(24 * PAGE));
            });
            let recorder = fork(u, "recorder", move |u| {
                let at = map(u, 24 * PAGE);
                for _ in 0..4 {
                    assert!(u.receive(fd, at, 24 * PAGE).unwrap() > 0);
                }
            });
            until_asleep(u, player);
            until_asleep(u, recorder);
            u.set_nonblocking(fd, true).unwrap();
            let at = map(u, PAGE);
            let began = u.machine().now();
            assert_eq!(u.send(fd, at, PAGE, SendMode::Copy), Err(Errno::WouldBlock));
            assert_eq!(u.receive(fd, at, PAGE), Err(Errno::WouldBlock));
            let cycles = u.machine().now().0 - began.0;
            // A page takes 4.6 million at the least.
            assert!(cycles < 1_000_000, "{name}: {cycles} cycles");
            u.set_nonblocking(fd, false).unwrap();
            u.wait().unwrap();
            u.wait().unwrap();
        });
    }
}
