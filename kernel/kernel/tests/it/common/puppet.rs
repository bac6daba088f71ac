//! A far end on strings: a process of the test says which frames it sends, and looks at those that have come. It
//! answers questions for its address by itself.

use super::far::FAR_ADDRESS;
use super::*;
use pageferry_model::net::FarEnd;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// The card's station, and the far end's.
pub const CARD: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const STATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// It looks so often whether it is to send something.
const LOOKS_EVERY_NS: u64 = 50_000;
/// It does nothing more after this time: a test that waits for ever then ends as a deadlock.
const LIFE_NS: u64 = 4_000_000_000_000;

/// Flags of a segment.
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

#[derive(Default)]
struct Strings {
    to_send: VecDeque<Vec<u8>>,
    arrived: Vec<Vec<u8>>,
    is_mute: bool,
    sent: u64,
}

/// The far end. Clones are the same: one to attach, one to hold the strings of.
#[derive(Clone, Default)]
pub struct Puppet(Rc<RefCell<Strings>>);

impl Puppet {
    /// Sends a frame, as soon as it looks again.
    pub fn send(&self, frame: Vec<u8>) {
        self.0.borrow_mut().to_send.push_back(frame);
    }
    /// The frames that have arrived since it was last asked, without questions for addresses.
    pub fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.borrow_mut().arrived)
    }
    /// It answers no questions.
    pub fn mute(&self) {
        self.0.borrow_mut().is_mute = true;
    }
    /// Frames that it has sent.
    pub fn sent(&self) -> u64 {
        self.0.borrow().sent
    }
    /// All that was to be sent is sent.
    pub fn is_idle(&self) -> bool {
        self.0.borrow().to_send.is_empty()
    }
}

impl FarEnd for Puppet {
    fn arrives(&mut self, _now_ns: u64, frame: &[u8]) {
        let mut strings = self.0.borrow_mut();
        let is_question = frame[12..14] == [8, 6] && frame[21] == 1;
        if is_question && frame[38..42] == FAR_ADDRESS.octets() {
            if !strings.is_mute {
                strings.to_send.push_front(arp(2, STATION, FAR_ADDRESS));
            }
        } else if !is_question {
            strings.arrived.push(frame.to_vec());
        }
    }
    fn poll(&mut self, _now_ns: u64) -> Option<Vec<u8>> {
        let mut strings = self.0.borrow_mut();
        let frame = strings.to_send.pop_front()?;
        strings.sent += 1;
        Some(frame)
    }
    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        let wait = if self.0.borrow().to_send.is_empty() { LOOKS_EVERY_NS } else { 0 };
        (now_ns < LIFE_NS).then_some(now_ns + wait)
    }
}

/// An ARP packet to us, from `station`, which says that it has `address`.
pub fn arp(operation: u8, station: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet([8, 6]);
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(station);
    frame.extend(address.octets());
    frame.extend(CARD);
    frame.extend(OUR_ADDRESS.octets());
    frame.resize(60, 0);
    frame
}

fn ethernet(kind: [u8; 2]) -> Vec<u8> {
    [&CARD[..], &STATION, &kind].concat()
}

/// The ones' complement sum of `parts`, each of which begins at an even place.
pub fn sum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words.map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |&b| u32::from(b))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// A frame with an IP packet from the far end to us.
pub fn ip(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + payload.len() as u16).to_be_bytes());
    header.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
    header.extend(FAR_ADDRESS.octets());
    header.extend(OUR_ADDRESS.octets());
    let right = sum(&[&header]);
    header[10..12].copy_from_slice(&right);
    let mut frame = ethernet([8, 0]);
    frame.extend(header);
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Puts the sum of a TCP or UDP packet in.
pub fn with_sum(protocol: u8, mut packet: Vec<u8>, at: usize) -> Vec<u8> {
    packet[at..at + 2].fill(0);
    let len = (packet.len() as u16).to_be_bytes();
    let right = sum(&[&FAR_ADDRESS.octets(), &OUR_ADDRESS.octets(), &[0, protocol], &len, &packet]);
    packet[at..at + 2].copy_from_slice(&right);
    packet
}

/// An echo request.
pub fn ping(number: u8, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![8, 0, 0, 0, 0, 7, 0, number];
    packet.extend(data);
    let right = sum(&[&packet]);
    packet[2..4].copy_from_slice(&right);
    ip(1, &packet)
}

/// A datagram.
pub fn datagram(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
    let mut packet =
        [from.to_be_bytes(), to.to_be_bytes(), (8 + data.len() as u16).to_be_bytes(), [0; 2]].concat();
    packet.extend(data);
    ip(17, &with_sum(17, packet, 6))
}

/// A segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seg {
    pub from: u16,
    pub to: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub data: Vec<u8>,
}

impl Seg {
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = [self.from.to_be_bytes(), self.to.to_be_bytes()].concat();
        packet.extend(self.seq.to_be_bytes());
        packet.extend(self.ack.to_be_bytes());
        let options: &[u8] = if self.flags & SYN != 0 { &[2, 4, 5, 0xb4] } else { &[] };
        packet.extend([(5 + options.len() as u8 / 4) << 4, self.flags]);
        packet.extend(self.window.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(options);
        packet.extend(&self.data);
        with_sum(6, packet, 16)
    }

    pub fn frame(&self) -> Vec<u8> {
        ip(6, &self.packet())
    }

    /// What a frame of ours has in it.
    pub fn of(frame: &[u8]) -> Option<Seg> {
        if frame[12..14] != [8, 0] || frame[23] != 6 {
            return None;
        }
        let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let packet = &frame[34..14 + total];
        let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let data = packet[usize::from(packet[12] >> 4) * 4..].to_vec();
        let (from, to) = (word(0), word(2));
        Some(Seg { from, to, seq: long(4), ack: long(8), flags: packet[13], window: word(14), data })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// One end of a connection, by hand.
#[derive(Clone)]
pub struct Hand {
    pub puppet: Puppet,
    pub own: u16,
    pub theirs: u16,
    /// What it sends next, and what it expects.
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
}

impl Hand {
    pub fn new(puppet: &Puppet, own: u16, theirs: u16, seq: u32) -> Hand {
        Hand { puppet: puppet.clone(), own, theirs, seq, ack: 0, window: 30_000 }
    }

    /// A segment as it would be now.
    pub fn seg(&self, flags: u8, data: &[u8]) -> Seg {
        let (from, to, seq, ack, window) = (self.own, self.theirs, self.seq, self.ack, self.window);
        Seg { from, to, seq, ack, flags, window, data: data.to_vec() }
    }

    /// Sends a segment that takes its place in the sequence.
    pub fn say(&mut self, flags: u8, data: &[u8]) {
        self.puppet.send(self.seg(flags, data).frame());
        self.seq = self.seq.wrapping_add(data.len() as u32 + u32::from(flags & (SYN | FIN) != 0));
    }

    /// Sends a segment that takes no place.
    pub fn say_at(&self, seq: u32, flags: u8, data: &[u8]) {
        self.puppet.send(Seg { seq, ..self.seg(flags, data) }.frame());
    }

    /// Lets time pass; the segments that came for it. What is in order is acknowledged with what is said next.
    pub fn hear(&mut self, u: &U) -> Vec<Seg> {
        u.sleep_for(Cycles(3 * far::MS.0)).expect("alive");
        let all: Vec<Seg> = self
            .puppet
            .take()
            .iter()
            .filter_map(|frame| Seg::of(frame))
            .filter(|s| s.to == self.own)
            .collect();
        for seg in &all {
            if seg.seq == self.ack {
                self.ack =
                    self.ack.wrapping_add(seg.data.len() as u32 + u32::from(seg.flags & (SYN | FIN) != 0));
            }
        }
        all
    }

    /// Connects to a port of ours, on which something listens.
    pub fn call(u: &U, puppet: &Puppet, own: u16, theirs: u16, seq: u32) -> Hand {
        let mut hand = Hand::new(puppet, own, theirs, seq);
        hand.say(SYN, &[]);
        let answer = hand.hear(u);
        let is_right = |seg: &Seg| seg.flags == SYN | ACK && seg.ack == hand.seq;
        assert!(!answer.is_empty() && answer.iter().all(is_right), "{answer:?}");
        hand.ack = answer[0].seq.wrapping_add(1);
        hand.say(ACK, &[]);
        hand.hear(u);
        hand
    }

    /// Takes a call of ours that has begun.
    pub fn answer(u: &U, puppet: &Puppet, own: u16, seq: u32) -> Hand {
        let mut hand = Hand::new(puppet, own, 0, seq);
        let call = hand.hear(u);
        assert!(!call.is_empty() && call[0].flags == SYN, "{call:?}");
        (hand.theirs, hand.ack) = (call[0].from, call[0].seq.wrapping_add(1));
        hand.say(SYN | ACK, &[]);
        hand.hear(u);
        hand
    }
}

/// A machine with a puppet at its far end.
pub fn on_strings(name: &str) -> (Model, Puppet) {
    let (m, puppet) = (machine(name, Schedule::Timed), Puppet::default());
    m.attach(Box::new(puppet.clone()));
    (m, puppet)
}

/// Puts right sums into a changed frame, as far as its headers can be made out.
pub fn mend(frame: &mut [u8]) {
    if frame.len() < 34 || frame[12..14] != [8, 0] {
        return;
    }
    let header = usize::from(frame[14] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    if header < 20 || total < header || 14 + total > frame.len() {
        return;
    }
    frame[24..26].fill(0);
    let right = sum(&[&frame[14..14 + header]]);
    frame[24..26].copy_from_slice(&right);
    let (protocol, packet) = (frame[23], 14 + header..14 + total);
    let at = match protocol {
        6 => 16,
        17 => 6,
        _ => return,
    };
    if packet.len() > at + 2 {
        let at = packet.start + at;
        frame[at..at + 2].fill(0);
        let len = (packet.len() as u16).to_be_bytes();
        let right = sum(&[&frame[26..34], &[0, protocol], &len, &frame[packet]]);
        frame[at..at + 2].copy_from_slice(&right);
    }
}
