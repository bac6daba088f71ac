//! A process as a lender: it knows what of its memory is out, and can wait until it is back.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::VmCounter;
use std::cell::Cell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;

fn places() -> [(&'static str, Schedule); 4] {
    [
        ("xeon-up", Schedule::Timed),
        ("xeon-mp-htt", Schedule::Timed),
        ("xeon-mp-htt", Schedule::Seeded(3)),
        ("opteron-mp", Schedule::Seeded(4)),
    ]
}

/// Sends its buffer by loan again and again, with other contents each time.
fn sender(waits: bool) -> u64 {
    let mut copies = 0;
    for (name, schedule) in places() {
        let ended = run(name, schedule, sockets(), move |u| {
            let (to, from) = u.socket_pair().unwrap();
            let (at, len) = (map(u, 2 * PAGE), 2 * PAGE);
            let reader = fork(u, "reader", move |u| {
                u.close(to).unwrap();
                let at = map(u, len);
                for round in 0..8 {
                    let mut got = 0;
                    while got < len {
                        let n = u.receive(from, at + got, len - got).unwrap();
                        let mut part = vec![0; n];
                        u.load(at + got, &mut part);
                        assert!(part == bytes(round, got, n));
                        got += n;
                    }
                }
            });
            u.close(from).unwrap();
            assert_eq!(u.wait_for_loans(), Err(Errno::Invalid), "loans are not watched");
            u.watch_loans(true).unwrap();
            assert_eq!(u.pages_on_loan(), Ok(0));
            assert_eq!(u.wait_for_loans(), Ok(()), "nothing is out");
            for round in 0..8 {
                u.store(at, &bytes(round, 0, len));
                assert_eq!(u.send(to, at, len, SendMode::Loan), Ok(len));
                if waits {
                    u.wait_for_loans().unwrap();
                    assert_eq!(u.pages_on_loan(), Ok(0));
                }
            }
            assert_eq!(u.wait(), Ok(reader));
        });
        // Pages that were copied because a write broke their loan.
        copies += ended.counter(VmCounter::CowCopies);
    }
    copies
}

#[test]
fn who_waits_for_its_pages_writes_to_them_without_a_copy() {
    assert_eq!(sender(true), 0);
    assert!(sender(false) > 0, "a sender that does not wait breaks loans");
}

#[test]
fn what_is_out_is_counted_until_nobody_has_it() {
    run("xeon-mp", Schedule::Timed, sockets(), |u| {
        let (to, from) = u.socket_pair().unwrap();
        let (at, got) = (map(u, 2 * PAGE), map(u, PAGE));
        u.watch_loans(true).unwrap();
        u.store(at, &bytes(1, 0, PAGE));
        assert_eq!(u.send(to, at, PAGE, SendMode::Loan), Ok(PAGE));
        assert_eq!(u.pages_on_loan(), Ok(1));
        // Part of a page that has been received is out still.
        assert_eq!(u.receive(from, got, 100), Ok(100));
        assert_eq!(u.pages_on_loan(), Ok(1));
        // So is one whose owner has let it go.
        u.unmap(at, 2 * PAGE).unwrap();
        assert_eq!(u.pages_on_loan(), Ok(1));
        assert_eq!(u.receive(from, got, PAGE), Ok(PAGE - 100));
        assert_eq!(u.pages_on_loan(), Ok(0));
        // What is thrown away unread comes back.
        let at = map(u, PAGE);
        assert_eq!(u.send(to, at, PAGE, SendMode::Loan), Ok(PAGE));
        assert_eq!(u.pages_on_loan(), Ok(1));
        u.close(from).unwrap();
        assert_eq!(u.pages_on_loan(), Ok(0));
        // What goes to the null protocol is back at once, and a copy was never out.
        let null = u.null_socket().unwrap();
        assert_eq!(u.send(null, at, PAGE, SendMode::Loan), Ok(PAGE));
        assert_eq!(u.pages_on_loan(), Ok(0));
        // Loans that were watched when they were made are counted to their end, watched then or not.
        let (to, from) = u.socket_pair().unwrap();
        assert_eq!(u.send(to, at, PAGE, SendMode::Loan), Ok(PAGE));
        u.watch_loans(false).unwrap();
        assert_eq!(u.pages_on_loan(), Err(Errno::Invalid));
        assert_eq!(u.receive(from, got, PAGE), Ok(PAGE));
        assert_eq!(u.send(to, at, PAGE, SendMode::Loan), Ok(PAGE));
        u.watch_loans(true).unwrap();
        assert_eq!(u.pages_on_loan(), Ok(0), "what was lent before is not known");
    });
}

#[test]
fn a_signal_ends_the_wait_and_a_lender_may_be_gone_before_its_pages() {
    let interrupted = Rc::new(Cell::new(0));
    for (name, schedule) in places() {
        let count = interrupted.clone();
        run(name, schedule, sockets(), move |u| {
            let (to, from) = u.socket_pair().unwrap();
            let lender = fork(u, "lender", move |u| {
                u.close(from).unwrap();
                u.watch_loans(true).unwrap();
                let at = map(u, PAGE);
                u.store(at, &bytes(1, 0, PAGE));
                assert_eq!(u.send(to, at, PAGE, SendMode::Loan), Ok(PAGE));
                assert_eq!(u.wait_for_loans(), Err(Errno::Interrupted));
                count.set(count.get() + 1);
                assert_eq!(u.pages_on_loan(), Ok(1));
            });
            until_asleep(u, lender);
            u.signal(lender).unwrap();
            assert_eq!(u.wait(), Ok(lender));
            let at = map(u, PAGE);
            assert_eq!(u.receive(from, at, PAGE), Ok(PAGE));
            let mut got = vec![0; PAGE];
            u.load(at, &mut got);
            assert!(got == bytes(1, 0, PAGE));
        });
    }
    assert_eq!(interrupted.get(), 4);
}

/// Pages on loan to the kernel are resident: more than there is memory for cannot be lent, and nothing is lost over it.
#[test]
fn more_than_memory_cannot_be_lent() {
    for (config, resident) in [(paging(sockets(), 1024), 200), (sockets(), 200)] {
        let pages = if config.vm.paging.is_some() { 300 } else { 150 };
        run("xeon-mp", Schedule::Timed, config, move |u| {
            let hoarded = hoard(u, resident);
            let at = map(u, 600 * PAGE);
            for page in 0..pages {
                u.store(at + page * PAGE, &bytes(7, page * PAGE, PAGE));
            }
            let (vm, space) = (u.kernel().vm().clone(), u.space().clone());
            let wired = vm.wired_frames();
            let lent = space.loan_to_kernel(u.thread(), at, 600 * PAGE).map(|loan| vm.unloan(loan));
            assert_eq!(lent, Err(pageferry_vm::VmError::NoMemory));
            let lent = space.loan_to_anons(u.thread(), at, 600 * PAGE).map(|loan| vm.release_anons(loan));
            // As anons they may be on the disk: of those it takes a swap area that has room, too.
            assert_eq!(lent.is_ok(), u.kernel().config().vm.paging.is_some());
            assert_eq!(vm.wired_frames(), wired, "nothing stays wired");
            vm.check().unwrap();
            for page in 0..pages {
                let mut got = vec![0; PAGE];
                u.load(at + page * PAGE, &mut got);
                assert!(got == bytes(7, page * PAGE, PAGE), "page {page}");
            }
            vm.free_kernel_pages(hoarded);
        });
    }
}

/// A receiver by transfer has the sender's pages: the kernel's loan is over, and they are not the sender's alone.
#[test]
fn what_a_receiver_has_by_transfer_is_copied_when_written() {
    run("xeon-mp", Schedule::Timed, sockets(), |u| {
        let (to, from) = u.socket_pair().unwrap();
        let (at, got) = (map(u, PAGE), map(u, PAGE));
        u.watch_loans(true).unwrap();
        u.store(at, &bytes(1, 0, PAGE));
        assert_eq!(u.send(to, at, PAGE, SendMode::Loan), Ok(PAGE));
        assert_eq!(u.receive_transfer(from, Some(got), PAGE).map(|r| r.lent_pages), Ok(1));
        assert_eq!((u.pages_on_loan(), u.wait_for_loans()), (Ok(0), Ok(())));
        let copies = || u.machine().snapshot().counter(VmCounter::CowCopies);
        let before = copies();
        u.store(at, b"mine");
        assert_eq!(copies() - before, 1);
        let mut theirs = vec![0; PAGE];
        u.load(got, &mut theirs);
        assert!(theirs == bytes(1, 0, PAGE));
    });
}
