//! Packets in fragments: whole in any order, and nothing is left of what is never whole. The other end is on strings.

use crate::common::far::*;
use crate::common::puppet::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;

const HEADER: usize = 14 + 20;
const MORE: u16 = 0x2000;

fn by_hand(test: impl FnOnce(&U, &Puppet) + 'static) {
    let (m, puppet) = on_strings("xeon-mp");
    run_on(m, "xeon-mp", "fragments", internet(), move |u| test(u, &puppet));
}

/// A part of the packet in `frame`, as a fragment of packet `id`.
fn fragment(frame: &[u8], id: u16, part: std::ops::Range<usize>, more: bool) -> Vec<u8> {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let packet = &frame[HEADER..14 + total];
    let mut fragment = ip(frame[23], &packet[part.clone()]);
    fragment[18..20].copy_from_slice(&id.to_be_bytes());
    let at = (part.start / 8) as u16 | if more { MORE } else { 0 };
    fragment[20..22].copy_from_slice(&at.to_be_bytes());
    fragment[24..26].fill(0);
    let right = sum(&[&fragment[14..HEADER]]);
    fragment[24..26].copy_from_slice(&right);
    fragment
}

/// All of it, cut at `cuts`.
fn cut(frame: &[u8], id: u16, cuts: &[usize]) -> Vec<Vec<u8>> {
    let end = usize::from(u16::from_be_bytes([frame[16], frame[17]])) - 20;
    let ends: Vec<usize> = cuts.iter().copied().chain([end]).collect();
    let begins = [0].into_iter().chain(cuts.iter().copied());
    begins.zip(&ends).map(|(begin, &to)| fragment(frame, id, begin..to, to < end)).collect()
}

/// How many echo replies have come with these bytes.
fn replies(u: &U, puppet: &Puppet, data: &[u8]) -> usize {
    u.sleep_for(Cycles(5 * MS.0)).expect("alive");
    let is_one = |frame: &&Vec<u8>| frame[34] == 0 && frame[42..].starts_with(data);
    puppet.take().iter().filter(is_one).count()
}

#[test]
fn fragments_in_any_order_are_a_packet() {
    by_hand(|u, puppet| {
        let data = bytes(1, 0, 1200);
        let frame = ping(1, &data);
        for (id, cuts) in [(1, &[8][..]), (2, &[600]), (3, &[8, 16, 24, 1000]), (4, &[400, 800])] {
            let fragments = cut(&frame, id, cuts);
            for turn in 0..fragments.len() {
                let mut order: Vec<usize> = (0..fragments.len()).collect();
                order.rotate_left(turn);
                if turn % 2 == 1 {
                    order.reverse();
                }
                for (nth, at) in order.iter().enumerate() {
                    puppet.send(fragments[*at].clone());
                    if nth + 1 < order.len() {
                        // The same again is nothing new.
                        puppet.send(fragments[*at].clone());
                    }
                }
                assert_eq!(replies(u, puppet, &data), 1, "{cuts:?} {order:?}");
            }
        }
    });
}

#[test]
fn a_segment_in_fragments_is_one() {
    by_hand(|u, puppet| {
        let listening = our_server(u, 4);
        let mut hand = Hand::call(u, puppet, 1234, OUR_PORT, 1);
        let (fd, _) = u.accept(listening).expect("it is there");
        let (at, data) = (map(u, PAGE_SIZE), bytes(2, 0, 1000));
        for fragment in cut(&hand.seg(ACK, &data).frame(), 7, &[24, 512]).iter().rev() {
            puppet.send(fragment.clone());
        }
        hand.seq += 1000;
        hand.hear(u);
        let mut got = vec![0; 1000];
        assert_eq!(u.read(fd, at, PAGE_SIZE), Ok(1000));
        u.load(at, &mut got);
        assert!(got == data);
        // One byte of it is wrong: the sum over the whole says so.
        let mut wrong = cut(&hand.seg(ACK, &data).frame(), 8, &[512]);
        wrong[1][HEADER + 100] ^= 1;
        wrong.into_iter().for_each(|fragment| puppet.send(fragment));
        hand.hear(u);
        u.set_nonblocking(fd, true).expect("open");
        assert_eq!(u.read(fd, at, PAGE_SIZE), Err(Errno::WouldBlock));
    });
}

#[test]
fn what_is_never_whole_leaves_nothing() {
    let second = ms_on("xeon-mp", 1000);
    by_hand(move |u, puppet| {
        let data = bytes(3, 0, 1200);
        let frame = ping(1, &data);
        let send = |parts: &[(std::ops::Range<usize>, bool)], id| {
            parts.iter().for_each(|(part, more)| puppet.send(fragment(&frame, id, part.clone(), *more)));
        };
        // Laps over, or contradicts what was said of the end, or ends within a unit, or has nothing, or is too long.
        let unsound: [&[(std::ops::Range<usize>, bool)]; 6] = [
            &[(0..800, true), (792..1208, false)],
            &[(400..800, true), (8..1208, false)],
            &[(0..800, false), (800..1208, false)],
            &[(800..1208, false), (0..804, true), (800..1208, true)],
            &[(0..0, true), (800..1208, false)],
            &[(0..8, true), (8..16, true), (8..24, true), (16..1208, false)],
        ];
        for (id, parts) in (10..).zip(unsound) {
            send(parts, id);
            assert_eq!(replies(u, puppet, &data), 0, "{parts:?}");
        }
        let mut beyond = fragment(&frame, 30, 0..1208, false);
        beyond[20..22].copy_from_slice(&0x1fff_u16.to_be_bytes());
        mend(&mut beyond);
        puppet.send(beyond);
        assert_eq!(replies(u, puppet, &data), 0);
        // More of them than there is room for; a sound one comes through nevertheless.
        for id in 100..400 {
            send(&[(0..800, true)], id);
            // No more of them at a time than a card has buffers for.
            if id % 10 == 0 {
                u.sleep_for(Cycles(second.0 / 1000)).expect("alive");
            }
        }
        send(&[(0..800, true), (800..1208, false)], 99);
        assert_eq!(replies(u, puppet, &data), 1);
        // Half a minute is as long as one waits.
        send(&[(0..800, true)], 500);
        u.sleep_for(Cycles(31 * second.0)).expect("alive");
        send(&[(800..1208, false)], 500);
        assert_eq!(replies(u, puppet, &data), 0);
        send(&[(0..800, true)], 501);
        u.sleep_for(Cycles(25 * second.0)).expect("alive");
        send(&[(800..1208, false)], 501);
        assert_eq!(replies(u, puppet, &data), 1);
    });
}

/// Sixteen packets wait; with one more the first gives way.
#[test]
fn so_many_packets_wait_for_their_rest() {
    const MOST: u16 = 16;
    for (count, first_is_whole) in [(MOST, 1), (MOST + 1, 0)] {
        by_hand(move |u, puppet| {
            let data = bytes(4, 0, 1200);
            let frame = ping(1, &data);
            for id in 0..count {
                puppet.send(fragment(&frame, id, 0..800, true));
            }
            for (id, expected) in [(1, 1), (0, first_is_whole)] {
                puppet.send(fragment(&frame, id, 800..1208, false));
                assert_eq!(replies(u, puppet, &data), expected, "packet {id} of {count}");
            }
        });
    }
}
