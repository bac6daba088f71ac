//! The modelled network card, as a kernel sees it: bytes, times, interrupts, and what is given back.

mod gone;
mod hosts;
mod offload;
mod times;
mod wires;
mod world;

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
        self.nic.post_receive(NicRing::Main, NicReceive { tag, header: None, data });
        self.nic.start_receive(NicRing::Main);
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
            if let Some(done) = self.nic.take_received(NicRing::Main) {
                return done;
            }
            self.wait();
        }
    }

    /// Looks for a frame without waiting for an interrupt.
    fn polled(&self) -> NicReceived {
        loop {
            if let Some(done) = self.nic.take_received(NicRing::Main) {
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
        let buffers = std::iter::from_fn(|| self.nic.take_received(NicRing::Main)).count();
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
                expected.resize(len.max(ETHERNET_MIN_BYTES), 0);
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
fn without_a_far_end_frames_go_nowhere() {
    let m = run(&config("xeon-mp"), None, |d| {
        d.send(1, 200, &frame_to(OTHER, 100, 0));
        assert_eq!(d.transmitted().result, Ok(()));
    });
    assert_eq!(m.nic_statistics().transmitted, 1);
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
        d.nic.post_receive(NicRing::Main, NicReceive { tag: 1, header: None, data });
        d.nic.start_receive(NicRing::Main);
        assert_eq!(d.received().result.expect("a frame").data_bytes, 100);
        let frame = frame_to(CARD, 100, 2);
        assert_eq!(d.m.frame_bytes(Pfn(300))[4090..], frame[..6]);
        assert_eq!(d.bytes(301, 91), [&frame[6..96], &[0]].concat());
        assert_eq!(d.bytes(302, 12)[6..], [&[0], &frame[96..], &[0]].concat());
    });
    assert_eq!(m.nic_statistics().too_long, 1);
}
