//! Pipe bandwidth (sf_buf paper, 6.3; lmbench's `bw_pipe`): the child writes, the parent reads.
//!
//! As in lmbench, the writer sends the same buffer again and again. So that a chunk can be told from the one before it,
//! the buffer gets other contents for each, from outside the machine: filling and checking cost no modelled time and
//! touch no modelled cache. The measured part begins when the reader has the last byte of the warm-up, and ends when it
//! has the last byte of all.

mod plots;

use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{Failed, Outcome, OutcomeCell, Payload, differs, first_process, named, over_a_pipe};
use crate::plot::Plot;
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct BwPipe {
    model: Model,
    cell: OutcomeCell,
    chunk_bytes: usize,
    warmup_bytes: u64,
    total_bytes: u64,
    clock_mhz: f64,
    payload: Rc<Payload>,
    /// Host time spent on filling and checking: not the model's.
    aside: Rc<Cell<Duration>>,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        total_bytes: u64 = 1..=1 << 40,
        chunk_bytes: usize = 1..=1 << 32,
        warmup_chunks: u64 = 0..=1 << 20,
    }
}

impl Workload for BwPipe {
    const NAME: &'static str = "bw-pipe";

    type Parameters = Parameters;

    fn weight(p: &Parameters, machine: &MachineConfig) -> u64 {
        (p.total_bytes / 4096).saturating_mul(2 + machine.cpus() as u64)
    }

    /// The program of the parent.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let chunk_bytes = p.chunk_bytes;
        let transfer = BwPipe {
            model: testbed.model.clone(),
            cell,
            chunk_bytes,
            warmup_bytes: p.warmup_chunks * chunk_bytes as u64,
            total_bytes: p.total_bytes,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            aside: Rc::default(),
            payload: Rc::new(Payload::new(testbed.seed, chunk_bytes)),
        };
        Ok(first_process(transfer.cell.clone(), 2 * chunk_bytes, move |user| {
            over_a_pipe(user, &transfer.cell, &transfer, BwPipe::write, BwPipe::read)
        }))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        if experiment.file.curves.is_empty() { plots::all(of, &experiment.name) } else { Vec::new() }
    }
}

impl BwPipe {
    fn write(&self, user: &User<Model>, to: Fd) -> Result<(), Failed> {
        let buffer =
            user.map(self.chunk_bytes, Prot::RW, Inherit::Copy).map_err(named("map the writer's buffer"))?;
        user.store(buffer, self.payload.chunk(0));
        let all = self.warmup_bytes + self.total_bytes;
        let mut sent = 0;
        while sent < all {
            let chunk = (all - sent).min(self.chunk_bytes as u64) as usize;
            let contents = &self.payload.chunk(sent / self.chunk_bytes as u64)[..chunk];
            let filled = self.beside(|| self.model.poke(buffer, contents));
            assert!(filled, "the writer's buffer is resident: it was stored to, and nothing is paged out");
            let mut done = 0;
            while done < chunk {
                done += user.write(to, buffer + done, chunk - done).map_err(named("write"))?;
            }
            sent += chunk as u64;
        }
        Ok(())
    }

    fn read(&self, user: &User<Model>, from: Fd) -> Result<(), Failed> {
        let buffer =
            user.map(self.chunk_bytes, Prot::RW, Inherit::Copy).map_err(named("map the reader's buffer"))?;
        let mut check = Check { transfer: self, buffer, scratch: Vec::new() };
        let all = self.warmup_bytes + self.total_bytes;
        let (mut start, mut got) = (None, 0);
        while got < all {
            if got >= self.warmup_bytes && start.is_none() {
                self.aside.set(Duration::ZERO);
                start = Some((user.machine().now(), self.model.snapshot(), ThreadTime::now()));
            }
            // A read never crosses the end of the warm-up.
            let end = if got < self.warmup_bytes { self.warmup_bytes } else { all };
            let want = (end - got).min(self.chunk_bytes as u64) as usize;
            let len = user.read(from, buffer, want).map_err(named("read"))?;
            if len == 0 {
                self.cell.borrow_mut().damage(format!("the stream ended after {got} of {all} bytes"));
                return Ok(());
            }
            self.beside(|| check.arrived(got, len));
            got += len as u64;
        }
        let (began, before, host) = start.expect("there is at least one byte to measure");
        let elapsed = user.machine().now().saturating_sub(began).0;
        let outcome = &mut *self.cell.borrow_mut();
        outcome.measured_s = host.elapsed().saturating_sub(self.aside.get()).as_secs_f64();
        outcome.measured = Some(self.model.snapshot().since(&before));
        self.results(elapsed, outcome);
        Ok(())
    }

    /// Does something that is no part of the experiment, and leaves it out of the host's time.
    fn beside<R>(&self, work: impl FnOnce() -> R) -> R {
        let began = ThreadTime::now();
        let result = work();
        self.aside.set(self.aside.get() + began.elapsed());
        result
    }

    fn results(&self, elapsed_cycles: u64, outcome: &mut Outcome) {
        let elapsed_us = elapsed_cycles as f64 / self.clock_mhz;
        let pages = self.total_bytes as f64 / PAGE_SIZE as f64;
        outcome.results.insert("elapsed_us".into(), elapsed_us);
        outcome.results.insert("bandwidth_mb_s".into(), self.total_bytes as f64 / elapsed_us);
        outcome.results.insert("elapsed_cycles_per_page".into(), elapsed_cycles as f64 / pages);
    }
}

/// The reader's check of what arrives.
struct Check<'a> {
    transfer: &'a BwPipe,
    buffer: Va,
    scratch: Vec<u8>,
}

impl Check<'_> {
    /// Checks `len` bytes that are at `offset` in the stream. A read may end and begin anywhere in a chunk.
    fn arrived(&mut self, offset: u64, len: usize) {
        let BwPipe { model, payload, chunk_bytes, cell, .. } = self.transfer;
        let mut done = 0;
        while done < len {
            let place = offset + done as u64;
            let at = (place % *chunk_bytes as u64) as usize;
            let part = (len - done).min(chunk_bytes - at);
            let expected = &payload.chunk(place / *chunk_bytes as u64)[at..at + part];
            if let Some(wrong) = differs(model, self.buffer + done, expected, &mut self.scratch) {
                let place = place + wrong as u64;
                cell.borrow_mut().damage(format!("byte {place} of the stream is not what was sent"));
            }
            done += part;
        }
    }
}
