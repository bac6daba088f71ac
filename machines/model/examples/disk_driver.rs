//! A device of one's own, and a driver: a disk of two that hold the same, so that a broken block is read from the
//! other.
//!
//! `cargo run -p pageferry-model --example disk_driver`

use pageferry_hal::dev::block::{BlockDevice, DiskDone, DiskError, DiskRequest};
use pageferry_hal::dev::device::{DeviceId, Transfer};
use pageferry_hal::{Machine, Pfn};
use pageferry_model::{MachineConfig, Model, Options};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

// ANCHOR: device
/// Two halves of one disk, written alike. A request whose first half fails is made again on the second.
struct Mirror {
    disk: Box<dyn BlockDevice>,
    /// Requests on their way, by tag: what was asked, and how many halves have answered well.
    under_way: RefCell<Vec<(DiskRequest, u32)>>,
}

impl Mirror {
    fn half(&self) -> u64 {
        self.disk.blocks() / 2
    }
}

impl BlockDevice for Mirror {
    fn id(&self) -> DeviceId {
        self.disk.id()
    }

    fn blocks(&self) -> u64 {
        self.half()
    }

    fn submit(&self, request: DiskRequest) {
        self.disk.submit(request.clone());
        self.under_way.borrow_mut().push((request, 0));
    }

    fn take_done(&self) -> Option<DiskDone> {
        while let Some(done) = self.disk.take_done() {
            let mut under_way = self.under_way.borrow_mut();
            let at = under_way.iter().position(|(request, _)| request.tag == done.tag)?;
            let (request, answered) = &mut under_way[at];
            *answered += 1;
            let again = *answered == 1 && (request.transfer == Transfer::Write || done.result.is_err());
            if again {
                self.disk.submit(DiskRequest { block: request.block + self.half(), ..request.clone() });
                continue;
            }
            under_way.remove(at);
            let result = done.result.map_err(|error| DiskError { block: error.block % self.half() });
            return Some(DiskDone { result, ..done });
        }
        None
    }
}
// ANCHOR_END: device

// ANCHOR: driver
/// Makes requests of a disk one by one, and sleeps until each is answered. Knows nothing of the machine but its trait.
struct Driver<M: Machine> {
    machine: M,
    disk: Box<dyn BlockDevice>,
    interrupted: Rc<Cell<bool>>,
    next_tag: Cell<u64>,
    answers: RefCell<VecDeque<DiskDone>>,
}

impl<M: Machine> Driver<M> {
    fn new(machine: M, disk: Box<dyn BlockDevice>) -> Self {
        let interrupted = Rc::new(Cell::new(false));
        let flag = interrupted.clone();
        // A handler does as little as can be: it may run between any two instructions of the driver.
        machine.set_interrupt_handler(Box::new(move |_| flag.set(true)));
        Self { machine, disk, interrupted, next_tag: Cell::new(0), answers: RefCell::default() }
    }

    fn transfer(&self, transfer: Transfer, block: u64, frame: Pfn) -> Result<(), DiskError> {
        let tag = self.next_tag.replace(self.next_tag.get() + 1);
        self.disk.submit(DiskRequest { tag, transfer, block, frames: vec![frame] });
        loop {
            self.answers.borrow_mut().extend(std::iter::from_fn(|| self.disk.take_done()));
            if let Some(done) = self.answers.borrow_mut().pop_front() {
                return done.result;
            }
            // The flag is looked at with interrupts off, so none is lost between the look and the sleep.
            self.machine.idle_until(&mut || self.interrupted.take());
        }
    }
}
// ANCHOR_END: driver

fn main() {
    let machine = MachineConfig::named("xeon-up").expect("it is built in");
    let model = Model::new(&machine, Options::default()).expect("a valid machine");
    // ANCHOR: boot
    let boot = |m: &Model| {
        let disk = m.devices().disk.expect("this machine has one");
        let mirror = Mirror { disk, under_way: RefCell::default() };
        let driver = Driver::new(m.clone(), Box::new(mirror));

        m.poke_frame(Pfn(100), 0, b"pages, not bytes");
        driver.transfer(Transfer::Write, 7, Pfn(100)).expect("both halves take it");
        // The first half loses the block; nobody notices.
        m.break_disk(7..8, true);
        driver.transfer(Transfer::Read, 7, Pfn(101)).expect("the second half has it");
        assert_eq!(m.frame_bytes(Pfn(101)), m.frame_bytes(Pfn(100)));
        None
    };
    model.run(Box::new(boot)).expect("the run ends well");
    model.check().expect("nothing is left, and the cycles add up");
    // ANCHOR_END: boot
    println!("a block that was broken was read from the mirror, after {} cycles", model.snapshot().clocks[0]);
}
