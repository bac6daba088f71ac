//! Choosing between copy and move: the bytes are the same, and what is chosen follows what it costs.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;

const PAGE: usize = PAGE_SIZE;

#[test]
fn the_bytes_are_what_was_sent_whatever_is_chosen() {
    let seeded = |seed| ("xeon-mp", Schedule::Seeded(seed));
    let timed = |machine| (machine, Schedule::Timed);
    for (machine, schedule) in [timed("xeon-up"), timed("opteron-mp"), seeded(1), seeded(2), seeded(3)] {
        run(machine, schedule, sockets(), |u| {
            let (a, b) = u.socket_pair().unwrap();
            let most = 16 * PAGE;
            let (from, to) = (map(u, most + PAGE), map(u, most));
            for (n, len) in [1, 100, PAGE, PAGE + 1, 5 * PAGE, most].into_iter().cycle().take(36).enumerate()
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
        // The first of all measures.
        u.send(null, at, PAGE, SendMode::Auto).unwrap();
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
