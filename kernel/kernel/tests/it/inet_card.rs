//! The Internet protocols through the card, to a host whose stack others wrote: every byte on both sides, whatever the
//! sizes, the card, the number of CPUs and who closes first.

use crate::common::far::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_model::net::Wire;
use pageferry_model::net::smol::{Ended as TalkEnded, Service};
use std::net::{Ipv4Addr, SocketAddrV4};

const PAGE: usize = PAGE_SIZE;
/// One CPU, and two and more; with header split and without; large rings and small ones.
const MACHINES: [&str; 6] = ["xeon-up", "xeon-mp", "xeon-mp-htt", "today", "mini-soft", "mini-hash:2"];

fn plan(len: usize, chunk: usize, closes_first: bool) -> Plan {
    Plan { echoed: len, heard: len / 2, answered: len / 3, chunk, closes_first }
}

#[test]
fn two_hosts_talk_through_every_card() {
    for name in MACHINES {
        for (len, chunk, closes_first) in [(0, PAGE, false), (1, PAGE, true), (100_000, 7777, false)] {
            converse(name, Schedule::Timed, internet(), Wire::default(), plan(len, chunk, closes_first));
        }
    }
}

#[test]
fn whatever_the_sizes() {
    for len in [1447, 1448, 1449, 2896, 65_535, 65_536, 1 << 20] {
        let chunk = if len > 100_000 { 64 << 10 } else { 3 * PAGE };
        let ended = converse("xeon-mp", Schedule::Timed, internet(), Wire::default(), plan(len, chunk, true));
        let statistics = ended.m.nic_statistics();
        assert!(statistics.received > 8 && statistics.missed == 0, "{statistics:?}");
    }
}

#[test]
fn schedules_and_offload_make_no_difference() {
    for seed in 0..6 {
        let mut config = internet();
        config.net.as_mut().expect("it has one").checksum_offload = seed % 2 == 0;
        converse("today", Schedule::Seeded(seed), config, Wire::default(), plan(40_000, 5000, seed % 3 == 0));
    }
}

/// A byte with each call: segments of many small pieces, more than a card gathers.
#[test]
fn small_pieces_are_put_together_for_the_card() {
    for name in ["xeon-mp", "mini-soft"] {
        converse(name, Schedule::Timed, internet(), Wire::default(), plan(3000, 1, false));
    }
}

#[test]
fn who_sends_all_closes_first() {
    let mut far = far_end(1);
    let (source, discard) = (far.listen(19, Service::Source(200_000)), far.listen(10, Service::Discard));
    let (sent, taken) = (source.clone(), discard.clone());
    let m = machine_with("xeon-mp", Schedule::Timed, Wire::default(), far);
    run_on(m, "xeon-mp", "source and discard", internet(), move |u| {
        let at = map(u, 4 * PAGE);
        let fd = connected(u, SOURCE);
        assert!(read_all(u, fd, at, 4 * PAGE, usize::MAX) == patterned(200_000));
        u.close(fd).expect("open");
        let fd = connected(u, DISCARD);
        for part in patterned(100_000).chunks(4 * PAGE) {
            u.store(at, part);
            assert_eq!(u.write(fd, at, part.len()), Ok(part.len()));
        }
        // At once: what is not sent yet is sent behind the close.
        u.close(fd).expect("open");
        wait_until(u, || discard.all().iter().chain(&source.all()).all(|talk| talk.ended.is_some()));
    });
    for (talk, received) in [(sent.only(), 0), (taken.only(), 100_000)] {
        assert_eq!((talk.received, talk.differs_at), (received, None));
        assert!(talk.ended.is_some_and(|(how, _)| how == TalkEnded::Closed), "{talk:?}");
    }
}

#[test]
fn datagrams_come_back() {
    let mut far = far_end(1);
    let echoed = far.udp_echo(7);
    let m = machine_with("xeon-mp", Schedule::Timed, Wire::default(), far);
    run_on(m, "xeon-mp", "datagrams", internet(), |u| {
        let fd = u.socket(SocketKind::Datagram).expect("a socket");
        u.connect(fd, ECHO).expect("datagrams are connected at once");
        let (at, to) = (map(u, PAGE), map(u, PAGE));
        for len in [0, 1, 17, 18, 1000, 1471, 1472] {
            u.store(at, &bytes(len as u64, 0, len));
            assert_eq!(u.write(fd, at, len), Ok(len));
            assert_eq!(u.receive_from(fd, to, PAGE), Ok((len, ECHO)));
            let mut got = vec![0; len];
            u.load(to, &mut got);
            assert!(got == bytes(len as u64, 0, len), "{len} bytes");
        }
        assert_eq!(u.write(fd, at, 1473), Err(Errno::MessageSize));
        let nobody = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 77), 7);
        let other = u.socket(SocketKind::Datagram).expect("a socket");
        (0..20).for_each(|_| assert_eq!(u.send_to(other, at, 10, nobody), Ok(10)));
    });
    assert_eq!(*echoed.borrow(), 7);
}
