//! The card without a machine around it: random lives, and frames that say what they like.

mod coalesced;

use super::*;
use crate::MachineConfig;
use crate::config::NicConfig;
use crate::memory::Memory;
use crate::net::{FarEnd, Wire};
use crate::outside::Outside;
use crate::params::Params;
use pageferry_hal::{PAGE_SIZE, Pfn};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

/// Where the tests have their rings: frames 1 and 2. Buffers of the transmit ring are in frames from here on, those of
/// the receive ring behind.
const SENT_FROM: u32 = 10;
const RECEIVED_AT: u32 = 100;

/// What the far end is to send, and what has arrived there.
#[derive(Default)]
struct Post {
    out: VecDeque<Vec<u8>>,
    back: Vec<Vec<u8>>,
}

struct FarPost(Rc<RefCell<Post>>);

impl FarEnd for FarPost {
    fn arrives(&mut self, _now_ns: u64, frame: &[u8]) {
        self.0.borrow_mut().back.push(frame.to_vec());
    }
    fn poll(&mut self, _now_ns: u64) -> Option<Vec<u8>> {
        self.0.borrow_mut().out.pop_front()
    }
    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        // It looks every 100 ns, as it is not told when the test has something for it.
        Some(if self.0.borrow().out.is_empty() { now_ns + 100 } else { now_ns })
    }
}

/// A card on its wire, and a kernel that keeps books.
struct Bench {
    outside: Outside,
    memory: Memory,
    cycle: u64,
    gap_cycles: u64,
    post: Rc<RefCell<Post>>,
    interrupts: Vec<u64>,
    /// Tags that are out, with the frame that is to go; and with the frame of memory to receive into.
    sending: VecDeque<(u64, Vec<u8>)>,
    receiving: VecDeque<(u64, u32)>,
    /// What the far end was given to send, and has not been received; how many frames it was given.
    expected: VecDeque<Vec<u8>>,
    arrived: u64,
    /// What was sent, as the card says.
    sent: Vec<Vec<u8>>,
    tags: u64,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(|_| ())
    }

    fn with(adapt: impl FnOnce(&mut NicConfig)) -> Bench {
        let mut config = MachineConfig::named("mini-hash").expect("it is built in");
        config.memory.size_mb.value = 1;
        adapt(config.nic.as_mut().expect("a card"));
        let params = Params::from_config(&config).nic.expect("a card");
        let mut outside = Outside::new(params);
        let post = Rc::new(RefCell::new(Post::default()));
        outside.attach(0, Wire::default(), Box::new(FarPost(post.clone())));
        outside.card.set_rings(Pfn(1).pa(), Pfn(2).pa());
        Bench {
            outside,
            memory: Memory::new(256),
            cycle: 0,
            gap_cycles: params.clock.cycle(params.interrupt_gap_ps),
            post,
            interrupts: Vec::new(),
            sending: VecDeque::new(),
            receiving: VecDeque::new(),
            expected: VecDeque::new(),
            arrived: 0,
            sent: Vec::new(),
            tags: 0,
        }
    }

    fn pass(&mut self, cycles: u64) {
        self.cycle += cycles;
        while self.outside.next_at() <= self.cycle {
            let at = self.outside.next_at();
            let mut dma = Dma { memory: &mut self.memory, caches: None, aliases: None, line_bytes: 32 };
            if self.outside.happen(&mut dma) {
                self.interrupts.push(at);
            }
        }
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Card, u64, &mut Agenda) -> R) -> R {
        self.outside.at(self.cycle, act)
    }

    fn tag(&mut self) -> u64 {
        self.tags += 1;
        self.tags
    }

    /// Posts a frame in two fragments, if there is room; each has bytes of its own.
    fn transmit(&mut self, len: usize) {
        if self.outside.card.transmit.free() < 2 {
            return;
        }
        let tag = self.tag();
        let frame: Vec<u8> = (0..len).map(|i| (i as u64 * 31 + tag * 7) as u8).collect();
        // There are fewer frames under way than this.
        let at = SENT_FROM + (tag % 32) as u32 * 2;
        let (first, second) = frame.split_at(len / 3);
        self.memory.bytes_mut(Pfn(at).pa() + 17, first.len()).copy_from_slice(first);
        self.memory.bytes_mut(Pfn(at + 1).pa(), second.len()).copy_from_slice(second);
        let fragments = vec![
            Fragment { frame: Pfn(at), offset: 17, len_bytes: first.len() },
            Fragment { frame: Pfn(at + 1), offset: 0, len_bytes: second.len() },
        ];
        self.act(|card, _, _| card.post_transmit(NicTransmit { tag, fragments, checksum: None }));
        self.sending.push_back((tag, frame));
    }

    fn receive(&mut self, splits: bool) {
        if self.outside.card.receive[0].free() < 2 {
            return;
        }
        let tag = self.tag();
        let at = RECEIVED_AT + (tag % 32) as u32 * 2;
        let header = splits.then_some(Fragment { frame: Pfn(at + 1), offset: 0, len_bytes: 64 });
        let data = vec![Fragment { frame: Pfn(at), offset: 0, len_bytes: PAGE_SIZE }];
        self.act(|card, _, _| card.post_receive(NicRing::Main, NicReceive { tag, header, data }));
        self.receiving.push_back((tag, at));
    }

    /// The far end sends a frame.
    fn arrives(&mut self, frame: Vec<u8>) {
        let mut padded = frame.clone();
        pad(&mut padded);
        self.expected.push_back(padded);
        self.arrived += 1;
        self.post.borrow_mut().out.push_back(frame);
    }

    fn take(&mut self) {
        while let Some(NicTransmitted { tag, result }) = self.act(|card, _, _| card.take_transmitted().1) {
            let (expected, mut frame) = self.sending.pop_front().expect("it was posted");
            assert_eq!(tag, expected, "in order, each once");
            if result.is_ok() {
                pad(&mut frame);
                self.sent.push(frame);
            }
        }
        while let Some(NicReceived { tag, result }) =
            self.act(|card, _, _| card.take_received(NicRing::Main).1)
        {
            let (expected, at) = self.receiving.pop_front().expect("it was posted");
            assert_eq!(tag, expected, "in order, each once");
            let Ok(arrival) = result else { continue };
            let mut frame = vec![0; arrival.header_bytes + arrival.data_bytes];
            let (header, data) = frame.split_at_mut(arrival.header_bytes);
            self.memory.read(Pfn(at + 1).pa(), header);
            self.memory.read(Pfn(at).pa(), data);
            // Those before were lost, and are counted.
            while self.expected.pop_front().expect("it was sent") != frame {}
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Transmit(usize),
    StartTransmit,
    Receive(bool),
    StartReceive,
    Arrives(Vec<u8>),
    Pass(u64),
    Take,
    Acknowledge,
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    (proptest::collection::vec(any::<u8>(), 14..300), 0..8u8, any::<bool>()).prop_map(|(mut f, to, looks)| {
        f[0] &= !1;
        if to > 0 {
            f[..6].copy_from_slice(&MAC.0);
        }
        if looks && f.len() > 24 {
            f[12..15].copy_from_slice(&[8, 0, 0x45]);
            f[16] = 0;
            f[20..22].fill(0);
            f[23] = [6, 17][usize::from(to) % 2];
        }
        f
    })
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (42..1514usize).prop_map(Act::Transmit),
        2 => Just(Act::StartTransmit),
        3 => any::<bool>().prop_map(Act::Receive),
        2 => Just(Act::StartReceive),
        4 => any_frame().prop_map(Act::Arrives),
        1 => (1500..1600usize).prop_map(|len| Act::Arrives([&MAC.0[..], &vec![7; len - 6]].concat())),
        4 => (0..5_000u64).prop_map(Act::Pass),
        2 => Just(Act::Take),
        1 => Just(Act::Acknowledge),
    ]
}

proptest! {
    #[test]
    fn whatever_is_done_nothing_is_lost_that_is_not_counted(
        acts in proptest::collection::vec(any_act(), 1..150),
        removed in any::<bool>(),
        drained in any::<bool>(),
    ) {
        let mut bench = Bench::new();
        for act in acts {
            match act {
                Act::Transmit(len) => bench.transmit(len),
                Act::StartTransmit => bench.act(|card, now, agenda| card.start_transmit(now, agenda)),
                Act::Receive(splits) => bench.receive(splits),
                Act::StartReceive => bench.act(|card, _, _| card.start_receive(NicRing::Main)),
                Act::Arrives(frame) => bench.arrives(frame),
                Act::Pass(cycles) => bench.pass(cycles),
                Act::Take => bench.take(),
                Act::Acknowledge => bench.act(|card, now, agenda| assert!(!card.acknowledge(now, agenda).removed)),
            }
            let card = &bench.outside.card;
            prop_assert_eq!(card.unanswered(), (bench.sending.len(), bench.receiving.len()));
        }
        if drained {
            bench.act(|card, now, agenda| card.start_transmit(now, agenda));
            bench.pass(1_000_000);
            bench.take();
            prop_assert!(bench.sending.is_empty(), "all that was handed over is sent");
            let s = bench.outside.card.statistics();
            let lost = s.missed + s.too_long + s.filtered;
            prop_assert_eq!(s.received + lost, bench.arrived, "each frame is received or lost");
        }
        let interrupts = bench.interrupts.len();
        if removed {
            bench.act(|card, _, agenda| card.remove(agenda));
            prop_assert!(bench.outside.card.take_interrupt());
        } else {
            bench.act(|card, _, agenda| card.stop(agenda));
        }
        bench.take();
        prop_assert_eq!(bench.outside.card.unanswered(), (0, 0));
        prop_assert!(bench.sending.is_empty() && bench.receiving.is_empty());
        bench.pass(200_000);
        prop_assert_eq!(bench.interrupts.len(), interrupts, "it interrupts no more");
        let s = bench.outside.card.statistics();
        prop_assert_eq!(s.transmitted, bench.sent.len() as u64);
        // What was on the wire when the card went is sent and not answered so.
        prop_assert!(bench.post.borrow().back.starts_with(&bench.sent));
        for pair in bench.interrupts.windows(2) {
            prop_assert!(pair[1] - pair[0] + 1 >= bench.gap_cycles, "too soon: {:?}", bench.interrupts);
        }
    }

    #[test]
    fn no_frame_reaches_a_byte_beyond_its_buffers(
        frame in any_frame(),
        offset in 0..64usize,
        header_bytes in 1..200usize,
        rooms in proptest::collection::vec((0..32usize, 1..200usize), 1..4),
    ) {
        let mut bench = Bench::new();
        (50..60).for_each(|f| bench.memory.bytes_mut(Pfn(f).pa(), PAGE_SIZE).fill(0xcd));
        let header = Fragment { frame: Pfn(50), offset, len_bytes: header_bytes };
        let place = |(i, &(offset, len_bytes)): (usize, &(usize, usize))| {
            Fragment { frame: Pfn(51 + i as u32), offset, len_bytes }
        };
        let data: Vec<Fragment> = rooms.iter().enumerate().map(place).collect();
        let (mut frame, buffer) = (frame, NicReceive { tag: 1, header: Some(header), data: data.clone() });
        frame[..6].copy_from_slice(&MAC.0);
        bench.act(|card, _, _| {
            card.post_receive(NicRing::Main, buffer);
            card.start_receive(NicRing::Main);
        });
        bench.arrives(frame);
        bench.pass(20_000);
        let frame = bench.expected.pop_front().expect("the frame, padded");
        let taken = bench.act(|card, _, _| card.take_received(NicRing::Main).1);
        let room: usize = data.iter().map(|f| f.len_bytes).sum();
        let mut left = Vec::new();
        if let Some(NicReceived { result: Ok(arrival), .. }) = taken {
            prop_assert!(arrival.header_bytes <= header_bytes && arrival.data_bytes <= room);
            let mut parts = vec![(header, arrival.header_bytes)];
            let mut rest = arrival.data_bytes;
            for f in &data {
                let len = rest.min(f.len_bytes);
                parts.push((*f, len));
                rest -= len;
            }
            let mut whole = Vec::new();
            for (f, len) in parts {
                let bytes = bench.memory.bytes_mut(f.frame.pa() + f.offset, len);
                whole.extend_from_slice(bytes);
                bytes.fill(0xcd);
            }
            prop_assert_eq!(whole, frame);
        } else {
            prop_assert_eq!(taken, None);
            prop_assert_eq!(bench.outside.card.statistics().too_long, 1);
        }
        for f in 50..60 {
            let mut page = vec![0; PAGE_SIZE];
            bench.memory.read(Pfn(f).pa(), &mut page);
            left.extend(page.into_iter().filter(|&byte| byte != 0xcd));
        }
        prop_assert!(left.is_empty(), "bytes beyond: {left:?}");
    }
}
