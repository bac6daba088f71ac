//! Pipe bandwidth (sf_buf paper, 6.3; lmbench's `bw_pipe`): the child writes, the parent reads.
//!
//! The program is [`Pipe`]. As in lmbench, the writer sends the same buffer again and again. So that a chunk can be
//! told from the one before it, the buffer gets other contents for each, from outside the machine: filling and checking
//! cost no modelled time and touch no modelled cache.

mod plots;
mod regimes;

use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{Onlooker, OutcomeCell, Payload, Process, differs, first_process};
use crate::plot::Plot;
use crate::record::Metric;
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Cycles, Machine as _, PAGE_SIZE, Va};
use pageferry_kernel::Program;
use pageferry_model::{MachineConfig, Model, Snapshot};
use pageferry_workloads::Pin;
use pageferry_workloads::pipe::{self, Pipe};
use regimes::Regimes;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The workload.
pub(crate) struct BwPipe;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        total_bytes: u64 = 1..=1 << 40,
        chunk_bytes: usize = 1..=1 << 32,
        warmup_chunks: u64 = 0..=1 << 20,
        pin: Pin,
    }
}

impl Workload for BwPipe {
    const NAME: &'static str = "bw-pipe";

    type Parameters = Parameters;

    fn weight(p: &Parameters, machine: &MachineConfig) -> u64 {
        (p.total_bytes / 4096).saturating_mul(2 + machine.cpus() as u64)
    }

    fn metrics() -> Vec<Metric> {
        regimes::metrics()
    }

    /// The program of the parent.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let (chunk_bytes, cpus) = (p.chunk_bytes, testbed.machine.config.cpus());
        if p.pin == Pin::Other && cpus < 2 {
            return Err(testbed.incompatible("pin = other: expected a machine with two CPUs or more"));
        }
        let program = Pipe {
            chunk_bytes,
            warmup_bytes: p.warmup_chunks * chunk_bytes as u64,
            total_bytes: p.total_bytes,
            cpus: p.pin.cpus(cpus),
        };
        let judge = Rc::new(Judge {
            model: testbed.model.clone(),
            cell: cell.clone(),
            program,
            clock_mhz: testbed.clock_mhz(),
            payload: Payload::new(testbed.seed, chunk_bytes),
            aside: Cell::default(),
            start: RefCell::default(),
            regimes: Regimes::new(testbed.clock_mhz(), cpus),
            scratch: RefCell::default(),
        });
        let onlooker = Onlooker::new(&testbed.model, &cell);
        Ok(first_process(cell, 2 * chunk_bytes, move |user| {
            program.run(&Process::new(user, &onlooker), &judge)
        }))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        if experiment.file.curves.is_empty() { plots::all(of, &experiment.name) } else { Vec::new() }
    }
}

/// Fills the writer's buffer before each chunk, and compares what arrives.
struct Judge {
    model: Model,
    cell: OutcomeCell,
    program: Pipe,
    clock_mhz: f64,
    payload: Payload,
    /// Host time spent on filling and checking: not the model's.
    aside: Cell<Duration>,
    /// When the measured part began, what the machine had done by then, and the host.
    start: RefCell<Option<(Cycles, Snapshot, ThreadTime)>>,
    /// How the ends were placed, and what came through.
    regimes: Regimes,
    scratch: RefCell<Vec<u8>>,
}

impl pipe::Judge for Judge {
    fn contents(&self) -> &[u8] {
        self.payload.chunk(0)
    }

    fn sends(&self, buffer: Va, at: u64, len: usize) {
        self.regimes.sends(self.model.cpu());
        let contents = &self.payload.chunk(at / self.program.chunk_bytes as u64)[..len];
        let filled = self.beside(|| self.model.poke(buffer, contents));
        assert!(filled, "the writer's buffer is resident: it was stored to, and nothing is paged out");
    }

    fn begins(&self) {
        self.aside.set(Duration::ZERO);
        self.regimes.begins(self.model.now());
        self.start.replace(Some((self.model.now(), self.model.begin_measuring(), ThreadTime::now())));
    }

    fn arrived(&self, buffer: Va, at: u64, len: usize) {
        self.regimes.arrived(self.model.cpu(), self.model.now(), len);
        self.beside(|| self.check(buffer, at, len));
    }

    fn ended_early(&self, got: u64, all: u64) {
        self.cell.borrow_mut().damage(format!("the stream ended after {got} of {all} bytes"));
    }

    fn ends(&self) {
        let (began, before, host) = self.start.take().expect("there is at least one byte to measure");
        let elapsed_cycles = self.model.now().saturating_sub(began).0;
        let outcome = &mut *self.cell.borrow_mut();
        outcome.measured_s = host.elapsed().saturating_sub(self.aside.get()).as_secs_f64();
        outcome.measured = Some(self.model.end_measuring().since(&before));
        let total_bytes = self.program.total_bytes as f64;
        let (elapsed_us, pages) = (elapsed_cycles as f64 / self.clock_mhz, total_bytes / PAGE_SIZE as f64);
        let results = [
            ("elapsed_us", elapsed_us),
            ("bandwidth_mb_s", total_bytes / elapsed_us),
            ("elapsed_cycles_per_page", elapsed_cycles as f64 / pages),
        ];
        let results = results.into_iter().chain(self.regimes.results());
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}

impl Judge {
    /// Does something that is no part of the experiment, and leaves it out of the host's time.
    fn beside<R>(&self, work: impl FnOnce() -> R) -> R {
        let began = ThreadTime::now();
        let result = work();
        self.aside.set(self.aside.get() + began.elapsed());
        result
    }

    /// Checks `len` bytes that are at `offset` in the stream. A read may end and begin anywhere in a chunk.
    fn check(&self, buffer: Va, offset: u64, len: usize) {
        let (chunk_bytes, scratch) = (self.program.chunk_bytes, &mut *self.scratch.borrow_mut());
        let mut done = 0;
        while done < len {
            let place = offset + done as u64;
            let at = (place % chunk_bytes as u64) as usize;
            let part = (len - done).min(chunk_bytes - at);
            let expected = &self.payload.chunk(place / chunk_bytes as u64)[at..at + part];
            if let Some(wrong) = differs(&self.model, buffer + done, expected, scratch) {
                let place = place + wrong as u64;
                self.cell.borrow_mut().damage(format!("byte {place} of the stream is not what was sent"));
            }
            done += part;
        }
    }
}
