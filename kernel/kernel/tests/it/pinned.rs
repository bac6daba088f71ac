//! Sending pages that are only pinned: what a sender may not do before it learns that they are back, and what becomes
//! of them when it does it, or is gone.

use crate::common::far::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_model::net::Wire;
use pageferry_model::net::smol::{Service, SmolConfig, SmolFarEnd};
use pageferry_vm::VmCounter;

const PAGE: usize = PAGE_SIZE;
const LEN: usize = 2 * PAGE;

/// What comes from `fd` by copy.
fn received(u: &U, fd: Fd, len: usize) -> Vec<u8> {
    let at = map(u, len);
    let mut got = 0;
    while got < len {
        match u.receive(fd, at + got, len - got).expect("connected") {
            0 => break,
            n => got += n,
        }
    }
    let mut there = vec![0; got];
    u.load(at, &mut there);
    there
}

/// No write to a pinned page copies it, none faults, and a reader gets what is there when it reads: by copy, for a page
/// that its sender may write cannot be the reader's own.
#[test]
fn what_is_pinned_can_be_written_and_is_nobody_elses() {
    for name in ["xeon-up", "xeon-mp", "opteron-mp"] {
        run(name, Schedule::Timed, sockets(), |u| {
            let (to, from) = u.socket_pair().expect("sockets");
            let (at, got) = (map(u, LEN), map(u, LEN));
            u.watch_loans(true).expect("alive");
            u.store(at, &bytes(1, 0, LEN));
            let count = |counter: VmCounter| u.machine().snapshot().counter(counter);
            assert_eq!(u.send(to, at, LEN, SendMode::Pin), Ok(LEN));
            assert_eq!(u.pages_on_loan(), Ok(2));
            let before = (count(VmCounter::CowCopies), count(VmCounter::PageFaults));
            u.store(at + PAGE, b"written meanwhile");
            assert_eq!((count(VmCounter::CowCopies), count(VmCounter::PageFaults)), before);
            let came = u.receive_transfer(from, Some(got), LEN).expect("it is there");
            assert_eq!((came.len_bytes, came.lent_pages, came.donated_pages), (LEN, 0, 0));
            assert_eq!((u.pages_on_loan(), u.wait_for_loans()), (Ok(0), Ok(())));
            let mut expected = bytes(1, 0, LEN);
            expected[PAGE..][..17].copy_from_slice(b"written meanwhile");
            let mut there = vec![0; LEN];
            u.load(got, &mut there);
            assert!(there == expected);
        });
    }
}

#[test]
fn bytes_that_fill_no_page_are_copied_and_what_is_not_there_is_refused() {
    run("xeon-mp", Schedule::Timed, sockets(), |u| {
        let (to, from) = u.socket_pair().expect("sockets");
        let at = map(u, 3 * PAGE);
        u.watch_loans(true).expect("alive");
        u.store(at, &bytes(2, 0, 3 * PAGE));
        assert_eq!(u.send(to, at + 100, PAGE + 4000, SendMode::Pin), Ok(PAGE + 4000));
        assert_eq!(u.pages_on_loan(), Ok(1), "only one is whole");
        u.store(at, &[0xee; PAGE]);
        let mut expected = bytes(2, 0, 3 * PAGE)[100..][..PAGE + 4000].to_vec();
        assert!(received(u, from, expected.len()) == expected, "what was copied is as it was");
        assert_eq!(u.send(to, Va(0x10), PAGE, SendMode::Pin), Err(Errno::Fault));
        // As far as there is memory.
        u.unmap(at + 2 * PAGE, PAGE).expect("mapped");
        let sent = u.send(to, at + PAGE, 2 * PAGE, SendMode::Pin).expect("a page of it is there");
        assert_eq!(sent, PAGE);
        expected = bytes(2, PAGE, PAGE);
        assert!(received(u, from, sent) == expected);
        assert_eq!(u.pages_on_loan(), Ok(0));
    });
    run("xeon-up", Schedule::Timed, sf_buf(64), |u| {
        let (_, write) = u.pipe().expect("a pipe");
        let at = map(u, PAGE);
        u.store(at, b"x");
        assert_eq!(u.send(write, at, PAGE, SendMode::Pin), Err(Errno::NotSupported), "no socket");
    });
}

/// What a process had pinned that is gone is read as it was, and freed then.
#[test]
fn what_is_pinned_outlives_its_sender() {
    for killed in [false, true] {
        run("xeon-mp", Schedule::Timed, sockets(), move |u| {
            let (to, from) = u.socket_pair().expect("sockets");
            let child = fork(u, "sender", move |u| {
                let at = map(u, LEN);
                u.store(at, &bytes(3, 0, LEN));
                assert_eq!(u.send(to, at, LEN, SendMode::Pin), Ok(LEN));
                while killed && u.sleep_for(Cycles(1_000_000)).is_ok() {}
            });
            if killed {
                u.sleep_for(Cycles(3_000_000)).expect("alive");
                u.kill(child).expect("a child");
            }
            assert_eq!(u.wait(), Ok(child));
            u.close(to).expect("open");
            assert!(received(u, from, LEN) == bytes(3, 0, LEN));
        });
    }
}

/// Over a wire that loses frames: a page that may have to be sent again is not back, however long ago it was sent. A
/// sender that writes too early sends what it wrote, and one that waits does not.
#[test]
fn a_page_is_back_when_the_far_end_has_it() {
    on_named_machines!();
    for name in ["xeon-mp", "today"] {
        for waits in [true, false] {
            const ROUNDS: u64 = 12;
            let config = SmolConfig { ip: FAR_ADDRESS, seed: 1, ..SmolConfig::default() };
            let mut far = SmolFarEnd::new(config);
            far.listen(ECHO.port(), Service::Echo);
            let wire = Wire { seed: 5, loss_ppm: 50_000, delay_ns: 200_000, ..Wire::default() };
            let m = machine_with(name, Schedule::Timed, wire, far);
            let right = std::rc::Rc::new(std::cell::Cell::new(0));
            let counted = right.clone();
            run_on(m, name, &format!("waits {waits}"), internet(), move |u| {
                let fd = connected(u, ECHO);
                let at = map(u, LEN);
                u.watch_loans(true).expect("alive");
                for round in 0..ROUNDS {
                    u.store(at, &bytes(round, 0, LEN));
                    assert_eq!(u.send(fd, at, LEN, SendMode::Pin), Ok(LEN));
                    if waits {
                        u.wait_for_loans().expect("watched");
                    }
                    u.store(at, &[0xdd; LEN]);
                    counted.set(counted.get() + u64::from(received(u, fd, LEN) == bytes(round, 0, LEN)));
                }
                u.close(fd).expect("open");
            });
            match waits {
                true => assert_eq!(right.get(), ROUNDS, "{name}"),
                false => assert!(right.get() < ROUNDS, "{name}: nothing tells too early from in time"),
            }
        }
    }
}
