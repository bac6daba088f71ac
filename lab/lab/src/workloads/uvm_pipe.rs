//! Data through a pipe that is a pair of sockets (UVM paper, 5.3): copied or lent into it, copied or transferred out of
//! it.
//!
//! The program is [`uvm_pipe::UvmPipe`]: a child writes the same buffer again and again; its parent reads. Every byte
//! is checked at each read, from outside the machine. Where bytes are copied into the pipe, the buffer gets other
//! contents for each write, from outside too; where pages are lent, the program itself gives it others, and says which.
//! The pages of a buffer all differ.

use crate::error::LabError;
use crate::kit::{Onlooker, OutcomeCell, Payload, Process, Stopwatch, differs, first_process};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::Va;
use pageferry_kernel::{Program, ReceiveMode, SendMode};
use pageferry_model::{MachineConfig, Model};
use pageferry_workloads::uvm_pipe;
use std::cell::RefCell;
use std::rc::Rc;

/// The workload.
pub(crate) struct UvmPipe;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        warmup_writes: u64 = 0..=1 << 20,
        send: SendMode,
        receive: ReceiveMode,
        /// The child fills the buffer again before each write.
        refill: bool,
    }
}

impl Workload for UvmPipe {
    const NAME: &'static str = "uvm-pipe";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.total_bytes / 4096 * 3
    }

    /// The program of the parent.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let program = uvm_pipe::UvmPipe {
            size_bytes,
            warmup_writes: p.warmup_writes,
            total_bytes: p.total_bytes,
            send: p.send,
            receive: p.receive,
            refill: p.refill,
        };
        let onlooker = Onlooker::new(&testbed.model, &cell);
        let judge = Rc::new(Judge {
            onlooker: onlooker.clone(),
            program,
            clock_mhz: testbed.clock_mhz(),
            payload: Payload::new(testbed.seed, size_bytes),
            watch: RefCell::new(Stopwatch::start(&testbed.model)),
            scratch: RefCell::default(),
        });
        // Two buffers, and the copies of lent pages that the writer makes when it fills its own again.
        Ok(first_process(cell, 3 * size_bytes, move |user| {
            program.run(&Process::new(user, &onlooker), &judge)
        }))
    }
}

/// Fills the buffer before each write that copies, and compares what arrives.
struct Judge {
    onlooker: Onlooker,
    program: uvm_pipe::UvmPipe,
    clock_mhz: f64,
    payload: Payload,
    watch: RefCell<Stopwatch>,
    scratch: RefCell<Vec<u8>>,
}

impl uvm_pipe::Judge for Judge {
    fn contents(&self, index: u64) -> &[u8] {
        self.payload.chunk(self.program.filled_for(index))
    }

    fn refills(&self, buffer: Va, index: u64) {
        // Through the page tables: another CPU may be changing what the kernel keeps of the page.
        let filled = self.onlooker.model.poke(buffer, self.contents(index));
        assert!(filled, "the writer's buffer is mapped: it was stored to, and nothing is paged out");
    }

    fn begins(&self) {
        self.watch.replace(Stopwatch::start(&self.onlooker.model));
    }

    fn arrived(&self, buffer: Va, at: u64, len: usize) {
        let began = ThreadTime::now();
        self.check(buffer, at, len);
        self.watch.borrow_mut().leave_out(began);
    }

    fn ended_early(&self, got: u64, all: u64) {
        self.onlooker.damage(format!("the stream ended after {got} of {all} bytes"));
    }

    fn ends(&self) {
        let outcome = &mut *self.onlooker.cell.borrow_mut();
        self.watch.borrow().stop(&self.onlooker.model, self.clock_mhz, self.program.total_bytes, outcome);
    }
}

impl Judge {
    /// Checks `len` bytes that are at `offset` in the stream; a read may begin and end anywhere in a write.
    fn check(&self, buffer: Va, offset: u64, len: usize) {
        let (size_bytes, scratch) = (self.program.size_bytes, &mut *self.scratch.borrow_mut());
        let mut expected = Vec::with_capacity(len);
        while expected.len() < len {
            let place = offset + expected.len() as u64;
            let at = (place % size_bytes as u64) as usize;
            let part = (len - expected.len()).min(size_bytes - at);
            let contents = uvm_pipe::Judge::contents(self, place / size_bytes as u64);
            expected.extend_from_slice(&contents[at..at + part]);
        }
        if let Some(wrong) = differs(&self.onlooker.model, buffer, &expected, scratch) {
            let place = offset + wrong as u64;
            self.onlooker.damage(format!("byte {place} of the stream is not what was sent"));
        }
    }
}
