//! The modelled network card, as a kernel sees it: bytes, times, interrupts, and what is given back.

mod hosts;
mod offload;
mod wires;

use pageferry_hal::*;
use pageferry_model::net::{FarEnd, Reflector, Sink};
use pageferry_model::{MachineConfig, Model, Options, RunError, Schedule};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Where the tests have their rings.
const TRANSMIT: Pa = Pa(0x10_0000);
const RECEIVE: Pa = Pa(0x10_4000);

fn config(name: &str) -> MachineConfig {
    let mut config = MachineConfig::named(name).expect("it is built in");
    config.memory.size_mb.value = 4;
    config
}

/// A kernel that is nothing but the driver of a card.
struct Driver {
    m: Model,
    nic: Box<dyn Nic>,
    /// Interrupts of the card that were not looked at yet.
    interrupts: Rc<Cell<u32>>,
    /// The timer has interrupted.
    ticked: Rc<Cell<bool>>,
}

impl Driver {
    fn new(m: &Model) -> Driver {
        let interrupts = Rc::new(Cell::new(0));
        let ticked = Rc::new(Cell::new(false));
        let (counter, tick) = (interrupts.clone(), ticked.clone());
        m.set_interrupt_handler(Box::new(move |i| {
            if i == Interrupt::Timer {
                tick.set(true);
            } else {
                assert_eq!(i, Interrupt::Device(DeviceId(2)));
                counter.set(counter.get() + 1);
            }
        }));
        let nic = m.devices().nic.expect("a card");
        nic.set_rings(TRANSMIT, RECEIVE);
        Driver { m: m.clone(), nic, interrupts, ticked }
    }

    /// Posts a frame, from one frame of memory.
    fn send(&self, tag: u64, frame: u32, bytes: &[u8]) {
        self.m.poke_frame(Pfn(frame), 0, bytes);
        self.nic.post_transmit(NicTransmit {
            tag,
            fragments: vec![Fragment { frame: Pfn(frame), offset: 0, len_bytes: bytes.len() }],
            checksum: None,
        });
        self.nic.start_transmit();
    }

    /// Posts a whole frame of memory to receive into.
    fn post(&self, tag: u64, frame: u32) {
        let data = vec![Fragment { frame: Pfn(frame), offset: 0, len_bytes: PAGE_SIZE }];
        self.nic.post_receive(NicReceive { tag, header: None, data });
        self.nic.start_receive();
    }

    /// Halts until the card interrupts, and acknowledges.
    fn wait(&self) -> NicEvents {
        let before = self.interrupts.replace(0);
        if before == 0 {
            self.m.idle_until(&mut || self.interrupts.get() != 0);
            self.interrupts.set(0);
        }
        self.nic.acknowledge()
    }

    fn transmitted(&self) -> NicTransmitted {
        loop {
            if let Some(done) = self.nic.take_transmitted() {
                return done;
            }
            self.wait();
        }
    }

    fn received(&self) -> NicReceived {
        loop {
            if let Some(done) = self.nic.take_received() {
                return done;
            }
            self.wait();
        }
    }

    /// Looks for a frame without waiting for an interrupt.
    fn polled(&self) -> NicReceived {
        loop {
            if let Some(done) = self.nic.take_received() {
                return done;
            }
            self.m.execute(Instructions(50));
        }
    }

    /// What an access to the line at the start of a frame of memory costs.
    fn cost_of_access(&self, frame: u32) -> u64 {
        let before = self.m.now();
        self.m.pt_load(Pfn(frame).pa(), Width::Four);
        (self.m.now() - before).0
    }

    /// What is in a frame of memory, from its start.
    fn bytes(&self, frame: u32, len: usize) -> Vec<u8> {
        self.m.frame_bytes(Pfn(frame))[..len].to_vec()
    }

    /// Stops the card; how many frames and how many buffers came back.
    fn stop(&self) -> (usize, usize) {
        self.nic.stop();
        let frames = std::iter::from_fn(|| self.nic.take_transmitted()).count();
        let buffers = std::iter::from_fn(|| self.nic.take_received()).count();
        (frames, buffers)
    }
}

fn try_run(
    config: &MachineConfig,
    schedule: Schedule,
    far_end: Option<Box<dyn FarEnd>>,
    body: impl FnOnce(&Driver) + 'static,
) -> (Model, Result<(), RunError>) {
    let m = Model::new(config, Options::new(schedule).spin_limit(1_000_000)).expect("a valid machine");
    if let Some(far_end) = far_end {
        m.attach(far_end);
    }
    let result = m.run(Box::new(move |m| {
        body(&Driver::new(m));
        None
    }));
    (m, result)
}

fn run(
    config: &MachineConfig,
    far_end: Option<Box<dyn FarEnd>>,
    body: impl FnOnce(&Driver) + 'static,
) -> Model {
    let (m, result) = try_run(config, Schedule::Timed, far_end, body);
    result.expect("the run ends");
    m.check().expect("the machine's laws hold");
    m
}

/// A frame to `to` with so many bytes in all, which say where they are.
fn frame_to(to: MacAddress, len: usize, seed: u8) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed)).collect();
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&CARD.0);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

const CARD: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

/// Sends given frames at given times.
struct Script(VecDeque<(u64, Vec<u8>)>);

impl Script {
    fn of(frames: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Box<Script> {
        Box::new(Script(frames.into_iter().collect()))
    }
}

impl FarEnd for Script {
    fn arrives(&mut self, _now_ns: u64, _frame: &[u8]) {}
    fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let is_due = self.0.front().is_some_and(|(at, _)| *at <= now_ns);
        if is_due { self.0.pop_front().map(|(_, frame)| frame) } else { None }
    }
    fn next_at(&mut self, _now_ns: u64) -> Option<u64> {
        self.0.front().map(|(at, _)| *at)
    }
}

#[test]
fn frames_come_back_bit_for_bit() {
    for name in ["xeon-mp", "today", "ppc603", "mini-hash", "mini-soft", "mini-blocks", "opteron-mp"] {
        run(&config(name), Some(Box::new(Reflector::default())), |d| {
            assert_eq!(d.nic.info().mac, CARD);
            // More than the ring has slots.
            for i in 0..40u32 {
                let len = [14, 59, 60, 61, 700, 1514][i as usize % 6];
                let frame = frame_to(OTHER, len, i as u8);
                d.post(u64::from(i), 300 + i);
                d.send(1000 + u64::from(i), 200 + i, &frame);
                assert_eq!(d.transmitted(), NicTransmitted { tag: 1000 + u64::from(i), result: Ok(()) });
                let NicReceived { tag, result } = d.received();
                let mut expected = frame.clone();
                expected.resize(len.max(ETHERNET_LEAST_BYTES), 0);
                let (to, from) = expected[..12].split_at_mut(6);
                to.swap_with_slice(from);
                let arrival = result.expect("it has arrived");
                assert_eq!((tag, arrival.header_bytes), (u64::from(i), 0));
                assert_eq!(arrival.data_bytes, expected.len());
                assert_eq!(arrival.verdict, NicVerdict::Unchecked);
                assert_eq!(d.bytes(300 + i, expected.len()), expected);
            }
            let s = d.nic.statistics();
            assert_eq!((s.transmitted, s.received, s.missed, s.too_long), (40, 40, 0, 0));
        });
    }
}

#[test]
fn frames_follow_each_other_as_fast_as_the_wire_goes() {
    // Eight bytes before a frame, four and a gap of twelve behind it: 1538 are 12.304 us at 1 Gb/s.
    for (name, len, each_ps) in [
        ("xeon-mp", 1514, 12_304_000),
        ("xeon-mp", 60, 672_000),
        ("xeon-mp", 20, 672_000),
        ("opteron-mp", 100, 992_000),
        ("today", 1514, 492_160),
        ("today", 60, 26_880),
        ("pentium-pro", 1514, 123_040_000),
        ("ppc603", 1514, 1_230_400_000),
        ("mini-soft", 1514, 12_304_000),
    ] {
        let sink = Sink::default();
        let seen = sink.clone();
        run(&config(name), Some(Box::new(sink)), move |d| {
            let fragments = vec![Fragment { frame: Pfn(200), offset: 0, len_bytes: len }];
            for tag in 0..15 {
                d.nic.post_transmit(NicTransmit { tag, fragments: fragments.clone(), checksum: None });
            }
            d.nic.start_transmit();
            (0..15).for_each(|tag| assert_eq!(d.transmitted().tag, tag));
        });
        let sunk = seen.sunk();
        assert_eq!((sunk.frames, sunk.bytes), (15, 15 * len.max(60) as u64));
        let (first, last) = (sunk.first_at_ns.expect("one"), sunk.last_at_ns.expect("one"));
        assert_eq!((last - first).abs_diff(14 * each_ps / 1000) / 2, 0, "{name}, {len}: {}", last - first);
    }
}

#[test]
fn without_a_far_end_frames_go_nowhere() {
    let m = run(&config("xeon-mp"), None, |d| {
        d.send(1, 200, &frame_to(OTHER, 100, 0));
        assert_eq!(d.transmitted().result, Ok(()));
    });
    assert_eq!(m.nic_statistics().transmitted, 1);
}

#[test]
fn waiting_for_a_frame_that_may_come_is_no_deadlock_and_for_none_it_is() {
    let frame = frame_to(CARD, 60, 1);
    run(&config("xeon-mp"), Some(Script::of([(1_000_000, frame.clone())])), |d| {
        d.post(1, 300);
        assert_eq!(d.received().tag, 1);
        assert!(d.m.now() > Cycles(2_400_000) && d.m.now() < Cycles(2_450_000), "{:?}", d.m.now());
    });
    let (_, result) = try_run(&config("xeon-mp"), Schedule::Timed, Some(Script::of([(1, frame)])), |d| {
        d.post(1, 300);
        d.received();
        d.post(2, 300);
        d.received();
    });
    assert!(matches!(result, Err(RunError::Deadlock { .. })), "{result:?}");
}

#[test]
fn a_card_that_is_stopped_gives_everything_back_once() {
    run(&config("mini-hash"), Some(Box::new(Reflector::default())), |d| {
        (0..5).for_each(|i| d.post(i, 300 + i as u32));
        (0..3).for_each(|i| d.send(100 + i, 200 + i as u32, &frame_to(OTHER, 1000, i as u8)));
        assert_eq!(d.transmitted().tag, 100);
        assert_eq!(d.stop(), (2, 5));
        d.post(9, 300);
        d.send(109, 200, &frame_to(OTHER, 100, 0));
        let stopped = |tag| NicTransmitted { tag, result: Err(NicError::Stopped) };
        assert_eq!(d.nic.take_transmitted(), Some(stopped(109)));
        assert_eq!(d.nic.take_received(), Some(NicReceived { tag: 9, result: Err(NicError::Stopped) }));
        assert_eq!((d.nic.take_transmitted(), d.nic.take_received()), (None, None));
        assert_eq!(d.nic.acknowledge(), NicEvents::default());
    });
}

#[test]
fn what_is_left_with_the_card_is_told_at_the_end() {
    let (m, result) = try_run(&config("mini-hash"), Schedule::Timed, None, |d| d.post(1, 300));
    result.expect("the run ends");
    assert!(m.check().expect_err("a buffer is left").contains("1 buffers were not given back"));
}

#[test]
fn the_schedule_of_a_seed_changes_no_bytes() {
    for seed in 0..20 {
        let far_end: Box<dyn FarEnd> = Box::new(Reflector::default());
        let (m, result) = try_run(&config("xeon-mp-htt"), Schedule::Seeded(seed), Some(far_end), |d| {
            let other = d.m.clone();
            // Another CPU runs meanwhile, and stops.
            let busy = d.m.context_new(
                "busy",
                Box::new(move || {
                    (0..200).for_each(|_| other.execute(Instructions(100)));
                    None
                }),
            );
            d.m.start_cpu(CpuId(1), busy);
            for i in 0..10 {
                d.post(i, 300 + i as u32);
                d.send(i, 200, &frame_to(OTHER, 1000, i as u8));
                assert_eq!(d.transmitted().tag, i);
                assert_eq!(d.received().tag, i);
                assert_eq!(d.bytes(300 + i as u32, 1000)[14..], frame_to(OTHER, 1000, i as u8)[14..]);
            }
        });
        result.expect("the run ends");
        m.check().expect("the machine's laws hold");
    }
}

#[test]
fn frames_arrive_at_a_cpu_that_does_not_wait_and_at_one_with_interrupts_off() {
    let frames = (0..4).map(|i| (i * 100_000, frame_to(CARD, 100, i as u8)));
    run(&config("xeon-mp"), Some(Script::of(frames)), |d| {
        (0..4).for_each(|i| d.post(i, 300 + i as u32));
        assert_eq!(d.polled().tag, 0);
        let lock = d.m.new_lock(LockClass::new("quiet", 1).masking_interrupts(), ());
        let held = lock.lock();
        let before = d.interrupts.get();
        (1..4).for_each(|i| assert_eq!(d.polled().tag, i));
        assert_eq!(d.interrupts.get(), before);
        drop(held);
        assert!(d.m.now() < Cycles(2400 * 310), "{:?}", d.m.now());
    });
}

#[test]
fn a_frame_is_seen_when_its_time_has_come_whether_cpus_run_or_not() {
    let seen = |busy: bool| {
        let frame = frame_to(CARD, 1514, 3);
        let at = Rc::new(Cell::new(0));
        let told = at.clone();
        run(&config("xeon-mp"), Some(Script::of([(50_000, frame)])), move |d| {
            d.post(1, 300);
            if busy {
                d.polled()
            } else {
                d.received()
            };
            told.set(d.m.now().0);
        });
        at.get()
    };
    // 50 us until it is sent, 12.304 on the wire, 1.9 over the bus at 800 MB/s and 0.6 until that begins.
    let due = (50_000 + 12_304 + 1_530 * 1000 / 800 + 600) * 24 / 10;
    let (busy, waiting) = (seen(true), seen(false));
    assert!((due..due + 4_000).contains(&busy), "{busy} for {due}");
    // An interrupt costs something, and the acknowledgement too.
    assert!((due..due + 12_000).contains(&waiting), "{waiting} for {due}");
}

#[test]
fn frames_without_a_buffer_are_missed_and_those_for_others_not_even_that() {
    let frames = (0..9).map(|i| {
        let to = [CARD, OTHER, MacAddress::BROADCAST][i % 3];
        (0, frame_to(to, 60 + i, i as u8))
    });
    let long = [(0, frame_to(CARD, 1515, 0)), (500_000, frame_to(CARD, 60, 99))];
    let m = run(&config("xeon-mp"), Some(Script::of(frames.chain(long))), |d| {
        (0..3).for_each(|i| d.post(i, 300 + i as u32));
        let lens = [0, 2, 3].map(|i| 60 + i);
        for (tag, len) in (0..).zip(lens) {
            let NicReceived { tag: got, result } = d.received();
            assert_eq!((got, result.expect("a frame").data_bytes), (tag, len));
        }
        d.m.set_timer(Some(Cycles(400_000 * 24 / 10)));
        let before = d.m.now();
        d.m.idle_until(&mut || d.ticked.replace(false));
        assert!(d.m.now() > before);
        d.post(3, 300);
        assert_eq!(d.received().tag, 3);
    });
    let s = m.nic_statistics();
    assert_eq!((s.received, s.missed, s.filtered, s.too_long), (4, 3, 3, 1));
}

#[test]
fn a_frame_that_does_not_fit_its_buffers_is_lost_and_leaves_them() {
    let frames = [(0, frame_to(CARD, 200, 1)), (0, frame_to(CARD, 100, 2))];
    let m = run(&config("xeon-mp"), Some(Script::of(frames)), |d| {
        let part = |frame, offset, len_bytes| Fragment { frame: Pfn(frame), offset, len_bytes };
        let data = vec![part(300, 4090, 6), part(301, 0, 90), part(302, 7, 4)];
        d.nic.post_receive(NicReceive { tag: 1, header: None, data });
        d.nic.start_receive();
        assert_eq!(d.received().result.expect("a frame").data_bytes, 100);
        let frame = frame_to(CARD, 100, 2);
        assert_eq!(d.m.frame_bytes(Pfn(300))[4090..], frame[..6]);
        assert_eq!(d.bytes(301, 91), [&frame[6..96], &[0]].concat());
        assert_eq!(d.bytes(302, 12)[6..], [&[0], &frame[96..], &[0]].concat());
    });
    assert_eq!(m.nic_statistics().too_long, 1);
}

#[test]
fn interrupts_come_no_more_often_than_they_may() {
    // 40 frames take 492 us; 125 us are between two interrupts.
    let frames = || Script::of((0..40).map(|i| (0, frame_to(CARD, 1514, i))));
    let m = run(&config("xeon-mp"), Some(frames()), |d| {
        (0..40).for_each(|i| d.post(i, 300 + i as u32));
        (0..40).for_each(|i| assert_eq!(d.received().tag, i));
    });
    assert_eq!(m.nic_statistics().interrupts, 5);
    let m = run(&config("xeon-mp"), Some(frames()), |d| {
        (0..40).for_each(|i| d.post(i, 300 + i as u32));
        (0..40).for_each(|i| assert_eq!(d.polled().tag, i));
        // All that while it was not acknowledged, and stood for everything.
        assert_eq!(d.interrupts.get(), 1);
        assert_eq!(d.nic.acknowledge(), NicEvents { received: true, ..NicEvents::default() });
        assert_eq!(d.nic.acknowledge(), NicEvents::default());
    });
    assert_eq!(m.nic_statistics().interrupts, 1);
    let mut unmoderated = config("xeon-mp");
    unmoderated.nic.as_mut().expect("a card").interrupt_gap_ns.value = 0;
    let m = run(&unmoderated, Some(frames()), |d| {
        (0..40).for_each(|i| d.post(i, 300 + i as u32));
        (0..40).for_each(|i| {
            d.wait();
            assert_eq!(d.nic.take_received().expect("one for each").tag, i);
        });
    });
    assert_eq!(m.nic_statistics().interrupts, 40);
}

#[test]
fn registers_cost_what_the_file_says() {
    let cost = |act: fn(&Driver)| {
        let cycles = Rc::new(Cell::new(0));
        let told = cycles.clone();
        run(&config("xeon-up"), None, move |d| {
            let before = d.m.now();
            act(d);
            told.set((d.m.now() - before).0);
        });
        cycles.get()
    };
    assert_eq!(cost(|d| assert!(!d.nic.acknowledge().removed)), 2400);
    assert_eq!(cost(|d| d.nic.start_receive()), 192);
    assert_eq!(cost(|d| d.nic.start_transmit()), 192);
}

#[test]
fn what_the_card_writes_is_in_no_cache_and_what_it_reads_stays() {
    for name in ["xeon-mp", "opteron-mp", "ppc604"] {
        run(&config(name), Some(Box::new(Reflector::default())), |d| {
            let memory = d.cost_of_access(900);
            for frame in [200, 300] {
                d.m.pt_store(Pfn(frame).pa(), Width::Four, 1);
                assert!(d.cost_of_access(frame) * 4 < memory);
            }
            d.post(1, 300);
            d.send(1, 200, &frame_to(OTHER, 1000, 0));
            assert_eq!((d.transmitted().tag, d.received().tag), (1, 1));
            assert!(d.cost_of_access(200) * 4 < memory, "what was sent is still there");
            assert_eq!(d.cost_of_access(300), memory, "what has arrived is not");
            assert!(d.cost_of_access(300) * 4 < memory);
        });
    }
}

#[test]
fn bytes_go_as_they_are_when_the_frame_has_been_sent() {
    let sink = Sink::default();
    let seen = sink.clone();
    run(&config("xeon-mp"), Some(Box::new(sink)), |d| {
        d.send(1, 200, &frame_to(OTHER, 100, 0));
        d.m.poke_frame(Pfn(200), 50, b"written too late");
        d.transmitted();
    });
    assert_eq!(seen.sunk().last[50..66], *b"written too late");
}

#[test]
fn a_card_that_is_taken_out_gives_everything_back_once() {
    // At any time of the way of five frames there and back.
    for at in (0..160).map(|i| i * 500) {
        let far_end: Box<dyn FarEnd> = Box::new(Reflector::default());
        let m = Model::new(&config("mini-hash"), Options::default()).expect("a valid machine");
        m.attach(far_end);
        m.remove_nic_at(Cycles(at));
        m.run(Box::new(|m| {
            let d = Driver::new(m);
            (0..6).for_each(|i| d.post(i, 300 + i as u32));
            (0..5).for_each(|i| d.send(100 + i, 200, &frame_to(OTHER, 1000, i as u8)));
            while !d.wait().removed {}
            let (mut sent, mut back) = (Vec::new(), Vec::new());
            while let Some(done) = d.nic.take_transmitted() {
                sent.push(done);
            }
            while let Some(done) = d.nic.take_received() {
                back.push(done);
            }
            assert_eq!(sent.iter().map(|t| t.tag).collect::<Vec<_>>(), [100, 101, 102, 103, 104]);
            assert_eq!(back.iter().map(|t| t.tag).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
            // From some point on nothing works any more.
            assert!(sent.is_sorted_by_key(|t| t.result.is_err()));
            assert!(back.is_sorted_by_key(|t| t.result.is_err()));
            assert!(back.iter().all(|t| t.result.is_ok() || t.result == Err(NicError::Removed)));
            d.post(9, 300);
            assert_eq!(d.nic.take_received(), Some(NicReceived { tag: 9, result: Err(NicError::Removed) }));
            assert!(d.nic.acknowledge().removed, "it reads so for ever");
            let before = d.interrupts.get();
            d.m.set_timer(Some(d.m.now() + Cycles(1_000_000)));
            d.m.idle_until(&mut || d.ticked.replace(false));
            assert_eq!(d.interrupts.get(), before, "it interrupts no more");
            d.nic.stop();
            None
        }))
        .unwrap_or_else(|e| panic!("removed at {at}: {e}"));
        m.check().expect("the machine's laws hold");
    }
}

#[test]
fn a_card_can_be_taken_out_by_a_test_that_runs() {
    run(&config("mini-soft"), None, |d| {
        d.post(1, 300);
        d.m.remove_nic();
        assert!(d.wait().removed);
        assert_eq!(d.nic.take_received().map(|t| t.result), Some(Err(NicError::Removed)));
    });
}

#[test]
fn misuse_panics() {
    let refused = |body: fn(&Driver)| {
        let (_, result) = try_run(&config("mini-hash"), Schedule::Timed, None, body);
        result.expect_err("the card refuses").to_string()
    };
    fn transmit(d: &Driver, fragments: Vec<Fragment>, checksum: Option<NicChecksum>) {
        d.nic.post_transmit(NicTransmit { tag: 1, fragments, checksum });
    }
    fn at(frame: u32, offset: usize, len_bytes: usize) -> Fragment {
        Fragment { frame: Pfn(frame), offset, len_bytes }
    }
    assert!(refused(|d| (0..17).for_each(|i| d.post(i, 300))).contains("which has 0 slots free"));
    assert!(refused(|d| transmit(d, vec![at(1, 0, 20); 9], None)).contains("9 fragments"));
    assert!(refused(|d| transmit(d, vec![at(1, 0, 13)], None)).contains("a frame of 13 bytes"));
    assert!(refused(|d| transmit(d, vec![at(1, 0, 1515)], None)).contains("a frame of 1515 bytes"));
    assert!(refused(|d| transmit(d, vec![at(1, 4000, 97)], None)).contains("is in no frame"));
    assert!(refused(|d| transmit(d, vec![at(1, 0, 20), at(1, 0, 0)], None)).contains("is in no frame"));
    assert!(refused(|d| transmit(d, vec![at(1 << 20, 0, 20)], None)).contains("is in no memory"));
    assert!(
        refused(|d| transmit(d, vec![at(1, 0, 20)], Some(NicChecksum { from: 14, at: 19 })))
            .contains("lies outside")
    );
    assert!(refused(|d| d.nic.set_rings(TRANSMIT, RECEIVE)).contains("set once"));
    assert!(
        refused(|d| d.nic.post_receive(NicReceive { tag: 1, header: None, data: vec![] }))
            .contains("no buffer for data")
    );
    let (_, result) = try_run(&config("xeon-up"), Schedule::Timed, None, |d| {
        let header = Some(at(1, 0, 128));
        d.nic.post_receive(NicReceive { tag: 1, header, data: vec![at(2, 0, 4096)] });
    });
    assert!(result.expect_err("no split there").to_string().contains("splits no headers off"));
}

/// Has a frame at every moment.
struct Endless;

impl FarEnd for Endless {
    fn arrives(&mut self, _now_ns: u64, _frame: &[u8]) {}
    fn poll(&mut self, _now_ns: u64) -> Option<Vec<u8>> {
        None
    }
    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        Some(now_ns)
    }
}

#[test]
fn a_far_end_without_end_does_not_keep_a_dead_machine_alive() {
    let (_, result) = try_run(&config("xeon-mp"), Schedule::Timed, Some(Box::new(Endless)), |d| {
        d.received();
    });
    assert!(matches!(result, Err(RunError::Spinning { .. })), "{result:?}");
    let m = Model::new(&config("xeon-mp"), Options::default().cycle_limit(Cycles(100_000))).expect("valid");
    m.attach(Box::new(Endless));
    let result = m.run(Box::new(|m| {
        Driver::new(m).received();
        None
    }));
    assert!(matches!(result, Err(RunError::OutOfTime { .. })), "{result:?}");
    // One that runs does not mind, and ends.
    run(&config("xeon-mp"), Some(Box::new(Endless)), |d| d.m.execute(Instructions(10_000)));
}

/// Waits for the world, and then has a frame.
struct World {
    waits: Rc<Cell<Option<Option<u64>>>>,
    frame: Option<Vec<u8>>,
    has_come: bool,
}

impl FarEnd for World {
    fn arrives(&mut self, _now_ns: u64, _frame: &[u8]) {}
    fn poll(&mut self, _now_ns: u64) -> Option<Vec<u8>> {
        if self.has_come { self.frame.take() } else { None }
    }
    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        (self.has_come && self.frame.is_some()).then_some(now_ns + 5_000)
    }
    fn wait(&mut self, until_ns: Option<u64>) -> bool {
        if self.waits.get().is_none() {
            self.waits.set(Some(until_ns));
        }
        !std::mem::replace(&mut self.has_come, true)
    }
}

#[test]
fn a_far_end_can_wait_for_the_world_while_all_cpus_are_halted() {
    for timer in [None, Some(Cycles(2_400_000))] {
        let waits = Rc::new(Cell::new(None));
        let world = World { waits: waits.clone(), frame: Some(frame_to(CARD, 60, 0)), has_come: false };
        run(&config("xeon-mp"), Some(Box::new(world)), move |d| {
            d.m.set_timer(timer);
            d.post(1, 300);
            assert_eq!(d.received().tag, 1);
        });
        assert_eq!(waits.get(), Some(timer.map(|_| 1_000_000)));
    }
}
