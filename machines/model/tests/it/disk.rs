//! The modelled disk: bytes, times, order, and blocks that are broken.

use pageferry_hal::*;
use pageferry_model::{MachineConfig, Model, Options, Schedule};
use std::cell::Cell;
use std::rc::Rc;

fn machine(schedule: Schedule) -> Model {
    let mut config = MachineConfig::named("xeon-mp").expect("it is built in");
    config.memory.size_mb.value = 4;
    Model::new(&config, Options::new(schedule)).expect("a valid machine")
}

fn request(tag: u64, transfer: Transfer, block: u64, frames: &[u32]) -> DiskRequest {
    DiskRequest { tag, transfer, block, frames: frames.iter().map(|&f| Pfn(f)).collect() }
}

/// Waits for the next answer, halted.
fn answer(m: &Model, arrived: &Rc<Cell<u32>>) -> DiskDone {
    loop {
        if let Some(done) = m.devices().disk.expect("a disk").take_done() {
            return done;
        }
        let before = arrived.get();
        m.idle_until(&mut || arrived.get() != before);
    }
}

fn run(schedule: Schedule, body: impl FnOnce(&Model, &Rc<Cell<u32>>) + 'static) {
    let m = machine(schedule);
    m.run(Box::new(move |m| {
        let arrived = Rc::new(Cell::new(0));
        let counter = arrived.clone();
        m.set_interrupt_handler(Box::new(move |i| {
            assert!(matches!(i, Interrupt::Device(_)));
            counter.set(counter.get() + 1);
        }));
        body(m, &arrived);
        None
    }))
    .expect("the run ends");
    m.check().expect("the machine's laws hold");
}

#[test]
fn bytes_come_back_and_the_cpu_is_idle_meanwhile() {
    for schedule in [Schedule::Timed, Schedule::Seeded(3)] {
        run(schedule, |m, arrived| {
            m.devices().disk.expect("a disk").submit(request(7, Transfer::Read, 40, &[100, 101]));
            assert_eq!(answer(m, arrived), DiskDone { tag: 7, result: Ok(()) });
            assert!(m.frame_bytes(Pfn(101)).iter().all(|&b| b != 0), "virgin blocks are not clear");
            m.devices().disk.expect("a disk").submit(request(8, Transfer::Write, 9, &[200]));
            m.devices().disk.expect("a disk").submit(request(9, Transfer::Read, 9, &[101]));
            assert_eq!([answer(m, arrived).tag, answer(m, arrived).tag], [8, 9]);
            assert_eq!(m.frame_bytes(Pfn(101)), m.frame_bytes(Pfn(200)));
            assert_eq!(m.disk_block(9), m.frame_bytes(Pfn(200)));
        });
    }
}

#[test]
fn a_request_that_goes_on_pays_no_access() {
    run(Schedule::Timed, |m, arrived| {
        let timed = |block, frames: &[u32]| {
            let began = m.now();
            m.devices().disk.expect("a disk").submit(request(1, Transfer::Read, block, frames));
            answer(m, arrived);
            (m.now() - began).0
        };
        let (far, next, two) = (timed(500, &[100]), timed(501, &[101]), timed(502, &[102, 103]));
        // 8 ms of access at 2400 MHz, and 82 microseconds a block.
        assert!((19_200_000..19_600_000).contains(&far), "{far}");
        assert!((196_000..230_000).contains(&next), "{next}");
        assert!((393_000..430_000).contains(&two), "{two}");
        let idle = m.snapshot().cycles[0][Cause::Idle.index()];
        assert!(idle >= far, "waiting for the disk is idle time: {idle}");
    });
}

#[test]
fn broken_blocks_fail_and_only_they() {
    run(Schedule::Timed, |m, arrived| {
        m.break_disk(10..11, true);
        m.devices().disk.expect("a disk").submit(request(1, Transfer::Write, 9, &[100, 101, 102]));
        assert_eq!(answer(m, arrived).result, Err(DiskError { block: 10 }));
        m.devices().disk.expect("a disk").submit(request(2, Transfer::Read, 11, &[100]));
        assert_eq!(answer(m, arrived).result, Ok(()));
        m.break_disk(10..11, false);
        m.devices().disk.expect("a disk").submit(request(3, Transfer::Read, 10, &[100]));
        assert_eq!(answer(m, arrived).result, Ok(()));
    });
}
