//! A card that joins segments, beside a plain list of what was sent: nothing is joined that does not belong together,
//! nothing overtakes, and every byte is where the header says.

use super::super::frame::{Headers, put_checksum};
use super::*;
use pageferry_hal::NicChecksum;
use pageferry_sourced::Sourced;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

const PAGES: usize = 3;
const FLOWS: usize = 3;

/// A segment that the far end may send.
#[derive(Clone, Debug)]
struct Sent {
    flow: usize,
    len: usize,
    /// Bytes of the stream that are left out before it.
    gap: u32,
    pushed: bool,
    flags: u8,
    window: u16,
    /// A byte of it is changed, behind its sum.
    broken: bool,
}

/// What a frame says and carries.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Heard {
    seq: u32,
    flags: u8,
    window: u16,
    data: Vec<u8>,
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let len = prop_oneof![4 => Just(1448usize), 2 => 1..1460usize, 1 => Just(0usize), 1 => Just(1024usize)];
    let often = |often: u32| proptest::bool::weighted(1.0 / f64::from(often));
    (0..FLOWS, len, often(8), often(6), often(10), often(8), often(12)).prop_map(
        |(flow, len, gap, pushed, fin, closes, broken)| Sent {
            flow,
            len,
            gap: if gap { 1448 } else { 0 },
            pushed,
            flags: if fin { 0x11 } else { 0x10 },
            window: if closes { 700 } else { 9000 },
            broken,
        },
    )
}

fn frame(sent: &Sent, seq: u32) -> Vec<u8> {
    let total = (40 + sent.len) as u16;
    let mut f = [&MAC.0[..], &[2; 6], &[8, 0, 0x45, 0], &total.to_be_bytes()].concat();
    f.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    put_checksum(&mut f, NicChecksum { from: 14, at: 24 });
    f.extend([0x30, sent.flow as u8, 0, 7]);
    f.extend(seq.to_be_bytes());
    f.extend([0, 0, 0, 9, 0x50, sent.flags | if sent.pushed { 8 } else { 0 }]);
    f.extend([&sent.window.to_be_bytes()[..], &[0; 4]].concat());
    f.extend((0..sent.len).map(|i| byte_at(sent.flow, seq.wrapping_add(i as u32))));
    let pseudo: u32 = [0x0a00, 2, 0x0a00, 1, 6, 20 + sent.len as u32].iter().sum();
    f[50..52].copy_from_slice(&(pseudo as u16).to_be_bytes());
    put_checksum(&mut f, NicChecksum { from: 34, at: 50 });
    if sent.broken {
        f[52] ^= 0x40;
    }
    f
}

fn byte_at(flow: usize, seq: u32) -> u8 {
    (seq.wrapping_mul(31) >> 3) as u8 ^ flow as u8
}

fn heard(frame: &[u8]) -> (usize, Heard) {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let seq = u32::from_be_bytes(frame[38..42].try_into().expect("four"));
    let window = u16::from_be_bytes([frame[48], frame[49]]);
    (usize::from(frame[35]), Heard { seq, flags: frame[47], window, data: frame[54..14 + total].to_vec() })
}

impl Bench {
    fn joining() -> Bench {
        let mut bench = Bench::with(|nic| {
            nic.coalesce_bytes = Some(Sourced::assumed((PAGES * PAGE_SIZE) as u64, "a test's"));
            nic.flow_slots = Some(Sourced::assumed(16, "a test's"));
        });
        bench.act(|card, _, _| card.set_flow_ring(Pfn(3).pa()));
        bench
    }

    fn steer(&mut self, flow: Option<usize>) {
        let at = |ip: u8, port: u16| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, ip), port);
        let flow = flow.map(|flow| NicFlow { remote: at(2, 0x3000 | flow as u16), local: at(1, 7) });
        self.act(|card, _, _| card.steer(flow));
    }

    /// Posts the buffers of a bucket in frames of their own, if there is room.
    fn receive_pages(&mut self, ring: NicRing) {
        if self.outside.card.receive[ring as usize].free() < 1 + PAGES {
            return;
        }
        let tag = self.tag();
        let mut places = (RECEIVED_AT..).step_by(1 + PAGES);
        let at = places.find(|at| self.receiving.iter().all(|(_, other)| other != at)).expect("a place");
        let page = |i| Fragment { frame: Pfn(at + i), offset: 0, len_bytes: PAGE_SIZE };
        let data = (1..=PAGES as u32).map(page).collect();
        let header = Some(Fragment { len_bytes: 128, ..page(0) });
        self.act(|card, _, _| card.post_receive(ring, NicReceive { tag, header, data }));
        self.receiving.push_back((tag, at));
    }

    /// Takes what has arrived, whole: headers, and data behind them.
    fn take_joined(&mut self, ring: NicRing) -> Vec<(NicArrival, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(NicReceived { tag, result }) = self.act(|card, _, _| card.take_received(ring).1) {
            let place = self.receiving.iter().position(|(posted, _)| *posted == tag).expect("it was posted");
            let (_, at) = self.receiving.remove(place).expect("just found");
            let Ok(arrival) = result else { continue };
            let mut frame = vec![0; arrival.header_bytes];
            self.memory.read(Pfn(at).pa(), &mut frame);
            for (i, left) in (0..arrival.data_bytes).step_by(PAGE_SIZE).enumerate() {
                let mut page = vec![0; (arrival.data_bytes - left).min(PAGE_SIZE)];
                self.memory.read(Pfn(at + 1 + i as u32).pa(), &mut page);
                frame.extend(page);
            }
            all.push((arrival, frame));
        }
        all
    }
}

/// What was heard of a flow must be what was sent of it, but for frames that found no buffers.
fn check_flow(sent: &[Heard], heard: &[Heard], lossless: bool) {
    let mut sent = sent.iter().flat_map(bytes_of);
    let mut missed = 0;
    for item in heard.iter().flat_map(bytes_of) {
        while sent.next().expect("it was never sent") != item {
            missed += 1;
        }
    }
    missed += sent.count();
    assert!(!lossless || missed == 0, "{missed} bytes or segments are missing");
}

/// A segment's bytes, one by one, each with what was said with it; or what a segment without any says.
fn bytes_of(heard: &Heard) -> Vec<(u32, u8, u16, Option<u8>)> {
    let said = (heard.flags & !8, heard.window);
    match heard.data.is_empty() {
        true => vec![(heard.seq, said.0, said.1, None)],
        false => (heard.data.iter().enumerate())
            .map(|(i, byte)| (heard.seq.wrapping_add(i as u32), said.0, said.1, Some(*byte)))
            .collect(),
    }
}

#[derive(Clone, Debug)]
enum Turn {
    Sends(Sent),
    Pass(u64),
    Steer(Option<usize>),
}

fn any_turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        12 => any_sent().prop_map(Turn::Sends),
        6 => (0..20_000u64).prop_map(Turn::Pass),
        1 => proptest::option::of(0..FLOWS).prop_map(Turn::Steer),
    ]
}

proptest! {
    #[test]
    fn what_is_joined_is_what_was_sent(
        turns in proptest::collection::vec(any_turn(), 1..120),
        scarce in any::<bool>(),
        first in any::<u32>(),
    ) {
        let mut bench = Bench::joining();
        let (mut next, mut sent) = ([first; FLOWS], BTreeMap::<usize, Vec<Heard>>::new());
        let (mut got, mut frames) = (BTreeMap::<usize, Vec<Heard>>::new(), 0u64);
        // What is on its way to a ring that ends is lost.
        let (mut steered, mut unsteered) = (None, false);
        for turn in turns.into_iter().chain([Turn::Pass(3_000_000), Turn::Pass(3_000_000)]) {
            match turn {
                Turn::Sends(segment) => {
                    next[segment.flow] = next[segment.flow].wrapping_add(segment.gap);
                    let seq = next[segment.flow];
                    next[segment.flow] = seq.wrapping_add(segment.len as u32);
                    let frame = frame(&segment, seq);
                    prop_assert_eq!(Headers::of(&frame).map(|h| h.end()), Some(54));
                    sent.entry(segment.flow).or_default().push(heard(&frame).1);
                    frames += 1;
                    bench.post.borrow_mut().out.push_back(frame);
                    if !scarce {
                        // Each frame finds buffers, whatever it ends or begins.
                        bench.pass(60_000);
                    }
                }
                Turn::Pass(cycles) => bench.pass(cycles),
                Turn::Steer(flow) => {
                    bench.steer(None);
                    unsteered |= steered.is_some();
                    if flow.is_some() {
                        bench.steer(flow);
                    }
                    steered = flow;
                }
            }
            bench.act(|card, now, agenda| assert!(!card.acknowledge(now, agenda).removed));
            for ring in [NicRing::Main, NicRing::Flow] {
                for (arrival, frame) in bench.take_joined(ring) {
                    let (flow, heard) = heard(&frame);
                    prop_assert!(heard.data.len() + 54 <= frame.len(), "it says that it is longer than it is");
                    prop_assert!(arrival.data_bytes <= PAGES * PAGE_SIZE);
                    got.entry(flow).or_default().push(heard);
                }
                if ring == NicRing::Main || steered.is_some() {
                    (0..4).for_each(|_| bench.receive_pages(ring));
                    bench.act(|card, _, _| card.start_receive(ring));
                }
            }
        }
        prop_assert!(!bench.outside.card.has_open(), "nothing waits for ever");
        let s = bench.outside.card.statistics();
        prop_assert_eq!(s.received + s.missed, frames, "each frame is received or lost");
        for (flow, sent) in sent {
            let lossless = s.missed == 0 && !unsteered;
            check_flow(&sent, got.get(&flow).map_or(&[], Vec::as_slice), lossless);
        }
        bench.act(|card, _, agenda| card.stop(agenda));
        for ring in [NicRing::Main, NicRing::Flow] {
            bench.take_joined(ring);
        }
        prop_assert!(bench.receiving.is_empty() && bench.outside.card.unanswered() == (0, 0));
    }

    /// Frames of the flow that is steered go to its ring, and no others; and when that ends, the ring is empty.
    #[test]
    fn a_flow_goes_to_its_ring_and_all_else_to_the_other(
        flows in proptest::collection::vec(0..FLOWS, 1..40),
        steered in 0..FLOWS,
        joins in any::<bool>(),
    ) {
        let mut bench = Bench::joining();
        if !joins {
            bench.outside.card.coalescing = None;
        }
        bench.steer(Some(steered));
        let mut sent = [0; FLOWS];
        for flow in flows {
            for ring in [NicRing::Main, NicRing::Flow] {
                (0..4).for_each(|_| bench.receive_pages(ring));
                bench.act(|card, _, _| card.start_receive(ring));
            }
            let len = 100 + flow;
            let segment = Sent { flow, len, gap: 0, pushed: false, flags: 0x10, window: 9000, broken: false };
            bench.post.borrow_mut().out.push_back(frame(&segment, sent[flow]));
            sent[flow] += len as u32;
            bench.pass(60_000);
            bench.act(|card, now, agenda| card.acknowledge(now, agenda));
            bench.pass(60_000);
            for ring in [NicRing::Main, NicRing::Flow] {
                for (_, frame) in bench.take_joined(ring) {
                    prop_assert_eq!((ring == NicRing::Flow, flow), (flow == steered, heard(&frame).0));
                }
            }
        }
        bench.steer(None);
        bench.take_joined(NicRing::Flow);
        let main = bench.outside.card.receive[0].unanswered;
        prop_assert_eq!((bench.outside.card.receive[1].unanswered, bench.receiving.len()), (0, main));
    }
}

#[test]
fn pages_are_full_whatever_the_size_of_a_frame_is() {
    let mut bench = Bench::joining();
    (0..4).for_each(|_| bench.receive_pages(NicRing::Main));
    bench.act(|card, _, _| card.start_receive(NicRing::Main));
    for i in 0..20 {
        let sent =
            Sent { flow: 0, len: 1448, gap: 0, pushed: false, flags: 0x10, window: 9000, broken: false };
        bench.post.borrow_mut().out.push_back(frame(&sent, 1000 + i * 1448));
    }
    bench.pass(3_000_000);
    // The first frame interrupts at once; the others come while nobody looks, and fill three pages of each bucket.
    let took = bench.take_joined(NicRing::Main);
    let lens: Vec<usize> = took.iter().map(|(arrival, _)| arrival.data_bytes).collect();
    assert_eq!(lens, [1448, PAGES * PAGE_SIZE, PAGES * PAGE_SIZE]);
    assert!(bench.outside.card.has_open(), "what fills no bucket yet waits for the next interrupt");
    bench.act(|card, now, agenda| card.acknowledge(now, agenda));
    bench.pass(3_000_000);
    let rest: Vec<usize> =
        bench.take_joined(NicRing::Main).iter().map(|(arrival, _)| arrival.data_bytes).collect();
    assert_eq!(rest, [19 * 1448 - 2 * PAGES * PAGE_SIZE]);
    assert_eq!(bench.outside.card.statistics().received, 20);
}
