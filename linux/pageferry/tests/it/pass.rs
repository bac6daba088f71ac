//! Ranges with holes.

use crate::first::{has, mmu_here};
use pageferry::*;
use std::time::Duration;

fn pair() -> (Sender, Receiver) {
    Channel::pair(Config::new().slots(6).slot_bytes(2 << 20)).unwrap()
}

fn filled(tx: &Sender, len: usize, byte: u8) -> Buffer {
    let mut buffer = tx.buffer(len).unwrap();
    buffer.fill(byte);
    buffer
}

fn ranges(tx: &Sender) -> Vec<Range> {
    vec![
        Range::Hole(100),
        Range::Memory(filled(tx, 5000, 1)),
        Range::Hole(1 << 40),
        Range::Memory(filled(tx, 3 << 20, 2)),
        Range::Memory(filled(tx, 1, 3)),
    ]
}

const STARTS: [u64; 3] = [100, 5100 + (1 << 40), 5100 + (1 << 40) + (3 << 20)];

#[test]
fn ranges_are_lent_copy_on_write() {
    if !mmu_here() {
        return;
    }
    let (tx, rx) = pair();
    for _ in 0..3 {
        let passing = tx.pass(ranges(&tx), PassMode::Copy).unwrap();
        let Message::Passed(mut passed) = rx.recv_message().unwrap() else { panic!("not ranges") };
        assert_eq!((passed.count(), passed.len()), (3, STARTS[2] + 1));
        let found: Vec<_> = passed.ranges().map(|(at, bytes)| (at, bytes.len(), bytes[0])).collect();
        assert_eq!(found, [(STARTS[0], 5000, 1), (STARTS[1], 3 << 20, 2), (STARTS[2], 1, 3)]);
        passed.range_mut(1).unwrap().fill(9);
        assert!(passed.range_mut(3).is_err());
        assert!(!passing.is_home().unwrap());
        drop(passed);
        let buffers = passing.wait().unwrap();
        assert!(buffers.iter().zip(1..).all(|(buffer, byte)| buffer.iter().all(|&b| b == byte)));
    }
    assert_eq!((tx.counters().slots_taken, rx.counters().slots_held), (0, 0));
    if has("PAGEMAP_SCAN") {
        assert_eq!(tx.counters().pages_written, 3 * (3 << 20) / 4096);
    }
}

#[test]
fn ranges_are_donated_and_leave_zeros() {
    let (tx, rx) = pair();
    for mode in [PassMode::Donate, PassMode::DonateZero] {
        if mode == PassMode::DonateZero && !has("alias") {
            continue;
        }
        let passing = tx.pass(ranges(&tx), mode).unwrap();
        let Message::Passed(mut passed) = rx.recv_message().unwrap() else { panic!("not ranges") };
        passed.range_mut(2).unwrap()[0] = 77;
        assert_eq!(passed.ranges().nth(2).unwrap().1, [77]);
        drop(passed);
        let buffers = passing.wait().unwrap();
        // Donated memory comes back as its receiver has left it.
        assert_eq!((buffers[0][0], buffers[2][0]), (1, 77));
    }
    assert_eq!((tx.counters().slots_taken, rx.counters().slots_held), (0, 0));
}

#[test]
fn ranges_in_one_piece_have_zeros_in_the_holes() {
    let (tx, rx) = pair();
    for mode in [PassMode::Share, PassMode::Copy, PassMode::Donate] {
        if mode == PassMode::Copy && !mmu_here() {
            continue;
        }
        let parts =
            vec![Range::Memory(filled(&tx, 10, 1)), Range::Hole(5), Range::Memory(filled(&tx, 10, 2))];
        drop(tx.pass(parts, mode).unwrap());
        let whole = rx.recv().unwrap();
        assert_eq!(*whole, [&[1; 10][..], &[0; 5], &[2; 10]].concat());
    }
    assert_eq!((tx.counters().slots_taken, tx.counters().out, rx.counters().slots_held), (0, 0, 0));
    assert_eq!(rx.counters().bytes_held, 0);
}

#[test]
fn a_hole_that_no_memory_would_hold_is_an_error_and_the_ranges_wait_to_be_taken_as_they_are() {
    if !mmu_here() {
        return;
    }
    let (tx, rx) = pair();
    drop(tx.pass(ranges(&tx), PassMode::Copy).unwrap());
    for _ in 0..2 {
        assert!(matches!(rx.recv(), Err(Error::Budget { .. })));
    }
    let Message::Passed(passed) = rx.recv_message().unwrap() else { panic!("not ranges") };
    assert_eq!(passed.count(), 3);
    drop(passed);
    assert_eq!((tx.counters().out, rx.counters().slots_held), (0, 0));
    tx.copy(b"next").unwrap();
    assert_eq!(*rx.recv().unwrap(), *b"next");
}

#[test]
fn no_memory_or_too_many_ranges_are_refused() {
    if !mmu_here() {
        return;
    }
    let (tx, _rx) = Channel::pair(Config::new().slots(6).slot_bytes(1).inline_bytes(64)).unwrap();
    assert!(matches!(tx.pass(vec![Range::Hole(5)], PassMode::Copy), Err(Error::Usage(_))));
    let three = (0..3).map(|_| Range::Memory(tx.buffer(1).unwrap())).collect();
    assert!(matches!(
        tx.pass(three, PassMode::Copy),
        Err(Error::Usage(Usage::Config { key: "inline_bytes", .. }))
    ));
    assert_eq!(tx.counters().slots_taken, 0);
}

/// What another thread drops is had by who waits, whatever it was sent as: here tokens of messages that are home.
#[test]
fn tokens_that_another_thread_drops_free_slots_for_who_waits() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (tx, rx) = Channel::pair(Config::new().slots(3).slot_bytes(1).spin(Duration::ZERO)).unwrap();
        let out = tx.loan(tx.buffer(1).unwrap()).unwrap();
        let held = rx.recv().unwrap();
        for shares in [false, true, false, true] {
            let first = tx.buffer(1).unwrap();
            let other = tx.buffer(1).unwrap();
            let token: Box<dyn Send> = if shares {
                Box::new(tx.share(first).unwrap())
            } else {
                Box::new(tx.pass(vec![Range::Memory(first)], PassMode::Copy).unwrap())
            };
            drop(rx.recv_message().unwrap());
            // It is home, and the token alone keeps its slots.
            let dropper = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                drop(token);
            });
            drop(tx.buffer(1).unwrap());
            dropper.join().unwrap();
            drop(other);
        }
        drop((held, out));
        done.send(()).unwrap();
    });
    finished.recv_timeout(Duration::from_secs(60)).expect("it is woken");
}
