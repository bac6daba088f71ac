//! What is not read: at a close, after a shutdown, and when the card is gone. The other end is on strings.

use crate::common::far::*;
use crate::common::puppet::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

fn by_hand(test: impl FnOnce(&U, &Puppet) + 'static) -> Ended {
    let (m, puppet) = on_strings("xeon-mp");
    run_on(m, "xeon-mp", "by hand", internet(), move |u| test(u, &puppet))
}

fn call_in(u: &U, puppet: &Puppet) -> (Fd, Hand) {
    let listening = our_server(u, 4);
    let hand = Hand::call(u, puppet, 1234, OUR_PORT, 1);
    let (fd, _) = u.accept(listening).expect("it is there");
    u.close(listening).expect("open");
    (fd, hand)
}

#[test]
fn a_close_resets_where_something_was_not_read() {
    for read in [0, 5, 10] {
        by_hand(move |u, puppet| {
            let (fd, mut hand) = call_in(u, puppet);
            let at = map(u, PAGE_SIZE);
            hand.say(ACK, &[7; 10]);
            hand.hear(u);
            if read > 0 {
                assert_eq!(u.read(fd, at, read), Ok(read));
            }
            u.close(fd).expect("open");
            let heard = hand.hear(u);
            let is_reset = heard.iter().any(|seg| seg.has(RST));
            let is_end = heard.iter().any(|seg| seg.has(FIN));
            assert_eq!((is_reset, is_end), (read < 10, read == 10), "{read} of 10 read: {heard:?}");
            assert_eq!(u.kernel().net_counts().reset, u64::from(read < 10));
        });
    }
}

#[test]
fn what_comes_after_a_shutdown_for_receiving_is_thrown_away() {
    by_hand(|u, puppet| {
        let (fd, mut hand) = call_in(u, puppet);
        let woken = Rc::new(Cell::new(false));
        let its = woken.clone();
        let reader = fork(u, "reader", move |u| {
            let at = map(u, PAGE_SIZE);
            assert_eq!(u.read(fd, at, 10), Ok(0));
            its.set(true);
        });
        until_asleep(u, reader);
        u.shutdown(fd, Shutdown::Receive).expect("connected");
        u.wait().expect("the reader");
        assert!(woken.get());
        // More than the buffer holds: none of it stays, all of it is acknowledged, and the window does not close.
        for _ in 0..80 {
            hand.say(ACK, &[9; 1400]);
            let heard = hand.hear(u);
            assert!(heard.iter().all(|seg| !seg.has(RST) && seg.window > 10_000), "{heard:?}");
        }
        u.sleep_for(Cycles(150 * MS.0)).expect("alive");
        let heard = hand.hear(u);
        let last = heard.last().map(|seg| seg.ack);
        assert!(last.is_none_or(|ack| ack == hand.seq), "{heard:?}");
        let at = map(u, PAGE_SIZE);
        assert_eq!(u.read(fd, at, 10), Ok(0));
        // The other direction is open.
        assert_eq!(u.write(fd, at, 10), Ok(10));
        assert!(hand.hear(u).iter().any(|seg| seg.data.len() == 10 && seg.ack == hand.seq));
        // What was there before is gone as well, and nothing of it resets the connection.
        u.close(fd).expect("open");
        assert!(hand.hear(u).iter().any(|seg| seg.has(FIN)));
    });
    by_hand(|u, puppet| {
        let (fd, mut hand) = call_in(u, puppet);
        hand.say(ACK, &[9; 1400]);
        hand.hear(u);
        u.shutdown(fd, Shutdown::Receive).expect("connected");
        let at = map(u, PAGE_SIZE);
        assert_eq!(u.read(fd, at, 10), Ok(0));
        u.kernel().check().expect("the laws hold");
        u.close(fd).expect("open");
        assert!(hand.hear(u).iter().all(|seg| !seg.has(RST)));
    });
}

fn udp(u: &U, port: u16) -> Fd {
    let fd = u.socket(SocketKind::Datagram).expect("a socket");
    u.bind(fd, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).expect("the port is free");
    fd
}

#[test]
fn who_waits_for_datagrams_is_told_of_a_shutdown() {
    by_hand(|u, puppet| {
        let fd = udp(u, 53);
        let reader = fork(u, "reader", move |u| {
            let at = map(u, PAGE_SIZE);
            assert_eq!(u.read(fd, at, 10), Ok(0));
        });
        until_asleep(u, reader);
        u.shutdown(fd, Shutdown::Receive).expect("open");
        u.wait().expect("the reader");
        puppet.send(datagram(5, 53, &[1, 2, 3]));
        u.sleep_for(Cycles(3 * MS.0)).expect("alive");
        let at = map(u, PAGE_SIZE);
        assert_eq!(u.read(fd, at, 10), Ok(0));
    });
}

#[test]
fn who_waits_for_datagrams_is_told_that_the_card_is_gone() {
    by_hand(|u, _| {
        let (fd, local) = (udp(u, 53), u.socket(SocketKind::Datagram).expect("a socket"));
        u.bind(local, SocketAddrV4::new(LOCALHOST, 54)).expect("the port is free");
        let reader = fork(u, "reader", move |u| {
            let at = map(u, PAGE_SIZE);
            assert_eq!(u.receive_from(fd, at, 10), Err(Errno::Removed));
            // Loopback still works, for this socket and for the other.
            assert_eq!(u.receive_from(fd, at, 10).map(|(len, _)| len), Ok(3));
            assert_eq!(u.receive_from(local, at, 10).map(|(len, _)| len), Ok(4));
        });
        until_asleep(u, reader);
        u.machine().remove_nic_at(u.machine().now());
        u.sleep_for(Cycles(3 * MS.0)).expect("alive");
        let (from, at) = (udp(u, 55), map(u, PAGE_SIZE));
        u.store(at, &[0; 4]);
        assert_eq!(u.send_to(from, at, 3, SocketAddrV4::new(LOCALHOST, 53)), Ok(3));
        assert_eq!(u.send_to(from, at, 4, SocketAddrV4::new(LOCALHOST, 54)), Ok(4));
        u.wait().expect("the reader");
    });
}
