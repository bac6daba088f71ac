//! Where the protocols have limits, at, before and behind each: numbers of resets, memory of datagrams, packets that
//! wait for an address, packets and fragments that wait for others, ports. The other end is on strings.

use crate::common::far::*;
use crate::common::puppet::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use std::net::{Ipv4Addr, SocketAddrV4};

fn by_hand(test: impl FnOnce(&U, &Puppet) + 'static) {
    let (m, puppet) = on_strings("xeon-mp");
    run_on(m, "xeon-mp", "limits", internet(), move |u| test(u, &puppet));
}

fn pause(u: &U) {
    u.sleep_for(Cycles(5 * MS.0)).expect("alive");
}

/// A UDP socket at a port; for zero, at one that the kernel chooses.
fn datagrams(u: &U, port: u16) -> Fd {
    let fd = u.socket(SocketKind::Datagram).expect("a socket");
    u.bind(fd, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).expect("free");
    u.set_nonblocking(fd, true).expect("open");
    fd
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reset {
    Believed,
    Asked,
    Unheard,
}

/// RFC 5961, 3.2.
#[test]
fn a_reset_is_believed_where_it_is_exact_and_asked_about_in_the_window() {
    by_hand(|u, puppet| {
        let listening = our_server(u, 4);
        let at = map(u, PAGE_SIZE);
        for number in 0..6 {
            let mut hand = Hand::call(u, puppet, 1000 + number, OUR_PORT, u32::MAX - 20_000);
            let (fd, _) = u.accept(listening).expect("it is there");
            u.set_nonblocking(fd, true).expect("open");
            // What has come before is acknowledged again, with the window.
            hand.say_at(hand.seq.wrapping_sub(1), ACK, &[]);
            let window = u32::from(hand.hear(u).first().expect("an answer").window);
            let (off, expected) = [
                (u32::MAX, Reset::Unheard),
                (0, Reset::Believed),
                (1, Reset::Asked),
                (window - 1, Reset::Asked),
                (window, Reset::Unheard),
                (window + 1, Reset::Unheard),
            ][usize::from(number)];
            hand.say_at(hand.seq.wrapping_add(off), RST, &[]);
            let heard = hand.hear(u);
            let found = match u.read(fd, at, PAGE_SIZE) {
                Err(Errno::ConnectionReset) if heard.is_empty() => Reset::Believed,
                Err(Errno::WouldBlock) if heard.is_empty() => Reset::Unheard,
                Err(Errno::WouldBlock) if heard.iter().all(|seg| seg.ack == hand.seq) => Reset::Asked,
                other => panic!("{other:?} and {heard:?}"),
            };
            assert_eq!(found, expected, "{off} behind what is expected, of a window of {window}");
            hand.say_at(hand.seq, RST, &[]);
            pause(u);
            u.close(fd).expect("open");
        }
        u.close(listening).expect("open");
    });
}

/// As many datagrams wait as there is memory for, to the byte.
#[test]
fn datagrams_wait_up_to_the_last_byte_of_memory() {
    by_hand(|u, puppet| {
        let (fd, at) = (datagrams(u, 53), map(u, PAGE_SIZE));
        // How many of six wait in a buffer of so many bytes.
        let wait = |limit: usize| {
            u.set_socket_option(fd, SocketOption::ReceiveBuffer(limit)).expect("in bounds");
            for _ in 0..6 {
                puppet.send(datagram(1000, 53, &[1; 1400]));
            }
            pause(u);
            (0..6).filter(|_| u.receive_from(fd, at, PAGE_SIZE).is_ok()).count()
        };
        // The least in which three wait, and five.
        let min_bytes = |count: usize| {
            let (mut short, mut enough) = (4096, 64 << 10);
            assert!(wait(short) < count && wait(enough) >= count);
            while enough - short > 1 {
                let middle = (short + enough) / 2;
                if wait(middle) < count { short = middle } else { enough = middle }
            }
            enough
        };
        assert_eq!(min_bytes(3) * 5, min_bytes(5) * 3, "all take the same, and nothing is beside them");
        u.close(fd).expect("open");
    });
}

/// While nobody says where a neighbour is, the last eight packets for it wait, and go in their order.
#[test]
fn the_last_packets_wait_for_a_neighbour() {
    for count in [1, 8, 9, 20_u8] {
        by_hand(move |u, puppet| {
            puppet.mute();
            let (fd, at) = (datagrams(u, 53), map(u, PAGE_SIZE));
            for number in 0..count {
                u.store(at, &[number; 16]);
                assert_eq!(u.send_to(fd, at, 16, ECHO), Ok(16));
            }
            pause(u);
            assert_eq!(puppet.take().len(), 0, "nobody has said where it is");
            puppet.send(arp(2, STATION, FAR_ADDRESS));
            pause(u);
            let came: Vec<u8> = puppet.take().iter().map(|frame| frame[42]).collect();
            let expected: Vec<u8> = (count.saturating_sub(8)..count).collect();
            assert_eq!(came, expected, "of {count}");
            u.close(fd).expect("open");
        });
    }
}

/// Ports are given in turn, from 49152 to the last, and again.
#[test]
fn ports_are_given_in_turn_to_the_last() {
    on_named_machines!();
    by_hand(|u, _| {
        let mut before = None;
        for _ in 0..=u16::MAX - 49_151 {
            let fd = datagrams(u, 0);
            let (own, _) = u.socket_names(fd).expect("open");
            let next = before.map(|port| if port == u16::MAX { 49_152 } else { port + 1 });
            assert!(next.is_none_or(|next| next == own.port()), "{own} comes behind {before:?}");
            before = Some(own.port());
            u.close(fd).expect("open");
        }
    });
}

/// Segments that come before their time wait for what is missing, 128 of them; later ones are lost.
#[test]
fn so_many_segments_wait_for_those_before_them() {
    const MOST: u32 = 128;
    by_hand(|u, puppet| {
        let listening = our_server(u, 4);
        let mut hand = Hand::call(u, puppet, 1000, OUR_PORT, u32::MAX - 100);
        let (fd, _) = u.accept(listening).expect("it is there");
        let first = hand.seq;
        // Every other byte, each in a segment of its own.
        for nth in 0..MOST + 2 {
            hand.say_at(first.wrapping_add(2 * nth + 1), ACK, &[1]);
            if nth % 8 == 0 {
                hand.hear(u);
            }
        }
        hand.hear(u);
        for nth in 0..MOST + 2 {
            hand.say_at(first.wrapping_add(2 * nth), ACK, &[0]);
            if nth >= MOST {
                // Where nothing waits a single segment is not answered at once.
                u.sleep_for(Cycles(300 * MS.0)).expect("alive");
            }
            let acked = hand.hear(u).last().expect("an answer").ack.wrapping_sub(first);
            // With the byte that was missing, and the one behind it if that has waited.
            let expected = 2 * nth + if nth < MOST { 2 } else { 1 };
            assert_eq!(acked, expected, "with byte {}", 2 * nth);
            if nth >= MOST {
                hand.say_at(first.wrapping_add(2 * nth + 1), ACK, &[1]);
                hand.hear(u);
            }
        }
        let at = map(u, PAGE_SIZE);
        let mut read = vec![0; 2 * (MOST as usize + 2)];
        assert_eq!(u.read(fd, at, PAGE_SIZE), Ok(read.len()));
        u.load(at, &mut read);
        assert!(read.chunks(2).all(|two| two == [0, 1]));
        hand.seq = first.wrapping_add(read.len() as u32);
        hand.say(RST, &[]);
        pause(u);
    });
}

/// Others that find no room, in the queue of a listener, of packets or of fragments, cost a connection nothing.
#[test]
fn what_has_come_early_is_kept_while_others_find_no_room() {
    by_hand(|u, puppet| {
        let listening = our_server(u, 1);
        let mut hand = Hand::call(u, puppet, 1000, OUR_PORT, 7);
        let (fd, at) = (u.accept(listening).expect("it is there").0, map(u, PAGE_SIZE));
        hand.say_at(hand.seq.wrapping_add(1), ACK, b"b");
        hand.hear(u);
        let before = u.kernel().net_counts().no_room;
        let other = datagrams(u, 53);
        u.set_socket_option(other, SocketOption::ReceiveBuffer(4096)).expect("in bounds");
        for number in 0..12 {
            Hand::new(puppet, 2000 + number, OUR_PORT, 1).say(SYN, &[]);
            puppet.send(datagram(1000, 53, &[1; 1400]));
            hand.hear(u);
        }
        assert!(u.kernel().net_counts().no_room >= before + 12, "{:?}", u.kernel().net_counts());
        hand.say_at(hand.seq, ACK, b"a");
        let heard = hand.hear(u);
        assert_eq!(heard.last().map(|seg| seg.ack), Some(hand.seq.wrapping_add(2)));
        assert_eq!(u.read(fd, at, PAGE_SIZE), Ok(2));
        hand.seq = hand.seq.wrapping_add(2);
        hand.say(RST, &[]);
        pause(u);
        for fd in [fd, other, listening] {
            u.close(fd).expect("open");
        }
    });
}

/// Our end may lie behind the window that our bytes have filled. What we acknowledge then has the last number before
/// the window's end, and not the one behind our own.
#[test]
fn behind_an_end_that_is_out_of_the_window_nothing_is_said_that_would_be_dropped() {
    by_hand(|u, puppet| {
        let listening = our_server(u, 4);
        // It never had a larger window.
        let mut hand = Hand { window: 10, ..Hand::new(puppet, 1000, OUR_PORT, 7) };
        hand.say(SYN, &[]);
        hand.ack = hand.hear(u).first().expect("an answer").seq.wrapping_add(1);
        hand.say(ACK, &[]);
        hand.hear(u);
        let (fd, _) = u.accept(listening).expect("it is there");
        let (begin, at) = (hand.ack, map(u, PAGE_SIZE));
        assert_eq!(u.write(fd, at, 10), Ok(10));
        u.shutdown(fd, Shutdown::Send).expect("open");
        let end = begin.wrapping_add(10);
        let said = hand.hear(u);
        assert!(said.iter().any(|seg| seg.has(FIN)) && hand.ack == end.wrapping_add(1), "{said:?}");
        // Of all this the other end has got nothing. What comes before its time is answered at once.
        hand.ack = begin;
        hand.say_at(hand.seq.wrapping_add(1), ACK, b"y");
        let said = hand.hear(u);
        let bare: Vec<&Seg> = said.iter().filter(|seg| seg.data.is_empty() && !seg.has(FIN)).collect();
        assert!(!bare.is_empty() && bare.iter().all(|seg| seg.seq == end && seg.ack == hand.seq), "{said:?}");
        hand.ack = end.wrapping_add(1);
        hand.say(ACK | FIN, &[]);
        hand.hear(u);
        u.close(fd).expect("open");
    });
}

/// Our end is acknowledged by its own number, and by none before: until then it is said again.
#[test]
fn an_end_is_acknowledged_behind_the_bytes_before_it() {
    let second = ms_on("xeon-mp", 1000);
    for ours_first in [true, false] {
        for bytes in [0, 1, 10_u32] {
            by_hand(move |u, puppet| {
                let listening = our_server(u, 4);
                let mut hand = Hand::call(u, puppet, 1000, OUR_PORT, 7);
                let (fd, _) = u.accept(listening).expect("it is there");
                let at = map(u, PAGE_SIZE);
                if !ours_first {
                    hand.say(ACK | FIN, &[]);
                    hand.hear(u);
                }
                let begin = hand.ack;
                if bytes > 0 {
                    assert_eq!(u.write(fd, at, bytes as usize), Ok(bytes as usize));
                }
                u.shutdown(fd, Shutdown::Send).expect("open");
                u.close(fd).expect("open");
                hand.hear(u);
                let end = begin.wrapping_add(bytes);
                hand.ack = end;
                hand.say_at(hand.seq, ACK, &[]);
                hand.hear(u);
                // Later than any timeout of a connection that has just begun.
                u.sleep_for(Cycles(4 * second.0)).expect("alive");
                let said = hand.hear(u);
                let again = said.iter().any(|seg| seg.has(FIN) && seg.seq == end && seg.data.is_empty());
                assert!(again, "{bytes} bytes: {said:?}");
                hand.ack = end.wrapping_add(1);
                hand.say(if ours_first { ACK | FIN } else { ACK }, &[]);
                let said = hand.hear(u);
                assert!(said.iter().all(|seg| !seg.has(RST)), "{bytes} bytes: {said:?}");
            });
        }
    }
}
