//! Malformed frames and random ones, at a kernel with connections, a listener and a UDP socket: nothing panics, nothing
//! leaks, no byte of one connection comes out of another. `PAGEFERRY_FRAMES` says how many frames.

use crate::common::puppet::*;
use crate::common::*;
use crate::common::{far::*, puppet};
use pageferry_kernel::*;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Frames of a run: then all is closed, and what is left is counted.
const FRAMES_PER_RUN: u64 = 2000;

/// A generator of numbers, small and the same everywhere (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The byte that each connection says, and nothing else: which comes from where is seen.
const MARKS: [u8; 2] = [0xa1, 0xb2];

/// A sound frame of some kind, near to what the connections expect.
fn sound_frame(dice: &mut Dice, hands: &[Hand]) -> Vec<u8> {
    let near = |dice: &mut Dice, number: u32| {
        let off = [0, 0, 1, 1460, 40_000, 1 << 20, 1 << 31][dice.below(7) as usize];
        if dice.below(2) == 0 { number.wrapping_add(off) } else { number.wrapping_sub(off) }
    };
    match dice.below(10) {
        0 => ping(dice.next() as u8, &[1; 40]),
        1 => datagram(dice.next() as u16, 53, &vec![0xd0; dice.below(1400) as usize]),
        2 => arp(1 + dice.below(2) as u8, STATION, FAR_ADDRESS),
        3 => {
            // A call, of one of a few.
            let mut hand =
                Hand::new(&Puppet::default(), 2000 + dice.below(4) as u16, OUR_PORT, dice.next() as u32);
            hand.window = dice.next() as u16;
            hand.seg(SYN, &[]).frame()
        }
        _ => {
            let which = dice.below(hands.len() as u64) as usize;
            let hand = &hands[which];
            let data = vec![MARKS[which]; [0, 0, 1, 100, 1460][dice.below(5) as usize]];
            // A reset rarely: it may be right.
            let flags = [ACK, ACK, ACK, ACK, SYN, ACK | SYN, FIN | ACK, 0, RST][dice.below(9) as usize];
            let mut seg = hand.seg(flags, &data);
            (seg.seq, seg.ack) = (near(dice, seg.seq), near(dice, seg.ack));
            seg.window = [seg.window, 0, 1, 0xffff][dice.below(4) as usize];
            seg.frame()
        }
    }
}

/// The frame as it is, or changed: bits, bytes, its length, its headers. Half of the changed ones get right sums again.
fn frame(dice: &mut Dice, hands: &[Hand]) -> Vec<u8> {
    if dice.below(20) == 0 {
        let mut frame: Vec<u8> = (0..60 + dice.below(1400)).map(|_| dice.next() as u8).collect();
        frame[..6].copy_from_slice(&puppet::CARD);
        return frame;
    }
    let mut frame = sound_frame(dice, hands);
    for _ in 0..dice.below(4) {
        // Mostly in the headers, behind the station's address.
        let max_bytes = if dice.below(4) == 0 { frame.len() } else { frame.len().min(60) };
        let at = 6 + dice.below(max_bytes as u64 - 6) as usize;
        match dice.below(5) {
            0 => frame[at] ^= 1 << dice.below(8),
            1 => frame[at] = [0, 1, 0x7f, 0x80, 0xff][dice.below(5) as usize],
            2 => frame.truncate(at.max(14)),
            3 => frame
                .extend(vec![0x5a; (dice.below(100) as usize).min(1514_usize.saturating_sub(frame.len()))]),
            _ => {
                // How long the headers say that they are, and the packet.
                let place = [14, 46, 16, 17, 38][dice.below(5) as usize];
                if let Some(byte) = frame.get_mut(place) {
                    *byte = dice.next() as u8;
                }
            }
        }
    }
    if dice.below(2) == 0 {
        puppet::mend(&mut frame);
    }
    frame
}

/// One kernel, so many frames.
fn storm(seed: u64, frames: u64) {
    let mut config = internet();
    let net = config.net.as_mut().expect("it has one");
    (net.checksum_offload, net.retransmissions) = (seed.is_multiple_of(2), 4);
    let name = ["xeon-mp", "today", "mini-soft"][(seed % 3) as usize];
    let (m, puppet) = on_strings(name);
    run_on(m, name, &format!("storm {seed}"), config, move |u| {
        let mut dice = Dice(seed);
        let listening = our_server(u, 4);
        let udp = u.socket(SocketKind::Datagram).expect("a socket");
        u.bind(udp, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 53)).expect("free");
        let mut hands = Vec::new();
        let mut fds = Vec::new();
        for own in 0..2 {
            hands.push(Hand::call(u, &puppet, 1000 + own, OUR_PORT, dice.next() as u32));
            fds.push(u.accept(listening).expect("it is there").0);
        }
        let at = map(u, 64 << 10);
        fds.iter().chain([&udp, &listening]).for_each(|fd| u.set_nonblocking(*fd, true).expect("open"));
        let mut sent = 0;
        while sent < frames {
            for _ in 0..100 {
                puppet.send(frame(&mut dice, &hands));
                sent += 1;
            }
            while !puppet.is_idle() {
                u.sleep_for(MS).expect("alive");
            }
            // What the connections are at by now.
            for seg in puppet.take().iter().filter_map(|frame| Seg::of(frame)) {
                for hand in hands.iter_mut().filter(|hand| hand.own == seg.to && seg.has(ACK)) {
                    (hand.seq, hand.ack) = (seg.ack, seg.seq.wrapping_add(seg.data.len() as u32));
                }
            }
            for (fd, mark) in fds.iter().zip(MARKS) {
                if let Ok(len) = u.read(*fd, at, 64 << 10) {
                    let mut got = vec![0; len];
                    u.load(at, &mut got);
                    // Bytes may be changed where the sums were mended; those of the other connection are not among
                    // them.
                    let other = MARKS[usize::from(mark == MARKS[0])];
                    assert!(!got.windows(8).any(|part| part.iter().all(|b| *b == other)), "bytes of another");
                }
                let _ = u.write(*fd, at, 100);
            }
            if let Ok((len, _)) = u.receive_from(udp, at, 64 << 10) {
                let mut got = vec![0; len];
                u.load(at, &mut got);
                assert!(
                    !got.windows(8).any(|p| MARKS.iter().any(|m| p.iter().all(|b| b == m))),
                    "of a connection"
                );
            }
            if let Ok((fd, _)) = u.accept(listening) {
                u.close(fd).expect("open");
            }
            u.kernel().check().unwrap_or_else(|e| panic!("storm {seed}, {sent} frames: {e}"));
        }
    });
}

#[test]
fn no_frame_does_harm() {
    let frames = std::env::var("PAGEFERRY_FRAMES").ok();
    let frames: u64 = frames.map_or(100_000, |frames| frames.parse().expect("a number of frames"));
    let first: u64 = std::env::var("PAGEFERRY_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    for run in 0..frames.div_ceil(FRAMES_PER_RUN) {
        storm(first + run, FRAMES_PER_RUN);
    }
}
