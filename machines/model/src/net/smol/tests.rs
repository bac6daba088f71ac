//! Two hosts on one wire, without a machine between.

use super::*;
use pageferry_hal::MacAddress;
use std::net::Ipv4Addr;
use std::net::SocketAddrV4;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn hosts(seed: u64) -> [SmolFarEnd; 2] {
    let server = SmolFarEnd::new(SmolConfig { seed, ..SmolConfig::default() });
    let (mac, ip) = (MacAddress([2, 0, 0, 0, 0, 3]), Ipv4Addr::new(10, 0, 0, 3));
    [server, SmolFarEnd::new(SmolConfig { mac, ip, seed: seed + 1, ..SmolConfig::default() })]
}

/// Lets two hosts talk until neither has anything to do; each frame takes a microsecond. How many frames there were.
fn talk(hosts: &mut [SmolFarEnd; 2]) -> usize {
    talk_over(hosts, |_| true)
}

/// As [`talk`]; of the frames only those arrive that `arrives` says, by number.
fn talk_over([a, b]: &mut [SmolFarEnd; 2], arrives: impl Fn(usize) -> bool) -> usize {
    let (mut now, mut frames) = (0, 0);
    loop {
        let next = [a.next_at(now), b.next_at(now)].into_iter().flatten().min();
        let Some(next) = next else { return frames };
        now = now.max(next);
        for to_b in [true, false] {
            let (from, to) = if to_b { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            if let Some(frame) = from.poll(now) {
                now += 1000;
                if arrives(frames) {
                    to.arrives(now, &frame);
                }
                frames += 1;
            }
        }
    }
}

fn client(port: u16, send: Vec<u8>, expect: Vec<u8>) -> Client {
    let to = SocketAddrV4::new(SERVER, port);
    Client { to, from_port: 50_000 + port, at_ns: 5_000, send, expect, closes_first: true }
}

#[test]
fn servers_do_what_they_are_for() {
    let mut hosts = hosts(1);
    let bytes = |len: u64| (0..len).map(pattern).collect::<Vec<u8>>();
    let [server, caller] = &mut hosts;
    let echo = server.listen(7, Service::Echo);
    let discard = server.listen(9, Service::Discard);
    let source = server.listen(19, Service::Source(300_000));
    let calls = [
        caller.connect(client(7, bytes(200_000), bytes(200_000))),
        caller.connect(client(9, bytes(100_000), vec![])),
        caller.connect(client(19, vec![], bytes(300_000))),
    ];
    assert!(talk(&mut hosts) > 600);
    let counted = |talks: &Talks| {
        let talk = talks.only();
        assert_eq!((talk.differs_at, talk.ended.expect("it has").0), (None, Ended::Closed));
        (talk.sent, talk.received)
    };
    assert_eq!([&echo, &discard, &source].map(counted), [(200_000, 200_000), (0, 100_000), (300_000, 0)]);
    assert_eq!(calls.each_ref().map(counted), [(200_000, 200_000), (100_000, 0), (0, 300_000)]);
}

#[test]
fn what_differs_is_found_and_what_is_refused_is_broken() {
    let mut hosts = hosts(2);
    let [server, caller] = &mut hosts;
    let discard = server.listen(9, Service::Discard);
    let mut bytes: Vec<u8> = (0..5000).map(pattern).collect();
    bytes[4321] ^= 1;
    caller.connect(client(9, bytes, vec![]));
    let refused = caller.connect(client(80, vec![1], vec![]));
    talk(&mut hosts);
    assert_eq!(discard.only().differs_at, Some(4321));
    let refused = refused.only();
    assert_eq!((refused.opened_at_ns, refused.ended.expect("it has").0), (None, Ended::Broken));
}

#[test]
fn a_port_serves_one_after_the_other_and_at_once() {
    let mut hosts = hosts(3);
    let echo = hosts[0].listen(7, Service::Echo);
    for i in 0..5 {
        let (send, expect) = (vec![i as u8; 3000], vec![i as u8; 3000]);
        let late =
            Client { from_port: 40_000 + i, at_ns: u64::from(i / 2) * 1_000_000, ..client(7, send, expect) };
        hosts[1].connect(late);
    }
    talk(&mut hosts);
    assert!(echo.all().iter().all(|talk| talk.received == 3000), "{:?}", echo.all());
    assert_eq!(echo.all().len(), 5);
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let frames = |seed| {
        let mut hosts = hosts(seed);
        hosts[0].listen(19, Service::Source(10_000));
        hosts[1].connect(client(19, vec![], (0..10_000).map(pattern).collect()));
        let mut seen = Vec::new();
        let mut now = 0;
        while let (Some(next), true) = (hosts[1].next_at(now), seen.len() < 4) {
            now = next.max(now);
            if let Some(frame) = hosts[1].poll(now) {
                hosts[0].arrives(now, &frame);
                seen.push(frame);
            }
            if let Some(frame) = hosts[0].poll(now) {
                hosts[1].arrives(now, &frame);
                seen.push(frame);
            }
        }
        seen
    };
    assert_eq!(frames(7), frames(7));
    assert_ne!(frames(7), frames(8));
}

#[test]
fn any_frame_can_be_lost() {
    let exchange = |lost| {
        let mut hosts = hosts(4);
        let source = hosts[0].listen(19, Service::Source(10_000));
        let expect = (0..10_000).map(pattern).collect();
        let caller = hosts[1].connect(Client { closes_first: false, ..client(19, vec![], expect) });
        let frames = talk_over(&mut hosts, |frame| frame != lost);
        for talk in [source.only(), caller.only()] {
            assert_eq!(talk.ended.expect("it has").0, Ended::Closed, "without frame {lost}: {talk:?}");
        }
        frames
    };
    let frames = exchange(usize::MAX);
    for lost in 0..frames {
        exchange(lost);
    }
}
