//! Data to and fro between two processes (UVM paper, 5.4): over a local socket, or by passing map entries.
//!
//! The program is [`ping_pong::PingPong`]. Where its receivers do not go over the data, the buffer is given other
//! contents between transfers from outside of the machine, at no modelled cost. Every byte is checked at each arrival,
//! also from outside.
//!
//! The paper counts "the number of times the data was transferred from parent to child process and back": bandwidth is
//! one buffer for each such round.

use crate::error::LabError;
use crate::kit::{Onlooker, OutcomeCell, Payload, Process, Stopwatch, first_process};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::Va;
use pageferry_kernel::{Pid, Program};
use pageferry_model::{MachineConfig, Model};
use pageferry_workloads::{By, ping_pong};
use std::cell::RefCell;
use std::rc::Rc;

/// The workload.
pub(crate) struct PingPong;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        rounds: u64 = 1..=1 << 30,
        warmup_rounds: u64 = 0..=1 << 20,
        loop_instructions: u32 = 0..=1 << 20,
        by: By,
        /// A receiver reads every word and writes another in its place.
        touch: bool,
    }
}

impl Workload for PingPong {
    const NAME: &'static str = "ping-pong";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64).saturating_mul(p.rounds) / 400 + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![metric(
            "elapsed_cycles_per_transfer",
            "cycles",
            "Modelled time of one transfer from a process to the other.",
        )]
    }

    /// The program of the parent.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let program = ping_pong::PingPong {
            by: p.by,
            touch: p.touch,
            size_bytes,
            warmup_transfers: 2 * p.warmup_rounds,
            transfers: 2 * p.rounds,
            loop_instructions: p.loop_instructions,
        };
        let onlooker = Onlooker::new(&testbed.model, &cell);
        let judge = Rc::new(Judge {
            onlooker: onlooker.clone(),
            program,
            clock_mhz: testbed.clock_mhz(),
            payload: Payload::new(testbed.seed, size_bytes),
            watch: RefCell::new(Stopwatch::start(&testbed.model)),
        });
        Ok(first_process(cell, 2 * size_bytes, move |user| {
            program.run(&Process::new(user, &onlooker), &judge)
        }))
    }
}

/// Fills buffers that nobody goes over, and compares what arrives.
struct Judge {
    onlooker: Onlooker,
    program: ping_pong::PingPong,
    clock_mhz: f64,
    payload: Payload,
    watch: RefCell<Stopwatch>,
}

impl ping_pong::Judge for Judge {
    fn contents(&self, index: u64) -> &[u8] {
        self.payload.chunk(index)
    }

    fn refills(&self, sender: Pid, buffer: Va, index: u64) {
        self.onlooker.fill(sender, buffer, self.payload.chunk(index));
    }

    fn begins(&self) {
        self.watch.replace(Stopwatch::start(&self.onlooker.model));
    }

    fn arrived(&self, receiver: Pid, buffer: Va, index: u64) {
        if let Some(wrong) = self.onlooker.differs(receiver, buffer, self.payload.chunk(index)) {
            self.onlooker.damage(format!("byte {wrong} of transfer {index} is not what was sent"));
        }
    }

    fn ends(&self) {
        let outcome = &mut *self.onlooker.cell.borrow_mut();
        let elapsed_cycles = self.watch.borrow().stop_cycles(&self.onlooker.model, outcome);
        let elapsed_us = elapsed_cycles / self.clock_mhz;
        let transfers = self.program.transfers;
        let bytes = (self.program.size_bytes as u64 * transfers / 2) as f64;
        let results = [
            ("elapsed_us", elapsed_us),
            ("bandwidth_mb_s", bytes / elapsed_us),
            ("elapsed_cycles_per_transfer", elapsed_cycles / transfers as f64),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}
