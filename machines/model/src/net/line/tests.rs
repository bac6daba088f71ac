//! Two such hosts on one wire, which loses what it is told to.

use super::*;
use std::net::Ipv4Addr;
use std::rc::Rc;

fn byte(seed: u64, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 23) as u8
}

fn speech(seed: u64, len: u64, closes_first: bool) -> Speech {
    let write = Rc::new(move |at: u64, into: &mut [u8]| {
        into.iter_mut().enumerate().for_each(|(i, b)| *b = byte(seed, at + i as u64));
    });
    Speech { len, write, closes_first }
}

#[derive(Default)]
struct Mouth {
    /// What it says to those that connect, and what to the one that it calls.
    says: Option<Speech>,
    call: Option<Call>,
    heard: u64,
    wrong: Option<u64>,
    ended: Vec<End>,
}

impl Talker for Mouth {
    fn accepts(&mut self, _: u64, port: u16) -> Option<Speech> {
        (port == 80).then(|| self.says.clone()).flatten()
    }
    fn calls(&mut self, _: u64, _: u64) -> Option<Call> {
        self.call.take()
    }
    fn next_call_at(&mut self, now_ns: u64) -> Option<u64> {
        self.call.as_ref().map(|_| now_ns)
    }
    fn hears(&mut self, _: u64, _: u64, at: u64, bytes: &[u8]) {
        assert_eq!(at, self.heard, "in order, and each once");
        let seed = if self.says.is_some() { 1 } else { 2 };
        if let Some(i) = bytes.iter().enumerate().position(|(i, b)| *b != byte(seed, at + i as u64)) {
            self.wrong.get_or_insert(at + i as u64);
        }
        self.heard += bytes.len() as u64;
    }
    fn ended(&mut self, _: u64, _: u64, how: End) {
        self.ended.push(how);
    }
}

/// A server that says so much, and a caller; over a wire that loses every frame whose number `loses`. What both heard,
/// and how it ended.
fn talk(lens: (u64, u64), closes_first: (bool, bool), port: u16, loses: impl Fn(u64) -> bool) -> [Mouth; 2] {
    let ip = |n| Ipv4Addr::new(10, 0, 0, n);
    let config =
        |n: u8| LineConfig { ip: ip(n), mac: MacAddress([2, 0, 0, 0, 0, n]), ..LineConfig::default() };
    let server =
        Rc::new(RefCell::new(Mouth { says: Some(speech(2, lens.0, closes_first.0)), ..Mouth::default() }));
    let to = SocketAddrV4::new(ip(1), port);
    let call = Call { to, speech: speech(1, lens.1, closes_first.1) };
    let caller = Rc::new(RefCell::new(Mouth { call: Some(call), ..Mouth::default() }));
    let mut hosts = [LineHost::new(config(1), server.clone()), LineHost::new(config(2), caller.clone())];
    let (mut now, mut frames) = (0, 0);
    loop {
        let mut any = false;
        for side in 0..2 {
            if let Some(frame) = hosts[side].poll(now) {
                any = true;
                frames += 1;
                // The question for an address is asked once.
                if frame[12..14] == [8, 6] || !loses(frames) {
                    hosts[1 - side].arrives(now + 1000, &frame);
                }
            }
        }
        now += 10_000;
        if !any {
            let next = hosts.iter_mut().filter_map(|host| host.next_at(now)).min();
            let Some(next) = next else { break };
            now = now.max(next);
        }
        assert!(now < 10_000_000_000_000, "it has no end");
    }
    drop(hosts);
    [server, caller].map(|mouth| Rc::into_inner(mouth).expect("the hosts are gone").into_inner())
}

#[test]
fn bytes_arrive_as_they_were_said() {
    for lens in [(0, 0), (1, 0), (0, 1), (100_000, 5), (7, 3_000_000), (2_000_000, 2_000_000)] {
        for closes in [(true, false), (false, true), (true, true)] {
            let [server, caller] = talk(lens, closes, 80, |_| false);
            assert_eq!((server.heard, caller.heard), (lens.1, lens.0));
            assert_eq!((server.wrong, caller.wrong), (None, None));
            assert_eq!(
                (server.ended, caller.ended),
                (vec![End::Closed], vec![End::Closed]),
                "{lens:?} {closes:?}"
            );
        }
    }
}

#[test]
fn what_is_lost_is_sent_again() {
    for (seed, part) in [(1, 8), (2, 16), (3, 16), (4, 64), (5, 200)] {
        // By chance: what comes around with a period could be what is sent again.
        let lost = |n| u64::from(byte(seed, n)) * 256 + u64::from(byte(seed + 9, n)) < 65_536 / part;
        let [server, caller] = talk((50_000, 40_000), (true, true), 80, lost);
        assert_eq!((server.heard, caller.heard), (40_000, 50_000), "one of {part}");
        assert_eq!((server.wrong, caller.wrong), (None, None));
    }
}

#[test]
fn nothing_listens_there() {
    let [_, caller] = talk((1, 1), (true, true), 81, |_| false);
    assert_eq!(caller.ended, [End::Reset]);
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    let [_, caller] = talk((10_000, 100_000), (true, true), 80, |n| n > 20);
    assert_eq!(caller.ended, [End::TimedOut]);
}
