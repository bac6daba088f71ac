//! What a receiver by transfer may count on: every byte came once, by page or by copy; nothing else can be read; and a
//! lender is notified when its page is in use no longer, not before.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::FrameState;
use std::cell::Cell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const SENDS: [SendMode; 2] = [SendMode::Copy, SendMode::Loan];

/// Receives up to `len` bytes, to `at` or to the transfer area, and holds the answer against what was counted: bytes
/// received are pages given, pages lent on, and bytes copied.
fn receive(u: &U, fd: Fd, at: Option<Va>, len: usize) -> Received {
    let copied = || u.machine().snapshot().counter(KernelCounter::TransferBytesCopied);
    let before = copied();
    let got = u.receive_transfer(fd, at, len).unwrap();
    let copied = (copied() - before) as usize;
    let pages = got.donated_pages + got.lent_pages;
    if at.is_none() && copied > 0 {
        // One page was gathered by copies.
        assert_eq!((got.donated_pages, got.lent_pages, got.len_bytes), (1, 0, copied), "{got:?}");
        assert!(copied <= PAGE);
    } else {
        assert_eq!(got.len_bytes, pages * PAGE + copied, "{got:?}, {copied} bytes copied");
    }
    u.kernel().check().unwrap();
    got
}

#[test]
fn what_is_received_came_by_page_or_by_copy() {
    for (name, config) in [("xeon-up", sockets()), ("opteron-mp", sockets())] {
        for send in SENDS {
            run(name, Schedule::Timed, config, move |u| {
                let (a, b) = u.socket_pair().unwrap();
                let whole = 6 * PAGE;
                let (from, to) = (map(u, whole), map(u, whole));
                let (mut by_page, mut by_copy) = (0, 0);
                for (round, len) in [1, 100, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 77].into_iter().enumerate()
                {
                    for (skew, in_skew) in [(0, 0), (0, 9), (100, 0), (100, 100)] {
                        for area in [false, true] {
                            // What is beside the message is a secret, there and here.
                            u.store(from, &vec![0x5e; whole]);
                            u.store(from + skew, &bytes(round as u64, 0, len));
                            u.store(to, &vec![0x11; whole]);
                            assert_eq!(u.send(a, from + skew, len, send), Ok(len));
                            let mut done = 0;
                            while done < len {
                                let at = (!area).then_some(to + in_skew + done);
                                let got = receive(u, b, at, len - done);
                                by_page += got.donated_pages + got.lent_pages;
                                by_copy += usize::from(!got.len_bytes.is_multiple_of(PAGE));
                                let (first, end) = (got.at.page(), got.at + got.len_bytes);
                                let pages = (end - first).div_ceil(PAGE);
                                let mut all = vec![0; pages * PAGE];
                                u.load(first, &mut all);
                                let beside = if area { 0 } else { 0x11 };
                                let skip = got.at.offset();
                                let message = bytes(round as u64, done, got.len_bytes);
                                assert!(all[skip..][..got.len_bytes] == message, "the message is damaged");
                                let before =
                                    &all[..skip.saturating_sub(if area { 0 } else { in_skew + done })];
                                let behind = &all[skip + got.len_bytes..];
                                let clear = before.iter().chain(behind).all(|&byte| byte == beside);
                                assert!(clear, "bytes that were not sent can be read");
                                done += got.len_bytes;
                                if area {
                                    u.anflush(got.at, pages * PAGE).unwrap();
                                }
                            }
                        }
                    }
                }
                assert!(by_page > 0 && by_copy > 0, "{by_page} pages, {by_copy} times by copy");
            });
        }
    }
}

/// A cluster that had the bytes of others becomes a page of the receiver's: it shows nothing of them, unless the kernel
/// forgets to clear it.
#[test]
fn a_gathered_page_shows_nothing_of_its_last_user() {
    for defect in [Planted::NONE, KernelDefect::GatheredPageNotCleared.into()] {
        let shown = Rc::new(Cell::new(None));
        let seen = shown.clone();
        let config = KernelConfig { defect, ..sockets() };
        run("xeon-up", Schedule::Timed, config, move |u| {
            let (a, b) = u.socket_pair().unwrap();
            let at = map(u, PAGE);
            u.store(at, &[0x5e; PAGE]);
            assert_eq!(u.send(a, at, PAGE, SendMode::Copy), Ok(PAGE));
            assert_eq!(u.receive(b, at, PAGE), Ok(PAGE));
            assert_eq!(u.send(a, at, 100, SendMode::Copy), Ok(100));
            let got = receive(u, b, None, PAGE);
            let mut rest = vec![0; PAGE - 100];
            u.load(got.at + 100, &mut rest);
            seen.set(Some(rest.contains(&0x5e)));
        });
        assert_eq!(shown.get(), Some(defect != Planted::NONE), "{defect:?}");
    }
}

/// A page that has been received is the receiver's alone: not the socket's, not the pool's.
#[test]
fn a_page_that_was_received_is_in_no_socket() {
    for send in SENDS {
        run("xeon-up", Schedule::Timed, sockets(), move |u| {
            let (a, b) = u.socket_pair().unwrap();
            let (from, to) = (map(u, 4 * PAGE), map(u, 4 * PAGE));
            u.store(from, &bytes(1, 0, 4 * PAGE));
            let vm = u.kernel().vm().clone();
            let data = vm.kernel_pages(1).unwrap();
            assert!(matches!(vm.frame_info(data.frames()[0]).state, FrameState::Kernel(_)));
            vm.free_kernel_pages(data);
            assert_eq!(u.send(a, from, 4 * PAGE, send), Ok(4 * PAGE));
            // The loan of a message is one: it lasts until all of it was received.
            let half = receive(u, b, Some(to), 2 * PAGE);
            assert_eq!(half.donated_pages + half.lent_pages, 2);
            let state = |page: usize| vm.frame_info(u.frame_behind(to + page * PAGE).unwrap());
            let (first, second) = (state(0), u.frame_behind(to));
            assert_eq!(first.state, FrameState::Anon);
            assert_eq!(
                (first.loan_count > 0, first.wire_count > 0),
                (send == SendMode::Loan, send == SendMode::Loan)
            );
            receive(u, b, Some(to + 2 * PAGE), 2 * PAGE);
            for page in 0..4 {
                let info = state(page);
                assert_eq!((info.state, info.loan_count, info.wire_count), (FrameState::Anon, 0, 0));
            }
            assert_eq!(u.frame_behind(to), second);
            let lent = u.frame_behind(from) == u.frame_behind(to);
            assert_eq!(lent, send == SendMode::Loan, "sender and receiver share what was lent");
        });
    }
}

/// Pages that a device plays come back with a call behind their end: never before, and each once.
#[test]
fn a_loan_to_a_device_lasts_until_it_was_played() {
    let (held, back) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let counts = (held.clone(), back.clone());
    run("pentium-pro", Schedule::Timed, sockets(), move |u| {
        let fd = u.open_audio().unwrap();
        let at = map(u, 2 * PAGE);
        u.watch_loans(true).unwrap();
        for round in 1..=20 {
            u.store(at, &bytes(round, 0, 2 * PAGE));
            assert_eq!(u.send(fd, at, 2 * PAGE, SendMode::Loan), Ok(2 * PAGE));
            let sent = round as usize * 2 * PAGE;
            let out = u.pages_on_loan().unwrap() * PAGE;
            let played = u.machine().played().len();
            assert!(out + played >= sent, "{sent} bytes sent, {played} played, only {out} out");
            counts.0.set(counts.0.get() + usize::from(out > 0));
            counts.1.set(counts.1.get() + usize::from(out < sent));
            u.compute(Instructions(400_000));
        }
        u.close(fd).unwrap();
        assert_eq!(u.pages_on_loan(), Ok(0));
        assert_eq!(u.machine().played().len(), 40 * PAGE);
    });
    assert!(held.get() > 0 && back.get() > 0, "{} times out, {} times back", held.get(), back.get());
}
