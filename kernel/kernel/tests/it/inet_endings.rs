//! How connections end, and what is left then: nothing. The other end is on strings, so every segment can be said by
//! hand.

use crate::common::far::*;
use crate::common::puppet::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::net::Wire;
use pageferry_model::net::smol::{Client, Service};
use pageferry_model::{Model, Schedule};
use std::net::{Ipv4Addr, SocketAddrV4};

const PAGE: usize = PAGE_SIZE;
/// The far end's port, for calls of ours.
const THERE: SocketAddrV4 = SocketAddrV4::new(FAR_ADDRESS, 7777);

/// A kernel that gives up soon, and lingers for a second.
pub(crate) fn hasty() -> KernelConfig {
    let mut config = internet();
    let net = config.net.as_mut().expect("it has one");
    (net.retransmissions, net.time_wait_ms, net.initial_rto_ms) = (4, 1000, 100);
    config
}

pub(crate) fn by_hand(config: KernelConfig, test: impl FnOnce(&U, &Puppet) + 'static) -> Ended {
    let (m, puppet) = on_strings("xeon-mp");
    run_on(m, "xeon-mp", "by hand", config, move |u| test(u, &puppet))
}

/// A socket of ours that connects without waiting, and the far end's side of it.
pub(crate) fn call_out(u: &U, puppet: &Puppet) -> (Fd, Hand) {
    let fd = u.socket(SocketKind::Stream).expect("a socket");
    u.set_nonblocking(fd, true).expect("open");
    assert_eq!(u.connect(fd, THERE), Err(Errno::InProgress));
    (fd, Hand::answer(u, puppet, THERE.port(), 5000))
}

/// A connection that they have made, accepted.
fn call_in(u: &U, puppet: &Puppet, seq: u32) -> (Fd, Hand) {
    let listening = our_server(u, 4);
    let hand = Hand::call(u, puppet, 1234, OUR_PORT, seq);
    let (fd, _) = u.accept(listening).expect("it is there");
    u.set_nonblocking(fd, true).expect("open");
    u.close(listening).expect("open");
    (fd, hand)
}

#[test]
fn a_ping_is_answered_and_a_closed_port_named() {
    by_hand(internet(), |u, puppet| {
        for number in 0..3 {
            puppet.send(ping(number, &bytes(1, 0, usize::from(number) * 300)));
            u.sleep_for(Cycles(3 * MS.0)).expect("alive");
            let answer = puppet.take();
            assert_eq!(answer.len(), 1);
            assert_eq!((answer[0][34], answer[0][41]), (0, number), "an echo reply");
            let len = usize::from(number) * 300;
            assert!(answer[0][42..42 + len] == bytes(1, 0, len));
        }
        puppet.send(datagram(5, 6, &[1, 2, 3]));
        u.sleep_for(Cycles(3 * MS.0)).expect("alive");
        let answer = puppet.take();
        assert_eq!(answer[0][34..36], [3, 3], "port unreachable");
    });
}

#[test]
fn each_side_may_close_first_or_both_at_once() {
    // Who says FIN first: they, we, or both before either has heard the other.
    for who in 0..3 {
        by_hand(hasty(), move |u, puppet| {
            let (fd, mut hand) = call_in(u, puppet, 100);
            let at = map(u, PAGE);
            if who == 0 {
                hand.say(FIN | ACK, b"end");
                hand.hear(u);
                assert_eq!(u.read(fd, at, 10), Ok(3));
                assert_eq!(u.read(fd, at, 10), Ok(0));
                // Half-closed: we may still talk.
                assert_eq!(u.write(fd, at, 10), Ok(10));
                let heard = hand.hear(u);
                assert!(heard.iter().any(|seg| seg.data.len() == 10), "{heard:?}");
            }
            u.shutdown(fd, Shutdown::Send).expect("connected");
            let before = hand.clone();
            assert!(hand.hear(u).iter().any(|seg| seg.has(FIN)));
            match who {
                0 => hand.say(ACK, &[]),
                1 => {
                    hand.say(ACK, &[]);
                    hand.say(ACK, b"late");
                    hand.hear(u);
                    assert_eq!(u.read(fd, at, 10), Ok(4), "the other direction is open");
                    hand.say(FIN | ACK, &[]);
                }
                _ => {
                    puppet.send(before.seg(FIN | ACK, &[]).frame());
                    hand.seq += 1;
                    hand.hear(u);
                    hand.say(ACK, &[]);
                }
            }
            hand.hear(u);
            u.close(fd).expect("open");
            if who > 0 {
                // Their FIN again: our acknowledgement was lost.
                hand.say_at(hand.seq.wrapping_sub(1), FIN | ACK, &[]);
                let heard = hand.hear(u);
                assert!(heard.len() == 1 && heard[0].flags == ACK && heard[0].ack == hand.seq, "{heard:?}");
            }
            u.sleep_for(Cycles(1100 * MS.0)).expect("alive");
            assert_eq!(u.kernel().net_counts().reset, 0);
            // The port is free: nothing is left of it.
            our_server(u, 1);
        });
    }
}

#[test]
fn a_call_within_time_wait_begins_again() {
    by_hand(internet(), |u, puppet| {
        let listening = our_server(u, 4);
        let mut hand = Hand::call(u, puppet, 1234, OUR_PORT, 100);
        let (fd, _) = u.accept(listening).expect("it is there");
        u.close(fd).expect("open");
        hand.hear(u);
        hand.say(FIN | ACK, &[]);
        hand.hear(u);
        // Before its end: an old SYN is not believed.
        hand.say_at(50, SYN, &[]);
        assert!(hand.hear(u).iter().all(|seg| seg.flags == ACK));
        Hand::call(u, puppet, 1234, OUR_PORT, 100_000);
        assert!(u.accept(listening).is_ok());
    });
}

#[test]
fn a_reset_is_believed_where_it_is_exact_and_in_every_state() {
    by_hand(hasty(), |u, puppet| {
        let (fd, mut hand) = call_in(u, puppet, u32::MAX - 3);
        let at = map(u, PAGE);
        // Behind the window, before it, and in it.
        for (off, answers) in [(1_000_000, 0), (u32::MAX - 10, 0), (10, 1)] {
            hand.say_at(hand.seq.wrapping_add(off), RST, &[]);
            assert_eq!(hand.hear(u).len(), answers);
            assert_eq!(u.read(fd, at, 1), Err(Errno::WouldBlock), "{off}");
        }
        // With something kept for later.
        hand.say_at(hand.seq.wrapping_add(100), ACK, &[7; 300]);
        hand.hear(u);
        hand.say(RST, &[]);
        hand.hear(u);
        assert_eq!(u.read(fd, at, 1), Err(Errno::ConnectionReset));
        u.close(fd).expect("open");
        // SYN_SENT.
        let fd = u.socket(SocketKind::Stream).expect("a socket");
        u.set_nonblocking(fd, true).expect("open");
        assert_eq!(u.connect(fd, THERE), Err(Errno::InProgress));
        let mut hand = Hand::new(puppet, THERE.port(), 0, 0);
        let call = hand.hear(u);
        (hand.theirs, hand.ack) = (call[0].from, call[0].seq);
        hand.say(RST | ACK, &[]);
        hand.hear(u);
        assert_eq!(u.socket_error(fd), Ok(None), "it acknowledges nothing");
        hand.ack = call[0].seq.wrapping_add(1);
        hand.say(RST | ACK, &[]);
        hand.hear(u);
        assert_eq!(u.socket_error(fd), Ok(Some(Errno::ConnectionRefused)));
        // SYN_RECEIVED, FIN_WAIT_1, FIN_WAIT_2, CLOSE_WAIT, LAST_ACK.
        let listening = our_server(u, 4);
        let mut half = Hand::new(puppet, 50, OUR_PORT, 1);
        half.say(SYN, &[]);
        half.hear(u);
        half.say(RST, &[]);
        for state in 0..4 {
            let mut hand = Hand::call(u, puppet, 60 + state, OUR_PORT, 1);
            let (fd, _) = u.accept(listening).expect("it is there");
            if state >= 2 {
                hand.say(FIN | ACK, &[]);
                hand.hear(u);
            }
            if state != 2 {
                u.shutdown(fd, Shutdown::Send).expect("connected");
                hand.hear(u);
            }
            if state == 1 {
                hand.say(ACK, &[]);
            }
            hand.say(RST | ACK, &[]);
            hand.hear(u);
            u.close(fd).expect("open");
            // Gone: whatever is said is refused.
            hand.say(ACK, b"?");
            let heard = hand.hear(u);
            assert!(heard.len() == 1 && heard[0].has(RST), "{state}: {heard:?}");
        }
    });
}

#[test]
fn a_listener_closes_with_connections_half_open_and_whole() {
    by_hand(hasty(), |u, puppet| {
        let listening = our_server(u, 4);
        let mut half = Hand::new(puppet, 50, OUR_PORT, 1);
        half.say(SYN, &[]);
        half.hear(u);
        let mut whole = Hand::call(u, puppet, 51, OUR_PORT, 1);
        whole.say(ACK, b"unread");
        whole.hear(u);
        // The same SYN again is answered again.
        half.say_at(1, SYN, &[]);
        let heard = half.hear(u);
        assert!(heard.len() == 1 && heard[0].flags == SYN | ACK, "{heard:?}");
        u.close(listening).expect("open");
        u.sleep_for(MS).expect("alive");
        let resets = puppet.take().iter().filter_map(|f| Seg::of(f)).filter(|seg| seg.has(RST)).count();
        assert_eq!(resets, 2);
    });
}

#[test]
fn a_full_backlog_hears_no_more_calls() {
    by_hand(hasty(), |u, puppet| {
        let listening = our_server(u, 2);
        let connected = |port| {
            let mut hand = Hand::new(puppet, port, OUR_PORT, 1);
            hand.say(SYN, &[]);
            let heard = hand.hear(u);
            let answer = heard.iter().find(|seg| seg.flags == SYN | ACK);
            if let Some(answer) = answer {
                hand.ack = answer.seq.wrapping_add(1);
                hand.say(ACK, &[]);
                hand.hear(u);
            }
            answer.is_some()
        };
        let taken = (100..110).filter(|port| connected(*port)).count();
        assert_eq!(taken, 4, "half as many again as were asked for, and one");
        assert!(u.accept(listening).is_ok());
        assert!(connected(120), "there is room again");
    });
}

#[test]
fn who_asks_and_never_answers_shuts_nobody_out() {
    by_hand(internet(), |u, puppet| {
        let listening = our_server(u, 4);
        for port in 2000..2300 {
            Hand::new(puppet, port, OUR_PORT, 1).say(SYN, &[]);
        }
        u.sleep_for(Cycles(100 * MS.0)).expect("alive");
        puppet.take();
        // A block and two buffers each, but of the last few alone.
        let mut hand = Hand::call(u, puppet, 1234, OUR_PORT, 1);
        let (fd, from) = u.accept(listening).expect("it is connected");
        assert_eq!(from.port(), 1234);
        let at = map(u, PAGE);
        hand.say(ACK, b"hello");
        hand.hear(u);
        assert_eq!(u.read(fd, at, PAGE), Ok(5));
    });
}

#[test]
fn who_does_not_answer_is_given_up() {
    by_hand(hasty(), |u, puppet| {
        let fd = u.socket(SocketKind::Stream).expect("a socket");
        assert_eq!(u.connect(fd, THERE), Err(Errno::TimedOut));
        let syns = puppet.take().iter().filter_map(|f| Seg::of(f)).filter(|seg| seg.flags == SYN).count();
        assert_eq!(syns, 6, "the first, and five more");
        // A connection whose other end is gone.
        let (fd, _hand) = call_out(u, puppet);
        let at = map(u, PAGE);
        assert_eq!(u.write(fd, at, PAGE), Ok(PAGE));
        u.set_nonblocking(fd, false).expect("open");
        assert_eq!(u.read(fd, at, 1), Err(Errno::TimedOut));
    });
    // Nobody has the address.
    by_hand(hasty(), |u, puppet| {
        puppet.mute();
        let fd = u.socket(SocketKind::Stream).expect("a socket");
        assert_eq!(u.connect(fd, THERE), Err(Errno::TimedOut));
    });
}

#[test]
fn a_closed_window_is_asked_about_until_it_opens() {
    for opens_to in [1, 700, 30_000] {
        by_hand(hasty(), move |u, puppet| {
            let (fd, mut hand) = call_in(u, puppet, 1);
            let at = map(u, 2 * PAGE);
            u.store(at, &bytes(4, 0, 2 * PAGE));
            hand.window = 0;
            hand.say(ACK, b"x");
            hand.hear(u);
            assert_eq!(u.write(fd, at, 2 * PAGE), Ok(2 * PAGE));
            let (mut got, mut probes, first) = (Vec::<u8>::new(), 0, hand.ack);
            for round in 0..4000 {
                let heard = hand.hear(u);
                // Beyond the window nothing comes but a byte at a time.
                for seg in heard.iter().filter(|seg| !seg.data.is_empty()) {
                    if hand.window == 0 {
                        assert_eq!(seg.data.len(), 1, "a probe");
                        probes += 1;
                        hand.ack = seg.seq;
                        hand.say(ACK, &[]);
                    } else {
                        assert!(seg.data.len() <= usize::from(hand.window));
                        let from = seg.seq.wrapping_sub(first) as usize;
                        assert!(from <= got.len(), "nothing is left out");
                        got.truncate(from);
                        got.extend(&seg.data);
                        hand.say(ACK, &[]);
                    }
                }
                if round == 1000 {
                    assert!(probes > 2, "{probes}");
                    hand.window = opens_to;
                    hand.say(ACK, &[]);
                }
                if got.len() == 2 * PAGE || (opens_to == 1 && got.len() > 20) {
                    break;
                }
            }
            assert!(got == bytes(4, 0, got.len()) && got.len() > 20, "{} bytes", got.len());
        });
    }
}

#[test]
fn the_window_is_what_there_is_room_for_and_is_told_when_it_opens() {
    by_hand(hasty(), |u, puppet| {
        let (fd, mut hand) = call_in(u, puppet, u32::MAX - 30_000);
        let at = map(u, 64 << 10);
        let (mut sent, mut window) = (0_usize, 65_535);
        while window > 0 {
            let len = window.min(1400);
            hand.say(ACK, &bytes(3, sent, len));
            sent += len;
            window -= len;
            for seg in hand.hear(u) {
                let acked = seg.ack.wrapping_sub(hand.seq.wrapping_sub(sent as u32)) as usize;
                window = usize::from(seg.window).saturating_sub(sent - acked);
            }
            assert!(sent <= 65_536, "more than the buffer holds is asked for");
            u.kernel().check().expect("the laws hold");
        }
        // One byte beyond is not taken.
        hand.say_at(hand.seq, ACK, b"x");
        let heard = hand.hear(u);
        assert!(heard.iter().all(|seg| seg.ack == hand.seq && seg.window == 0), "{heard:?}");
        assert_eq!(u.read(fd, at, 100), Ok(100));
        let heard = hand.hear(u);
        assert!(heard.is_empty(), "a silly window is not told: {heard:?}");
        assert!(read_all(u, fd, at, 64 << 10, sent - 100) == bytes(3, 100, sent - 100));
        let heard = hand.hear(u);
        assert!(heard.iter().any(|seg| seg.window > 30_000), "it is told at once: {heard:?}");
    });
}

#[test]
fn a_fin_waits_for_what_is_in_front_of_it() {
    by_hand(hasty(), |u, puppet| {
        let (fd, mut hand) = call_in(u, puppet, u32::MAX - 5);
        let at = map(u, PAGE);
        hand.say_at(hand.seq.wrapping_add(10), FIN | ACK, b"second");
        hand.hear(u);
        assert_eq!(u.read(fd, at, PAGE), Err(Errno::WouldBlock));
        hand.say(ACK, b"first 1234");
        hand.hear(u);
        assert!(read_all(u, fd, at, PAGE, usize::MAX) == b"first 1234second");
    });
}

#[test]
fn both_may_begin_at_once() {
    by_hand(hasty(), |u, puppet| {
        let fd = u.socket(SocketKind::Stream).expect("a socket");
        u.set_nonblocking(fd, true).expect("open");
        assert_eq!(u.connect(fd, THERE), Err(Errno::InProgress));
        let mut hand = Hand::new(puppet, THERE.port(), 0, 77);
        let call = hand.hear(u);
        hand.theirs = call[0].from;
        hand.say(SYN, &[]);
        let heard = hand.hear(u);
        assert!(heard.iter().any(|seg| seg.flags == SYN | ACK && seg.ack == 78), "{heard:?}");
        hand.ack = call[0].seq.wrapping_add(1);
        hand.say_at(77, SYN | ACK, &[]);
        hand.hear(u);
        let at = map(u, PAGE);
        assert_eq!(u.write(fd, at, 5), Ok(5));
        assert!(hand.hear(u).iter().any(|seg| seg.data.len() == 5));
    });
}

#[test]
fn an_answer_that_nobody_asked_for_is_not_believed() {
    by_hand(hasty(), |u, puppet| {
        let fd = u.socket(SocketKind::Datagram).expect("a socket");
        let at = map(u, PAGE);
        u.connect(fd, THERE).expect("datagrams are connected at once");
        for _ in 0..2 {
            assert_eq!(u.write(fd, at, 5), Ok(5));
            u.sleep_for(Cycles(3 * MS.0)).expect("alive");
            assert!(puppet.take().iter().all(|frame| frame[..6] == STATION));
            puppet.send(arp(2, [2, 0, 0, 0, 0, 99], FAR_ADDRESS));
            u.sleep_for(Cycles(3 * MS.0)).expect("alive");
        }
    });
}

/// The card is taken out at any time: calls fail, and nothing is left.
#[test]
fn a_card_that_is_removed_ends_its_connections() {
    for seed in 0..40_u64 {
        let mut far = far_end(seed);
        let _ = far.listen(7, Service::Echo);
        let _ = far.connect(caller(1_000_000, 100_000, bytes(6, 0, 1), false));
        let m = machine_with("xeon-mp", Schedule::Timed, Wire::default(), far);
        run_on(m, "xeon-mp", &format!("removed, {seed}"), hasty(), move |u| {
            u.machine().remove_nic_at(u.machine().now() + Cycles(seed * 150_000));
            let listening = our_server(u, 4);
            let fd = u.socket(SocketKind::Stream).expect("a socket");
            let at = map(u, 64 << 10);
            fork(u, "server", move |u| {
                u.set_nonblocking(listening, true).expect("open");
                for _ in 0..200 {
                    if let Ok((fd, _)) = u.accept(listening) {
                        while u.read(fd, at, 64 << 10).is_ok_and(|len| len > 0) {}
                    }
                    u.sleep_for(MS).expect("alive");
                }
            });
            if u.connect(fd, ECHO).is_ok() {
                fork(u, "writer", move |u| while u.write(fd, at, 64 << 10).is_ok() {});
                while u.read(fd, at, 64 << 10).is_ok_and(|len| len > 0) {}
                u.wait().expect("a child");
            }
            u.wait().expect("a child");
            let other = u.socket(SocketKind::Stream).expect("a socket");
            assert_eq!(u.connect(other, ECHO), Err(Errno::NetUnreachable));
        });
    }
}

/// Frames are short while connections are at work: packets are lost then, and nothing else.
#[test]
fn memory_that_is_short_loses_packets_only() {
    for left in [4, 20, 60] {
        let mut far = far_end(1);
        let _ = far.listen(7, Service::Echo);
        let m = machine_with("xeon-mp", Schedule::Timed, Wire::default(), far);
        run_on(m, "xeon-mp", &format!("{left} frames"), internet(), move |u| {
            let at = map(u, 4 * PAGE);
            u.store(at, &bytes(5, 0, 4 * PAGE));
            let fd = connected(u, ECHO);
            let (mut got, mut all_sent, to) = (Vec::new(), 0, map(u, PAGE));
            u.store(to, &[0]);
            let hoard = hoard(u, left);
            // Where there is none for very long, the other end gives up.
            'talk: for _ in 0..20 {
                let Ok(sent) = u.write(fd, at, 4 * PAGE) else { break };
                all_sent += sent;
                while got.len() < all_sent {
                    let Ok(len @ 1..) = u.read(fd, to, PAGE.min(all_sent - got.len())) else { break 'talk };
                    let mut part = vec![0; len];
                    u.load(to, &mut part);
                    got.extend(part);
                }
            }
            u.kernel().vm().free_kernel_pages(hoard);
            assert!(got.chunks(4 * PAGE).all(|part| part == bytes(5, 0, part.len())));
            assert!(left < 20 || got.len() == 80 * PAGE, "{} bytes of {}", got.len(), 80 * PAGE);
        });
    }
}

/// One allocation after the other fails while both ends talk, wherever it is asked for: a call may be refused, and a
/// packet lost, and all bytes come. Nothing is left in the end.
#[test]
fn each_allocation_fails_in_turn_and_all_bytes_come() {
    const LEN: usize = 2 * PAGE + 100;
    for mode in [SendMode::Copy, SendMode::Loan] {
        let mut far = far_end(1);
        let _ = far.listen(7, Service::Echo);
        let m = machine_with("xeon-mp", Schedule::Timed, Wire::default(), far);
        run_on(m, "xeon-mp", &format!("{mode:?}"), internet(), move |u| {
            let (from, to) = (map(u, 3 * PAGE), map(u, 3 * PAGE));
            let sent_bytes = bytes(5, 0, LEN);
            u.store(from, &sent_bytes);
            u.store(to, &vec![0; LEN]);
            let fd = connected(u, ECHO);
            // Until three rounds need no more than that.
            let (mut succeed, mut rounds) = (0, 0);
            while rounds < 3 {
                u.kernel().vm().fail_after(Some(succeed));
                let (mut sent, mut got) = (0, 0);
                while got < LEN {
                    if sent < LEN {
                        match u.send(fd, from + sent, LEN - sent, mode) {
                            Ok(len) => sent += len,
                            Err(e) => assert_eq!(e, Errno::NoMemory),
                        }
                    }
                    if got < sent {
                        got += u.read(fd, to + got, sent - got).expect("what was sent comes back");
                    }
                }
                rounds += u32::from(u.kernel().vm().failure_pending());
                u.kernel().vm().fail_after(None);
                let mut found = vec![0; LEN];
                u.load(to, &mut found);
                assert!(found == sent_bytes, "after {succeed} allocations");
                u.store(to, &vec![0; LEN]);
                succeed += 1;
            }
            u.close(fd).expect("open");
        });
    }
}

/// A process is killed at any time, with both sides talking.
#[test]
fn processes_that_are_killed_leave_nothing() {
    for seed in 0..40_u64 {
        let mut far = far_end(seed);
        let _ = far.listen(7, Service::Echo);
        let call = Client { at_ns: 100_000, ..caller(0, 50_000, bytes(6, 0, 50_000), seed % 2 == 0) };
        let _ = far.connect(call);
        let m =
            machine_with("xeon-mp", Schedule::Timed, Wire { seed, delay_ns: 20_000, ..Wire::default() }, far);
        run_on(m, "xeon-mp", &format!("killed, {seed}"), hasty(), move |u| {
            let victim = fork(u, "victim", |u| {
                let listening = our_server(u, 4);
                let at = map(u, 2 * PAGE);
                let fd = u.socket(SocketKind::Stream).expect("a socket");
                let work = || {
                    u.connect(fd, ECHO)?;
                    let (other, _) = u.accept(listening)?;
                    while u.signals_taken() == 0 {
                        u.write(fd, at, 2 * PAGE)?;
                        u.read(fd, at, PAGE)?;
                        u.read(other, at, PAGE)?;
                    }
                    Ok::<_, Errno>(())
                };
                let _ = work();
            });
            u.sleep_for(Cycles(10_000 + seed * 97_000)).expect("alive");
            u.signal(victim).expect("it is there");
            u.wait().expect("the victim");
            if seed % 2 == 0 {
                u.sleep_for(Cycles(2000 * MS.0)).expect("alive");
            }
        });
    }
}

/// Every count of slots, from the least: what finds no room is lost, and sent again.
#[test]
fn rings_may_be_small() {
    for slots in [2, 3, 5, 16] {
        let mut config =
            pageferry_model::testing::small(&pageferry_model::testing::or_other_kind("mini-hash"), 64);
        config.nic = pageferry_model::testing::small("mini-hash", 64).nic;
        let nic = config.nic.as_mut().expect("it has a card");
        nic.transmit_slots.value = slots;
        nic.receive_slots.value = slots;
        nic.transmit_fragments.value = slots.min(nic.transmit_fragments.value);
        let options = pageferry_model::Options::new(Schedule::Timed).tolerate_stale();
        let m = Model::new(&config, options).expect("a valid machine");
        let mut far = far_end(slots);
        let echoes = far.listen(7, Service::Echo);
        m.attach(Box::new(far));
        run_on(m, "mini-hash", &format!("{slots} slots"), internet(), |u| echo(u, 60_000, 5000));
        assert_eq!(echoes.only().received, 60_000);
    }
}

#[test]
fn a_write_that_waits_is_told_of_a_shutdown() {
    by_hand(hasty(), |u, puppet| {
        let (fd, mut hand) = call_in(u, puppet, 1);
        u.set_nonblocking(fd, false).expect("open");
        let writer = fork(u, "writer", move |u| {
            let at = map(u, 64 << 10);
            let mut result = Ok(0);
            while result.is_ok() {
                result = u.write(fd, at, 64 << 10);
            }
            assert_eq!(result, Err(Errno::BrokenPipe));
        });
        hand.window = 0;
        hand.say(ACK, &[]);
        until_asleep(u, writer);
        u.shutdown(fd, Shutdown::Send).expect("connected");
        u.wait().expect("the writer");
        u.kernel().check().expect("the laws hold");
    });
}

#[test]
fn nobody_has_loopbacks_address_on_the_wire() {
    by_hand(hasty(), |u, puppet| {
        let server = u.socket(SocketKind::Datagram).expect("a socket");
        u.bind(server, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 53)).expect("free");
        u.set_nonblocking(server, true).expect("open");
        let at = map(u, PAGE);
        for (place, address) in [(30, LOCALHOST), (26, LOCALHOST), (26, OUR_ADDRESS)] {
            let mut frame = datagram(1, 53, b"x");
            frame[place..place + 4].copy_from_slice(&address.octets());
            // No sum of UDP, and the right one of IP.
            frame[40..42].fill(0);
            let right = puppet_sum(&mut frame);
            frame[24..26].copy_from_slice(&right);
            puppet.send(frame);
            u.sleep_for(Cycles(3 * MS.0)).expect("alive");
            assert_eq!(u.receive_from(server, at, PAGE), Err(Errno::WouldBlock), "{address}");
        }
        assert_eq!(u.kernel().net_counts().malformed, 3);
        puppet.send(datagram(1, 53, b"x"));
        u.sleep_for(Cycles(3 * MS.0)).expect("alive");
        assert!(u.receive_from(server, at, PAGE).is_ok());
    });
}

fn puppet_sum(frame: &mut [u8]) -> [u8; 2] {
    frame[24..26].fill(0);
    sum(&[&frame[14..34]])
}
