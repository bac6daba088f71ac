//! The modelled network card, as a kernel sees it: bytes, times, interrupts, and what is given back.

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
    interrupts: Rc<Cell<u32>>,
}

impl Driver {
    fn new(m: &Model) -> Driver {
        let interrupts = Rc::new(Cell::new(0));
        let counter = interrupts.clone();
        m.set_interrupt_handler(Box::new(move |i| {
            assert_eq!(i, Interrupt::Device(DeviceId(2)));
            counter.set(counter.get() + 1);
        }));
        let nic = m.devices().nic.expect("a card");
        nic.set_rings(TRANSMIT, RECEIVE);
        Driver { m: m.clone(), nic, interrupts }
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
    body: impl FnOnce(&Driver) + Clone + 'static,
) -> Model {
    let go = |schedule, far_end| {
        let (m, result) = try_run(config, schedule, far_end, body.clone());
        result.expect("the run ends");
        m.check().expect("the machine's laws hold");
        m
    };
    go(Schedule::Timed, far_end)
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
    let sink = Sink::default();
    let seen = sink.clone();
    run(&config("xeon-mp"), Some(Box::new(sink)), |d| {
        for i in 0..9 {
            d.send(i, 200 + i as u32, &frame_to(OTHER, 1514, i as u8));
        }
        (0..9).for_each(|i| assert_eq!(d.transmitted().tag, i));
    });
    let sunk = seen.sunk();
    assert_eq!((sunk.frames, sunk.bytes), (9, 9 * 1514));
    let (first, last) = (sunk.first_at_ns.expect("one"), sunk.last_at_ns.expect("one"));
    assert_eq!(last - first, 8 * 12_304, "1538 bytes at 1 Gb/s");
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
