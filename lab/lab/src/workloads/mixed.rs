//! A mixed load over a pipe: messages of four sizes, the smaller ones the more often, from a writer to a reader.
//!
//! The program is [`mixed::Mixed`]. The pages of each of the writer's buffers differ, and every byte is checked at each
//! read, from outside the machine.

use crate::error::LabError;
use crate::kit::{Onlooker, OutcomeCell, Payload, Process, Stopwatch, first_process};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::Va;
use pageferry_kernel::{Pid, Program, ReceiveMode, SendMode};
use pageferry_model::{MachineConfig, Model};
use pageferry_workloads::mixed::{self, SIZES_BYTES};
use std::cell::RefCell;
use std::rc::Rc;

/// The workload.
pub(crate) struct Mixed;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        rounds: u64 = 1..=1 << 30,
        warmup_rounds: u64 = 0..=1 << 20,
        send: SendMode,
        receive: ReceiveMode,
    }
}

impl Workload for Mixed {
    const NAME: &'static str = "mixed";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.rounds.saturating_add(p.warmup_rounds).saturating_mul(1000)
    }

    /// The program of the reader, which is the parent.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let program = mixed::Mixed {
            warmup_rounds: p.warmup_rounds,
            rounds: p.rounds,
            send: p.send,
            receive: p.receive,
        };
        let onlooker = Onlooker::new(&testbed.model, &cell);
        let judge = Rc::new(Judge {
            onlooker: onlooker.clone(),
            total_bytes: p.rounds * mixed::round_bytes(),
            clock_mhz: testbed.clock_mhz(),
            payload: Payload::new(testbed.seed, SIZES_BYTES[3]),
            watch: RefCell::new(Stopwatch::start(&testbed.model)),
        });
        let buffers_bytes = 3 * SIZES_BYTES.iter().sum::<usize>();
        Ok(first_process(cell, buffers_bytes, move |user| {
            program.run(&Process::new(user, &onlooker), &judge)
        }))
    }
}

/// Compares each message.
struct Judge {
    onlooker: Onlooker,
    total_bytes: u64,
    clock_mhz: f64,
    payload: Payload,
    watch: RefCell<Stopwatch>,
}

impl mixed::Judge for Judge {
    fn contents(&self, size: usize) -> &[u8] {
        &self.payload.chunk(size as u64)[..SIZES_BYTES[size]]
    }

    fn begins(&self) {
        self.watch.replace(Stopwatch::start(&self.onlooker.model));
    }

    fn arrived(&self, reader: Pid, buffer: Va, size: usize) {
        let began = ThreadTime::now();
        if let Some(wrong) = self.onlooker.differs(reader, buffer, self.contents(size)) {
            let len = SIZES_BYTES[size];
            self.onlooker.damage(format!("byte {wrong} of a message of {len} is not what was sent"));
        }
        self.watch.borrow_mut().leave_out(began);
    }

    fn ended_early(&self, index: u64) {
        self.onlooker.damage(format!("the stream ended in round {index}"));
    }

    fn ends(&self) {
        let outcome = &mut *self.onlooker.cell.borrow_mut();
        self.watch.borrow().stop(&self.onlooker.model, self.clock_mhz, self.total_bytes, outcome);
    }
}
