//! Wires that do something to frames, and what is recorded of them.

use super::*;
use pageferry_model::Snapshot;
use pageferry_model::net::Wire;
use std::cell::RefCell;
use std::io::{self, Write};

/// Sixty frames go out and come back, over a wire. What was received, and the accounts at the end.
fn exchange(wire: Wire, schedule: Schedule) -> (Vec<Vec<u8>>, NicStatistics, Snapshot) {
    let m = Model::new(&config("mini-hash"), Options::new(schedule)).expect("a valid machine");
    m.attach_over(wire, Box::new(Reflector::default()));
    let frames = Rc::new(RefCell::new(Vec::new()));
    let kept = frames.clone();
    m.run(Box::new(move |m| {
        let d = Driver::new(m);
        (0..8).for_each(|i| d.post(i, 300 + i as u32));
        for i in 0..60 {
            d.send(i, 200, &frame_to(OTHER, 600, i as u8));
            assert_eq!(d.transmitted().tag, i);
            // Long enough for all that comes back.
            d.m.set_timer(Some(d.m.now() + Cycles(133 * 100)));
            d.m.idle_until(&mut || d.ticked.replace(false));
            d.nic.acknowledge();
            while let Some(NicReceived { tag, result }) = d.nic.take_received(NicRing::Main) {
                let len = result.expect("a frame").data_bytes;
                kept.borrow_mut().push(d.bytes(300 + tag as u32, len));
                d.post(tag, 300 + tag as u32);
            }
        }
        d.stop();
        None
    }))
    .expect("the run ends");
    m.check().expect("the machine's laws hold");
    let frames = frames.borrow().clone();
    (frames, m.nic_statistics(), m.snapshot())
}

const BAD: Wire = Wire {
    seed: 5,
    loss_ppm: 100_000,
    duplicate_ppm: 100_000,
    reorder_ppm: 200_000,
    corrupt_ppm: 50_000,
    delay_ns: 3_000,
    reorder_ns: 150_000,
};

#[test]
fn a_good_wire_brings_everything_in_order() {
    let (frames, statistics, _) = exchange(Wire::default(), Schedule::Timed);
    assert_eq!((frames.len(), statistics.received), (60, 60));
    assert!((0..).zip(&frames).all(|(i, f)| f[14..] == frame_to(OTHER, 600, i)[14..]));
}

#[test]
fn a_bad_wire_does_its_worst_and_the_same_each_time() {
    for schedule in [Schedule::Timed, Schedule::Seeded(3)] {
        let (frames, statistics, snapshot) = exchange(BAD, schedule);
        let known = |f: &Vec<u8>| (0..60).find(|&i| f[14..] == frame_to(OTHER, 600, i)[14..]);
        let order: Vec<_> = frames.iter().filter_map(known).collect();
        assert!(order.len() < frames.len(), "some are corrupt");
        assert!(!order.is_sorted(), "some are late: {order:?}");
        assert!(order.windows(2).any(|pair| pair[0] == pair[1]), "some come twice: {order:?}");
        assert!((0..60).any(|i| !order.contains(&i)), "some are lost: {order:?}");
        let again = exchange(BAD, schedule);
        assert_eq!((frames, statistics, snapshot.clocks), (again.0, again.1, again.2.clocks));
    }
    assert_ne!(exchange(BAD, Schedule::Timed).0, exchange(Wire { seed: 6, ..BAD }, Schedule::Timed).0);
}

/// A file that can still be read when it was given away.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The frames of a pcap file, and their times in nanoseconds.
fn read_pcap(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    assert_eq!((word(0), word(4), word(20)), (0xa1b2_3c4d, 2 | 4 << 16, 1));
    let (mut at, mut frames) = (24, Vec::new());
    while at < file.len() {
        let (s, ns, len) = (word(at), word(at + 4), word(at + 8) as usize);
        assert_eq!(word(at + 12) as usize, len);
        frames.push((u64::from(s) * 1_000_000_000 + u64::from(ns), file[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    frames
}

#[test]
fn what_goes_over_the_wire_is_recorded_where_the_card_sees_it() {
    let m = Model::new(&config("xeon-mp"), Options::default()).expect("a valid machine");
    let wire = Wire { delay_ns: 1000, ..Wire::default() };
    m.attach_over(wire, Box::new(Reflector::default()));
    let file = Shared::default();
    m.record_frames(file.clone());
    m.run(Box::new(move |m| {
        let d = Driver::new(m);
        d.post(1, 300);
        d.send(1, 200, &frame_to(OTHER, 1514, 9));
        d.received();
        d.transmitted();
        None
    }))
    .expect("the run ends");
    assert_eq!(m.end_record_frames().expect("it could be written"), 2);
    assert_eq!(m.end_record_frames().expect("nothing was recorded"), 0);
    let frames = read_pcap(&file.0.borrow());
    assert_eq!(frames[0].1, frame_to(OTHER, 1514, 9));
    assert_eq!(frames[1].1[..6], CARD.0);
    assert_eq!(frames[1].0 - frames[0].0, 12_304 + 2 * 1000, "there, back, and onto the wire once more");
}

#[test]
fn a_file_that_cannot_be_written_is_told() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let m = Model::new(&config("xeon-mp"), Options::default()).expect("a valid machine");
    m.record_frames(Full);
    assert_eq!(m.end_record_frames().expect_err("no room").kind(), io::ErrorKind::StorageFull);
}
