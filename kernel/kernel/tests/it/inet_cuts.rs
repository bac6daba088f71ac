//! A stream that comes by hand, cut anywhere: segments over one another, before their time, twice; and its end beside
//! bytes of which some, or all, have come before. Every byte is read once, and then the end. After each segment the
//! laws hold.

use crate::common::far::{OUR_PORT, our_server};
use crate::common::puppet::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;

/// A small generator: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

const LEN: usize = 3000;
/// As much as a segment holds.
const MAX: usize = 1200;

/// All that has come of a stream, and whether its end has.
fn heard(u: &U, fd: Fd, at: Va) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        match u.read(fd, at, PAGE_SIZE) {
            Ok(0) => return (all, true),
            Ok(len) => {
                let mut bytes = vec![0; len];
                u.load(at, &mut bytes);
                all.extend(bytes);
            }
            Err(Errno::WouldBlock) => return (all, false),
            Err(e) => panic!("{e:?}"),
        }
    }
}

/// Sends a stream in one such way; what is read of it.
fn one(u: &U, puppet: &Puppet, listening: Fd, random: &mut Random, number: u16) {
    // Most streams go over the end of the numbers.
    let mut hand = Hand::call(u, puppet, 1000 + number, OUR_PORT, u32::MAX - random.below(4000) as u32);
    let (fd, _) = u.accept(listening).expect("it is there");
    u.set_nonblocking(fd, true).expect("open");
    let stream = bytes(u64::from(number), 0, LEN);
    let (first, at, mut read) = (hand.seq, map(u, PAGE_SIZE), (Vec::new(), false));
    let send = |from: usize, to: usize, ends: bool| {
        let flags = if ends { ACK | FIN } else { ACK };
        hand.say_at(first.wrapping_add(from as u32), flags, &stream[from..to]);
    };
    let look = |read: &mut (Vec<u8>, bool)| {
        u.sleep_for(Cycles(3 * far::MS.0)).expect("alive");
        let (bytes, ended) = heard(u, fd, at);
        read.0.extend(bytes);
        read.1 |= ended;
        u.kernel().check().unwrap_or_else(|law| panic!("stream {number}: {law}"));
    };
    for _ in 0..random.below(8) {
        let from = random.below(LEN);
        let to = LEN.min(from + 1 + random.below(MAX));
        send(from, to, to == LEN && random.below(2) == 0);
        if random.below(2) == 0 {
            look(&mut read);
        }
    }
    // All of it, in order; the end is beside bytes that may have come before, and in no segment of its own.
    for from in (0..LEN).step_by(MAX / 2) {
        send(from, LEN.min(from + MAX / 2), false);
        look(&mut read);
    }
    send(LEN - 1 - random.below(MAX), LEN, true);
    look(&mut read);
    assert!(read.0 == stream, "stream {number}: {} bytes, or others", read.0.len());
    assert!(read.1, "stream {number}: its end has not come");
    hand.seq = first.wrapping_add(LEN as u32 + 1);
    let _ = hand.hear(u);
    u.close(fd).expect("open");
    hand.hear(u);
    hand.say(ACK, &[]);
    u.unmap(at, PAGE_SIZE).expect("mapped");
}

#[test]
fn every_byte_is_read_once_and_then_the_end() {
    let (m, puppet) = on_strings("xeon-mp");
    run_on(m, "xeon-mp", "cut anywhere", internet(), move |u| {
        let listening = our_server(u, 4);
        let mut random = Random(7);
        for number in 0..30 {
            one(u, &puppet, listening, &mut random, number);
        }
        u.close(listening).expect("open");
    });
}

/// Calls that are begun, given up, begun again, refused and taken: a listener's counts are right after each.
#[test]
fn a_listener_knows_who_has_called() {
    let (m, puppet) = on_strings("xeon-mp");
    run_on(m, "xeon-mp", "calls", internet(), move |u| {
        let listening = our_server(u, 4);
        u.set_nonblocking(listening, true).expect("open");
        let mut random = Random(5);
        let mut calls: Vec<(Hand, bool)> = Vec::new();
        for number in 0..60 {
            match random.below(5) {
                // A call; half of them never say more.
                0 | 1 => {
                    let mut hand = Hand::new(&puppet, 2000 + number, OUR_PORT, 100);
                    hand.say(SYN, &[]);
                    hand.hear(u);
                    calls.push((hand, false));
                }
                2 if !calls.is_empty() => {
                    let which = random.below(calls.len());
                    let (hand, is_made) = &mut calls[which];
                    hand.say(ACK, &[]);
                    *is_made = true;
                }
                3 if !calls.is_empty() => {
                    let (mut hand, _) = calls.swap_remove(random.below(calls.len()));
                    hand.say(RST | ACK, &[]);
                }
                _ => {
                    if let Ok((fd, _)) = u.accept(listening) {
                        u.close(fd).expect("open");
                    }
                }
            }
            u.sleep_for(Cycles(3 * far::MS.0)).expect("alive");
            u.kernel().check().unwrap_or_else(|law| panic!("step {number}: {law}"));
        }
        u.close(listening).expect("open");
        u.kernel().check().expect("the laws hold");
    });
}

/// What we send is acknowledged anywhere, within pages that were lent, too; beside other windows, which are no
/// acknowledgements again. What waits to be acknowledged is counted after each, and nothing is sent twice.
fn acknowledged(u: &U, puppet: &Puppet, listening: Fd, (number, mode): (u16, SendMode), random: &mut Random) {
    const PAGES: usize = 5;
    let mut hand = Hand::call(u, puppet, 3000 + number, OUR_PORT, 100);
    let (fd, _) = u.accept(listening).expect("it is there");
    let (stream, at) = (bytes(u64::from(number), 0, PAGES * PAGE_SIZE), map(u, PAGES * PAGE_SIZE));
    u.store(at, &stream);
    assert_eq!(u.send(fd, at, stream.len(), mode), Ok(stream.len()));
    let (first, mut heard, mut acked) = (hand.ack, Vec::<u8>::new(), 0);
    while acked < stream.len() {
        for seg in hand.hear(u).iter().filter(|seg| !seg.data.is_empty()) {
            assert_eq!(seg.seq.wrapping_sub(first) as usize, heard.len(), "{mode:?}: something comes twice");
            heard.extend(&seg.data);
        }
        if heard.len() > acked {
            acked += 1 + random.below(heard.len() - acked);
        }
        // The first is news; the others say only that the window is another.
        for _ in 0..1 + random.below(4) {
            let window = 20_000 + random.below(20_000) as u16;
            let ack = first.wrapping_add(acked as u32);
            puppet.send(Seg { ack, window, ..hand.seg(ACK, &[]) }.frame());
        }
        u.sleep_for(Cycles(3 * far::MS.0)).expect("alive");
        u.kernel().check().unwrap_or_else(|law| panic!("{mode:?}, {acked} bytes are acknowledged: {law}"));
    }
    assert!(heard == stream, "{mode:?}: other bytes have come");
    hand.say(ACK | FIN, &[]);
    hand.hear(u);
    u.close(fd).expect("open");
    hand.hear(u);
    hand.say(ACK, &[]);
    u.unmap(at, PAGES * PAGE_SIZE).expect("mapped");
}

#[test]
fn what_is_acknowledged_anywhere_is_counted_and_not_sent_twice() {
    let (m, puppet) = on_strings("xeon-mp");
    run_on(m, "xeon-mp", "acknowledged anywhere", internet(), move |u| {
        let listening = our_server(u, 4);
        let mut random = Random(3);
        for number in 0..12 {
            let mode = if number % 3 == 0 { SendMode::Copy } else { SendMode::Loan };
            acknowledged(u, &puppet, listening, (number, mode), &mut random);
        }
        u.close(listening).expect("open");
    });
}
