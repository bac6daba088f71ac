//! Writing to a null socket, by copy or by loan (UVM paper, 5.1): how fast data gets through the socket layer.
//!
//! The program is [`null_write::NullWrite`]: a process writes one buffer again and again. No process receives the
//! bytes, so what is checked is where they were last: the cluster that was freed last must hold the end of the buffer,
//! as it was filled before the write, from outside the machine. After a write by loan no page of the buffer may be on
//! loan, and as many must have been lent as there are whole pages.

use crate::error::LabError;
use crate::kit::{Onlooker, OutcomeCell, Payload, Process, Stopwatch, fill_behind, first_process};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Va};
use pageferry_kernel::{KernelCounter, Program, SendMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_workloads::null_write;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        warmup_writes: u64 = 0..=1 << 20,
        send: SendMode,
    }
}

/// The workload.
pub(crate) struct NullWrite;

impl Workload for NullWrite {
    const NAME: &'static str = "null-write";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.total_bytes / 4096 * 3
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let program = null_write::NullWrite {
            size_bytes,
            warmup: p.warmup_writes,
            writes: p.total_bytes.div_ceil(size_bytes as u64),
            mode: p.send,
        };
        let (model, clock_mhz) = (testbed.model.clone(), testbed.clock_mhz());
        let onlooker = Onlooker::new(&model, &cell);
        let payload = Payload::new(testbed.seed, size_bytes);
        Ok(first_process(cell.clone(), size_bytes, move |user| {
            let watch = Stopwatch::start(&model);
            let mut judge = Judge { user, model: &model, cell: &cell, program, payload: &payload, watch };
            program.run(&Process::new(user, &onlooker), &mut judge)?;
            judge.results(clock_mhz);
            Ok(())
        }))
    }
}

/// Fills the buffer before each write, and looks behind each where its bytes went.
struct Judge<'a> {
    user: &'a User<Model>,
    model: &'a Model,
    cell: &'a OutcomeCell,
    program: null_write::NullWrite,
    payload: &'a Payload,
    watch: Stopwatch,
}

impl null_write::Judge for Judge<'_> {
    fn contents(&self) -> &[u8] {
        self.payload.chunk(0)
    }

    fn begins(&mut self) {
        self.watch = Stopwatch::start(self.model);
    }

    fn writes(&mut self, buffer: Va, index: u64) {
        let began = ThreadTime::now();
        fill_behind(self.user, self.model, buffer, self.payload.chunk(index));
        self.watch.leave_out(began);
    }

    fn wrote(&mut self, buffer: Va, index: u64, len: usize) {
        let began = ThreadTime::now();
        self.check(buffer, index, len);
        self.watch.leave_out(began);
    }
}

impl Judge<'_> {
    fn results(self, clock_mhz: f64) {
        let null_write::NullWrite { size_bytes, warmup, writes, mode } = self.program;
        let lent = self.model.snapshot().counter(KernelCounter::PagesLent);
        let outcome = &mut *self.cell.borrow_mut();
        self.watch.stop(self.model, clock_mhz, writes * size_bytes as u64, outcome);
        let pages = (size_bytes / PAGE_SIZE) as u64 * (warmup + writes);
        if mode == SendMode::Loan && lent != pages {
            outcome.damage(format!("{lent} pages were lent, not {pages}"));
        }
    }

    fn check(&self, buffer: Va, index: u64, len: usize) {
        let null_write::NullWrite { size_bytes, mode, .. } = self.program;
        let user = self.user;
        let damage = |fault: String| self.cell.borrow_mut().damage(format!("write {index}: {fault}"));
        if len != size_bytes {
            damage(format!("{len} bytes were taken"));
        }
        let on_loan = |page: usize| {
            let frame = user.frame_behind(buffer + page * PAGE_SIZE);
            frame.is_none_or(|frame| user.kernel().vm().frame_info(frame).loan_count > 0)
        };
        let pages = size_bytes.div_ceil(PAGE_SIZE);
        if let Some(page) = self.model.inspect(|| (0..pages).find(|&page| on_loan(page))) {
            damage(format!("page {page} of the buffer is still on loan"));
        }
        let whole = size_bytes - size_bytes % PAGE_SIZE;
        let last = match mode {
            SendMode::Copy if whole == size_bytes => whole - PAGE_SIZE..whole,
            _ => whole..size_bytes,
        };
        // Few bytes go in a small mbuf.
        if last.len() < PAGE_SIZE / 2 {
            return;
        }
        let expected = &self.payload.chunk(index)[last];
        let mut found = vec![0; expected.len()];
        let clusters = self.model.inspect(|| user.kernel().free_clusters());
        // A kernel without clusters has put all of it into small mbufs, which are others by now.
        let Some(&cluster) = clusters.first() else { return };
        if !self.model.peek(cluster, &mut found) || found != expected {
            damage("the last cluster is not what was written".into());
        }
    }
}
