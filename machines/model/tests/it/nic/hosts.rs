//! Two hosts talk TCP: one at the far end, one whose frames go through the card.

use super::*;
use pageferry_model::net::Wire;
use pageferry_model::net::smol::{Client, Ended, Service, SmolConfig, SmolFarEnd, Talk, Talks, pattern};
use std::net::{Ipv4Addr, SocketAddrV4};

/// A kernel around a TCP/IP stack that somebody else has written.
struct Kernel<'a> {
    d: &'a Driver,
    stack: SmolFarEnd,
    mhz: u64,
    /// Frames that were posted, and how many of them were not answered.
    sent: u64,
    sending: u64,
}

const SLOTS: u64 = 16;

impl Kernel<'_> {
    /// Lets the stack work until `done`.
    fn run(&mut self, done: impl Fn() -> bool) {
        (0..SLOTS).for_each(|i| self.d.post(i, 300 + i as u32));
        while !done() {
            let (now, before) = (self.now(), self.d.interrupts.get());
            while let Some(NicReceived { tag, result }) = self.d.nic.take_received(NicRing::Main) {
                let len = result.expect("a frame").data_bytes;
                let frame = self.d.bytes(300 + tag as u32, len);
                self.d.m.execute(Instructions(2000));
                self.stack.arrives(now, &frame);
                self.d.post(tag, 300 + tag as u32);
            }
            self.send();
            if self.d.nic.acknowledge() == NicEvents::default() && !done() {
                self.halt(before);
            }
        }
        self.d.stop();
    }

    fn send(&mut self) {
        let d = self.d;
        while d.nic.take_transmitted().is_some() {
            self.sending -= 1;
        }
        while self.sending < SLOTS {
            let Some(frame) = self.stack.poll(self.now()) else { return };
            d.m.execute(Instructions(2000));
            // Frames are sent in order: what was sent so many frames ago is sent.
            let place = 200 + self.sent % SLOTS;
            d.send(self.sent, place as u32, &frame);
            self.sent += 1;
            self.sending += 1;
        }
    }

    /// Until the card interrupts, or the stack has something to do.
    fn halt(&mut self, before: u32) {
        let (d, now) = (self.d, self.now());
        let at = self.stack.next_at(now).filter(|_| self.sending < SLOTS);
        d.m.set_timer(at.map(|ns| Cycles((ns.max(now) * self.mhz).div_ceil(1000))));
        d.m.idle_until(&mut || d.interrupts.get() != before || d.ticked.get());
        d.ticked.set(false);
    }

    fn now(&self) -> u64 {
        self.d.m.now().0 * 1000 / self.mhz
    }
}

const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(pattern).collect()
}

fn client(to: Ipv4Addr, port: u16, send: u64, expect: u64) -> Client {
    let (send, expect) = (bytes(send), bytes(expect));
    let to = SocketAddrV4::new(to, port);
    Client { to, from_port: 40_000 + port, at_ns: 1_000_000, send, expect, closes_first: false }
}

/// True when each side has heard what it was told, and, over a good wire, both know that they are done. (What closes a
/// connection may be lost on a bad one; smoltcp 0.12 does not always say it again.)
fn is_good(talks: &Talks, hears: u64, closes: bool) -> bool {
    let all = talks.all();
    all.iter().for_each(|talk| assert_eq!(talk.differs_at, None));
    if closes {
        assert!(all.iter().all(|talk| talk.ended.is_none_or(|(how, _)| how == Ended::Closed)), "{all:?}");
    }
    let is_good = |talk: &Talk| talk.received == hears && (talk.ended.is_some() || !closes);
    all.len() == 1 && is_good(&all[0])
}

/// Everything at once, over a wire; the clock at the end.
fn talk(name: &str, wire: Wire, schedule: Schedule) -> (u64, NicStatistics) {
    let config = config(name);
    let mhz = config.cpu.clock_mhz.value;
    let m = Model::new(&config, Options::new(schedule)).expect("a valid machine");
    let mut far = SmolFarEnd::new(SmolConfig { seed: 1, ..SmolConfig::default() });
    let echo = far.listen(7, Service::Echo);
    let source = far.listen(19, Service::Source(60_000));
    let caller = far.connect(client(NEAR, 9, 70_000, 0));
    m.attach_over(wire, Box::new(far));
    let theirs = [(echo, 50_000), (source, 0), (caller, 0)];
    let closes = wire == Wire::default();
    m.run(Box::new(move |m| {
        let d = Driver::new(m);
        let own = SmolConfig { mac: CARD, ip: NEAR, seed: 2, ..SmolConfig::default() };
        let mut stack = SmolFarEnd::new(own);
        let discard = stack.listen(9, Service::Discard);
        let ours = [
            (discard, 70_000),
            (stack.connect(client(FAR, 7, 50_000, 50_000)), 50_000),
            (stack.connect(client(FAR, 19, 0, 60_000)), 60_000),
        ];
        let done = move || ours.iter().chain(&theirs).all(|(talks, hears)| is_good(talks, *hears, closes));
        Kernel { d: &d, stack, mhz, sent: 0, sending: 0 }.run(done);
        None
    }))
    .expect("the run ends");
    m.check().expect("the machine's laws hold");
    (m.snapshot().clocks[0], m.nic_statistics())
}

#[test]
fn two_hosts_talk_through_every_card() {
    for name in ["xeon-mp", "today", "ppc603", "pentium-pro", "mini-soft"] {
        let (_, statistics) = talk(name, Wire::default(), Schedule::Timed);
        assert!(statistics.received > 100, "{name}: {statistics:?}");
    }
}

#[test]
fn two_hosts_talk_over_a_bad_wire_and_say_the_same_each_time() {
    let wire = Wire {
        seed: 11,
        loss_ppm: 20_000,
        duplicate_ppm: 20_000,
        reorder_ppm: 50_000,
        corrupt_ppm: 10_000,
        delay_ns: 50_000,
        reorder_ns: 300_000,
    };
    for schedule in [Schedule::Timed, Schedule::Seeded(1)] {
        let (clock, statistics) = talk("mini-hash", wire, schedule);
        assert_eq!((clock, statistics), talk("mini-hash", wire, schedule));
    }
}
