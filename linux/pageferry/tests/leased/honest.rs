//! Sides that keep to the protocol.

use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_loan_is_a_snapshot_and_comes_home() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    assert_eq!((tx.level(), rx.level()), (Level::Leased, Level::Leased));
    assert_eq!(tx.huge_pages(), rx.huge_pages());
    for round in 0..50u8 {
        let mut buffer = filled(&tx, 3_000_000, round);
        let at = buffer.as_mut_ptr();
        let lent = tx.loan(buffer).unwrap();
        let mut loan = rx.recv().unwrap();
        assert_eq!((loan.verb(), loan.level(), loan.len()), (Verb::Loan, Level::Leased, 3_000_000));
        // SAFETY: mapped writable, and nobody has a reference: a store of a program with a bug.
        unsafe { at.write_volatile(99) };
        assert!(all(&loan, round));
        loan.as_mut().unwrap()[5] = 98;
        assert_eq!((lent[0], lent[5]), (99, round));
        drop(loan);
        let buffer = lent.wait().unwrap();
        assert_eq!((buffer[0], buffer[5]), (round, round));
    }
    assert_eq!(tx.counters().pages_written, 50);
    assert_eq!((tx.counters().slots_taken, rx.counters().slots_held), (0, 0));
}

#[test]
fn all_slots_are_out_at_once_and_come_home_in_any_order() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    for round in 0..20u8 {
        let lent: Vec<_> = (0..4).map(|n| tx.loan(filled(&tx, LEN, 4 * round + n)).unwrap()).collect();
        assert!(matches!(tx.try_buffer(1), Err(Error::WouldBlock)));
        let mut loans: Vec<_> = (0..4).map(|_| rx.recv().unwrap()).collect();
        loans.rotate_left(usize::from(round) % 4);
        for loan in loans {
            assert!(all(&loan, 4 * round + (loan.sequence() % 4) as u8));
        }
        lent.into_iter().for_each(|lent| drop(lent.wait().unwrap()));
    }
}

#[test]
fn other_ways_to_send_work_beside_loans() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    for round in 0..5u8 {
        tx.copy(&[round; 100]).unwrap();
        tx.copy(&vec![round; 3_000_000]).unwrap();
        let lent = tx.copy_buffer(filled(&tx, 50_000, round)).unwrap();
        for len in [100, 3_000_000, 50_000] {
            let message = rx.recv().unwrap();
            assert_eq!((message.level(), message.len()), (Level::Copy, len));
            assert!(all(&message, round));
        }
        drop(lent.wait().unwrap());
        let ranges = vec![
            Range::Memory(filled(&tx, 1000, round)),
            Range::Hole(500),
            Range::Memory(filled(&tx, 3_000_000, round + 1)),
        ];
        let passing = tx.pass(ranges, PassMode::Copy).unwrap();
        let Message::Passed(passed) = rx.recv_message().unwrap() else { panic!() };
        let found: Vec<_> = passed.ranges().collect();
        assert_eq!(
            found.iter().map(|(at, bytes)| (*at, bytes.len())).collect::<Vec<_>>(),
            [(0, 1000), (1500, 3_000_000)]
        );
        assert!(all(found[0].1, round) && all(found[1].1, round + 1));
        drop(passed);
        assert_eq!(passing.wait().unwrap().len(), 2);
    }
    assert!(matches!(tx.share(tx.buffer(1).unwrap()), Err(Error::Usage(Usage::Verb(_)))));
    assert!(matches!(tx.donate(tx.buffer(1).unwrap()), Err(Error::Usage(Usage::Verb(_)))));
    assert_eq!(tx.counters().slots_taken, 0);
}

#[test]
fn what_was_lent_is_lent_again() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    let mut lent = tx.loan(filled(&tx, 3_000_000, 7)).unwrap();
    for _ in 0..10 {
        let mut loan = rx.recv().unwrap();
        assert!(all(&loan, 7) && loan.level() == Level::Leased);
        loan.as_mut().unwrap()[0] = 8;
        drop(loan);
        lent = tx.loan_again(lent).unwrap();
    }
    assert!(all(&rx.recv().unwrap(), 7));
    drop(lent.wait().unwrap());
}

#[test]
fn a_new_slot_is_zero() {
    let Some(_alone) = alone() else { return };
    let (tx, _rx) = Channel::pair(config()).unwrap();
    assert!(all(&tx.buffer(4 * LEN).unwrap(), 0));
}

#[test]
fn loans_outlive_both_ends_and_nothing_is_left_behind() {
    let Some(_alone) = alone() else { return };
    // How many descriptors lead to each file.
    let fds = || {
        let mut counts = BTreeMap::new();
        for fd in std::fs::read_dir("/proc/self/fd").unwrap() {
            // What was closed meanwhile leads nowhere.
            if let Ok(link) = std::fs::read_link(fd.unwrap().path()) {
                *counts.entry(link).or_insert(0) += 1;
            }
        }
        counts
    };
    // What is opened once in a process is open from now on.
    drop(Channel::pair(config()).unwrap());
    let before = fds();
    let (tx, rx) = Channel::pair(config()).unwrap();
    let lent = tx.loan(filled(&tx, LEN, 7)).unwrap();
    let mut loan = rx.recv().unwrap();
    drop((lent, tx, rx));
    assert!(all(&loan, 7));
    loan.as_mut().unwrap()[0] = 8;
    drop(loan);
    // A test before this one may have left some to be closed.
    let more: Vec<_> =
        fds().into_iter().filter(|(link, count)| before.get(link).is_none_or(|b| b < count)).collect();
    assert_eq!(more, []);
}

#[test]
fn a_child_of_the_sender_reads_its_data_and_is_no_writer() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    let mut buffer = filled(&tx, LEN, 7);
    // SAFETY: the child makes only calls that may be made after a fork, and stores to its own memory.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let right = all(&buffer, 7);
        buffer[0] = 9;
        // SAFETY: as above.
        unsafe { libc::_exit(if right && buffer[0] == 9 { 3 } else { 4 }) }
    }
    let _idle = Idle::fork();
    let lent = tx.loan(buffer).unwrap();
    assert!(all(&rx.recv().unwrap(), 7));
    drop(lent.wait().unwrap());
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(libc::WEXITSTATUS(status), 3);
}

#[test]
fn what_a_child_of_the_receiver_may_see_is_given_back_when_the_child_has_ended() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    let lent = tx.loan(filled(&tx, LEN, 7)).unwrap();
    let loan = rx.recv().unwrap();
    let idle = Idle::fork();
    drop(loan);
    assert!(matches!(rx.try_recv(), Err(Error::WouldBlock)));
    assert_eq!((lent.is_home(), rx.counters().retired), (Ok(false), 1));
    drop(idle);
    assert!(matches!(rx.try_recv(), Err(Error::WouldBlock)));
    assert_eq!((lent.is_home(), rx.counters().retired), (Ok(true), 0));
}

#[test]
fn programs_that_are_started_meanwhile_are_no_writers() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One by fork with handlers, one by what calls none.
        for forks in [true, false] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    if forks {
                        drop(Idle::fork());
                    } else {
                        std::process::Command::new("true").status().unwrap();
                    }
                }
            });
        }
        let stop = Stop(&done);
        for round in 0..300u32 {
            let mut buffer = loop {
                match tx.try_buffer(1 + (LEN - 1) * (round as usize % 2)) {
                    // What a child may see comes back when it has ended, to a receiver that looks.
                    Err(Error::WouldBlock) => assert!(matches!(rx.try_recv(), Err(Error::WouldBlock))),
                    buffer => break buffer.unwrap(),
                }
            };
            buffer.fill(round as u8);
            drop(tx.loan(buffer).unwrap());
            assert!(all(&rx.recv().unwrap(), round as u8));
        }
        drop(stop);
    });
}

/// Tells threads to stop, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
