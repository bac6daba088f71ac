//! Choosing between copy and move: the bytes are the same, and what is chosen follows what it costs.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use std::cell::Cell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;

/// A kernel that measures before its programs begin.
fn at_boot() -> KernelConfig {
    KernelConfig { measures_at_boot: true, ..sockets() }
}

#[test]
fn the_bytes_are_what_was_sent_whatever_is_chosen() {
    let seeded = |seed| ("xeon-mp", Schedule::Seeded(seed));
    let timed = |machine| (machine, Schedule::Timed);
    for (machine, schedule) in [timed("xeon-up"), timed("opteron-mp"), seeded(1), seeded(2), seeded(3)] {
        run(machine, schedule, at_boot(), |u| {
            let (a, b) = u.socket_pair().unwrap();
            let max_bytes = 16 * PAGE;
            let (from, to) = (map(u, max_bytes + PAGE), map(u, max_bytes));
            for (n, len) in
                [1, 100, PAGE, PAGE + 1, 5 * PAGE, max_bytes].into_iter().cycle().take(36).enumerate()
            {
                let skew = if n % 5 == 4 { 7 } else { 0 };
                let sent = bytes(n as u64, 0, len);
                u.store(from + skew, &sent);
                assert_eq!(u.send(a, from + skew, len, SendMode::Auto), Ok(len));
                // What is sent is what was there at the time.
                u.store(from + skew, &bytes(n as u64 + 1000, 0, len));
                let mut got = Vec::new();
                while got.len() < len {
                    let part = u.receive_auto(b, to, len - got.len()).unwrap();
                    let mut read = vec![0; part.len_bytes];
                    u.load(part.at, &mut read);
                    got.extend(read);
                }
                assert!(got == sent, "message {n} of {len} bytes");
                u.kernel().check().unwrap();
            }
        });
    }
}

#[test]
fn much_is_lent_and_little_is_copied() {
    let ended = run("xeon-up", Schedule::Timed, sockets(), |u| {
        let null = u.null_socket().unwrap();
        let at = map(u, 256 * PAGE);
        u.store(at, &bytes(1, 0, 256 * PAGE));
        let lent = || u.kernel().machine().snapshot().counter(KernelCounter::PagesLent);
        u.measure_moves().unwrap();
        let before = lent();
        u.send(null, at, 100, SendMode::Auto).unwrap();
        u.send(null, at + 10, PAGE, SendMode::Auto).unwrap();
        assert_eq!(lent(), before, "there is no whole page");
        u.send(null, at, 256 * PAGE, SendMode::Auto).unwrap();
        assert_eq!(lent(), before + 256);
    });
    drop(ended);
}

#[test]
fn a_sender_that_breaks_its_loans_is_not_lent_for_any_more_until_it_stops() {
    let ended = run("xeon-up", Schedule::Timed, sockets(), |u| {
        let (a, b) = u.socket_pair().unwrap();
        let len = 2 * PAGE;
        let (from, to) = (map(u, len), map(u, len));
        let lent = || u.kernel().machine().snapshot().counter(KernelCounter::PagesLent);
        let round = |n: u64, rewrite: bool| {
            let before = lent();
            u.send(a, from, len, SendMode::Auto).unwrap();
            let pages = lent() - before;
            if rewrite {
                u.store(from, &bytes(n, 0, len));
            }
            let mut got = 0;
            while got < len {
                got += u.receive(b, to, len - got).unwrap();
            }
            pages
        };
        u.store(from, &bytes(0, 0, len));
        u.measure_moves().unwrap();
        round(0, false);
        let quiet: u64 = (0..100).map(|n| round(n, false)).sum();
        let broken: u64 = (0..100).map(|n| round(n, true)).sum();
        for n in 0..400 {
            round(n, false);
        }
        let after: u64 = (0..100).map(|n| round(n, false)).sum();
        // Without the counts all would be lent, or nothing.
        assert!(quiet >= 190, "{quiet} pages lent in 100 calls of two");
        assert!(broken < 20, "{broken} pages lent, although each loan was broken");
        assert!(after >= 190, "{after} pages lent in 100 calls, long after it had stopped");
    });
    drop(ended);
}

/// A hint for more than there is memory is a hint as well.
#[test]
fn a_buffer_of_any_length_may_be_asked_about() {
    run("xeon-mp", Schedule::Timed, sf_buf(64), |u| {
        for len in [0, 1, usize::MAX / 2, usize::MAX] {
            assert!(u.choose_carrier(len, Arrived::Touched).is_ok());
        }
    });
}

/// A call that is to move data never measures: without costs it copies, takes no longer for it, and makes no process or
/// thread, nor does a later one.
#[test]
fn without_costs_everything_is_copied_and_nothing_is_measured() {
    let ended = run("xeon-mp", Schedule::Timed, sockets(), |u| {
        let (a, b) = u.socket_pair().unwrap();
        let (from, to) = (map(u, 16 * PAGE), map(u, 16 * PAGE));
        let count = |counter| u.kernel().machine().snapshot().counter(counter);
        let round = |mode| {
            let began = u.machine().now();
            assert_eq!(u.send(a, from, 8 * PAGE, mode), Ok(8 * PAGE));
            let took = u.machine().now() - began;
            let mut got = 0;
            while got < 8 * PAGE {
                got += match mode {
                    SendMode::Auto => u.receive_auto(b, to, 8 * PAGE - got).unwrap().len_bytes,
                    _ => u.receive(b, to, 8 * PAGE - got).unwrap(),
                };
            }
            took.0
        };
        (0..4).for_each(|_| _ = round(SendMode::Copy));
        let before = (count(KernelCounter::PagesLent), count(KernelCounter::Switches));
        let copied = round(SendMode::Copy);
        let first = round(SendMode::Auto);
        assert!(first < copied + copied / 10, "the first choice took {first} cycles, a copy {copied}");
        (0..40).for_each(|_| _ = round(SendMode::Auto));
        assert_eq!(u.choose_carrier(64 * PAGE, Arrived::Untouched), Ok(Carrier::Socket));
        assert_eq!((count(KernelCounter::PagesLent), count(KernelCounter::Switches)), before);
    });
    drop(ended);
}

/// All programs that are made at boot find the costs known, whichever runs first.
#[test]
fn a_kernel_measures_before_its_programs_begin() {
    for schedule in [Schedule::Timed, Schedule::Seeded(1), Schedule::Seeded(2), Schedule::Seeded(3)] {
        let m = machine("xeon-mp", schedule);
        let begun = Rc::new(Cell::new(0));
        let boot = begun.clone();
        m.run(Box::new(move |m| {
            let kernel = Kernel::boot(m.clone(), m.devices(), at_boot()).unwrap();
            for name in ["one", "two", "three"] {
                let begun = boot.clone();
                let program: Program<pageferry_model::Model> = Box::new(move |u| {
                    let null = u.null_socket().unwrap();
                    let at = map(u, 64 * PAGE);
                    u.store(at, &bytes(1, 0, 64 * PAGE));
                    let lent = || u.machine().snapshot().counter(KernelCounter::PagesLent);
                    let before = lent();
                    u.send(null, at, 64 * PAGE, SendMode::Auto).unwrap();
                    assert!(lent() >= before + 64, "{schedule:?}: the first choice has costs");
                    begun.set(begun.get() + 1);
                });
                kernel.spawn(name, program).unwrap();
            }
            let next = kernel.run();
            kernel.check_quiescent().unwrap();
            next
        }))
        .unwrap();
        assert_eq!(begun.get(), 3);
    }
}
