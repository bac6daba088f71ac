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
    on_named_machines();
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
