//! What a kernel's configuration says of its protocols, as it is seen on the wire. The other end is on strings.

use crate::common::far::*;
use crate::common::puppet::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;

/// A run with `change` made to the configuration.
fn with(change: impl FnOnce(&mut NetConfig), test: impl FnOnce(&U, &Puppet) + 'static) -> Ended {
    let mut config = internet();
    change(config.net.as_mut().expect("it has one"));
    let (m, puppet) = on_strings("xeon-mp");
    run_on(m, "xeon-mp", "values", config, move |u| test(u, &puppet))
}

/// A connection that they have made, accepted.
fn call_in(u: &U, puppet: &Puppet, window: u16) -> (Fd, Hand) {
    let listening = our_server(u, 4);
    let mut hand = Hand::call(u, puppet, 1234, OUR_PORT, 1);
    hand.window = window;
    hand.say(ACK, &[]);
    hand.hear(u);
    let (fd, _) = u.accept(listening).expect("it is there");
    u.close(listening).expect("open");
    (fd, hand)
}

#[test]
fn so_many_segments_are_acknowledged_at_once() {
    for segments in [1, 2, 3] {
        let change = move |net: &mut NetConfig| (net.ack_segments, net.delayed_ack_ms) = (segments, 1000);
        with(change, move |u, puppet| {
            let (_fd, mut hand) = call_in(u, puppet, 30_000);
            for _ in 0..6 {
                hand.say(ACK, &[1; 100]);
            }
            let heard = hand.hear(u);
            assert_eq!(heard.len() as u32, 6 / segments, "{heard:?}");
            assert_eq!(heard.last().map(|seg| seg.ack), Some(hand.seq));
            // One alone waits, where it may.
            hand.say(ACK, &[1; 100]);
            assert_eq!(hand.hear(u).len(), usize::from(segments == 1));
        });
    }
}

#[test]
fn segments_are_cut_to_the_unit_and_the_first_window_is_what_is_said() {
    // The far end takes 1460 bytes at a time.
    for (unit, segments, bytes, expected) in [
        (0, 4, 4380, vec![1460, 1460, 1460]),
        (1024, 4, 4380, vec![1024, 1024, 1024, 1024]),
        (2048, 1, 100_000, vec![1460]),
        (0, 10, 0, vec![1460, 1460]),
    ] {
        let change = move |net: &mut NetConfig| {
            (net.segment_unit_bytes, net.initial_window_segments, net.initial_window_bytes) =
                (unit, segments, bytes);
        };
        with(change, move |u, puppet| {
            let (fd, mut hand) = call_in(u, puppet, 60_000);
            let at = map(u, 4 * PAGE_SIZE);
            assert_eq!(u.write(fd, at, 4 * PAGE_SIZE), Ok(4 * PAGE_SIZE));
            let lengths: Vec<_> = hand.hear(u).iter().map(|seg| seg.data.len()).collect();
            assert_eq!(lengths, expected, "unit {unit}, {segments} segments, {bytes} bytes");
            hand.say(RST, &[]);
            hand.hear(u);
        });
    }
}

#[test]
fn the_oldest_that_is_over_makes_room_for_a_new_connection() {
    with(
        |net| net.sockets = 8,
        |u, puppet| {
            let listening = our_server(u, 4);
            for port in 0..40 {
                let mut hand = Hand::call(u, puppet, 2000 + port, OUR_PORT, 1);
                let (fd, _) = u.accept(listening).expect("it is there");
                u.close(fd).expect("open");
                hand.hear(u);
                hand.say(FIN | ACK, &[]);
                hand.hear(u);
            }
            // The youngest are still remembered, the oldest are not.
            for (port, known) in [(2039, true), (2000, false)] {
                let hand = Hand::new(puppet, port, OUR_PORT, 2);
                hand.say_at(2, FIN | ACK, &[]);
                let heard = hand.clone().hear(u);
                assert!(heard.len() == 1 && heard[0].has(RST) != known, "{port}: {heard:?}");
            }
        },
    );
}

#[test]
fn a_closed_window_is_believed_as_long_as_somebody_answers() {
    let change = |net: &mut NetConfig| {
        (net.min_persist_ms, net.max_persist_ms, net.retransmissions) = (10, 10, 4);
        (net.initial_rto_ms, net.min_rto_ms) = (10, 1);
    };
    with(change, |u, puppet| {
        let (fd, mut hand) = call_in(u, puppet, 0);
        let at = map(u, PAGE_SIZE);
        assert_eq!(u.write(fd, at, 100), Ok(100));
        u.set_nonblocking(fd, true).expect("open");
        let mut probes = 0;
        while probes < 20 {
            for seg in hand.hear(u).iter().filter(|seg| !seg.data.is_empty()) {
                probes += 1;
                hand.ack = seg.seq;
                hand.say(ACK, &[]);
            }
            assert_eq!(u.read(fd, at, 1), Err(Errno::WouldBlock), "it is not given up");
        }
        // From now on nobody does.
        u.set_nonblocking(fd, false).expect("open");
        puppet.take();
        assert_eq!(u.read(fd, at, 1), Err(Errno::TimedOut));
        let left = puppet.take().iter().filter_map(|f| Seg::of(f)).collect::<Vec<_>>();
        assert_eq!(left.iter().filter(|seg| !seg.data.is_empty()).count(), 4, "{left:?}");
        assert!(left.last().is_some_and(|seg| seg.has(RST)), "{left:?}");
    });
}
