//! A pipeline of three processes (UVM paper, 5.4): the first allocates and fills a buffer and sends it to the second,
//! which modifies it and sends it to the third, which writes it to a socket of the null protocol.
//!
//! The program is [`pipeline::Pipeline`]. Bytes are checked on arrival in the second and the third process, from
//! outside of the machine and at no modelled cost.

use crate::error::LabError;
use crate::kit::{Onlooker, OutcomeCell, Payload, Process, Stopwatch, first_process};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::Va;
use pageferry_kernel::{Pid, Program, SendMode};
use pageferry_model::{MachineConfig, Model};
use pageferry_workloads::{By, pipeline};
use std::cell::RefCell;
use std::rc::Rc;

/// The workload.
pub(crate) struct Pipeline;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        rounds: u64 = 1..=1 << 30,
        warmup_rounds: u64 = 0..=1 << 20,
        loop_instructions: u32 = 0..=1 << 20,
        by: By,
        send: SendMode,
    }
}

impl Workload for Pipeline {
    const NAME: &'static str = "pipeline";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64).saturating_mul(p.rounds) / 400 + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![metric(
            "elapsed_cycles_per_round",
            "cycles",
            "Modelled time of one round through all processes.",
        )]
    }

    /// The program of the first process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let program = pipeline::Pipeline {
            by: p.by,
            send: p.send,
            size_bytes,
            warmup_rounds: p.warmup_rounds,
            rounds: p.rounds,
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
        Ok(first_process(cell, 3 * size_bytes, move |user| {
            program.run(&Process::new(user, &onlooker), &judge)
        }))
    }
}

/// Compares what arrives.
struct Judge {
    onlooker: Onlooker,
    program: pipeline::Pipeline,
    clock_mhz: f64,
    payload: Payload,
    watch: RefCell<Stopwatch>,
}

impl pipeline::Judge for Judge {
    fn contents(&self, index: u64) -> &[u8] {
        self.payload.chunk(index)
    }

    fn begins(&self) {
        self.watch.replace(Stopwatch::start(&self.onlooker.model));
    }

    fn arrived(&self, receiver: Pid, buffer: Va, index: u64) {
        if let Some(wrong) = self.onlooker.differs(receiver, buffer, self.payload.chunk(index)) {
            let round = index / 2;
            self.onlooker.damage(format!("byte {wrong} of round {round} is not what was sent"));
        }
    }

    fn ends(&self) {
        let outcome = &mut *self.onlooker.cell.borrow_mut();
        let elapsed_cycles = self.watch.borrow().stop_cycles(&self.onlooker.model, outcome);
        let elapsed_us = elapsed_cycles / self.clock_mhz;
        let rounds = self.program.rounds;
        let bytes = (self.program.size_bytes as u64 * rounds) as f64;
        let results = [
            ("elapsed_us", elapsed_us),
            ("bandwidth_mb_s", bytes / elapsed_us),
            ("elapsed_cycles_per_round", elapsed_cycles / rounds as f64),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}
