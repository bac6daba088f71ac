//! Writing to a null socket, by copy or by loan (UVM paper, 5.1): how fast data gets through the socket layer.
//!
//! A process writes one buffer again and again; the null protocol frees what it gets. No process receives the bytes, so
//! what is checked is where they were last: the cluster that was freed last must hold the end of the buffer, as it was
//! filled before the write, from outside the machine. After a write by loan no page of the buffer may be on loan, and
//! as many must have been lent as there are whole pages.

use crate::error::LabError;
use crate::kit::{Failed, OutcomeCell, Payload, Stopwatch, fill_behind, first_process, named};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{KernelCounter, Program, SendMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;

pub(crate) struct NullWrite {
    model: Model,
    cell: OutcomeCell,
    mode: SendMode,
    size_bytes: usize,
    warmup: u64,
    writes: u64,
    clock_mhz: f64,
    payload: Payload,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        warmup_writes: u64 = 0..=1 << 20,
        send: SendMode,
    }
}

impl Workload for NullWrite {
    const NAME: &'static str = "null-write";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.total_bytes / 4096 * 3
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let work = NullWrite {
            model: testbed.model.clone(),
            cell,
            mode: p.send,
            size_bytes,
            warmup: p.warmup_writes,
            writes: p.total_bytes.div_ceil(size_bytes as u64),
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Payload::new(testbed.seed, size_bytes),
        };
        Ok(first_process(work.cell.clone(), size_bytes, move |user| work.run(user)))
    }
}

impl NullWrite {
    fn run(&self, user: &User<Model>) -> Result<(), Failed> {
        let socket = user.null_socket().map_err(named("null socket"))?;
        let buffer = user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
        user.store(buffer, self.payload.chunk(0));
        let mut watch = Stopwatch::start(user, &self.model);
        for index in 0..self.warmup + self.writes {
            if index == self.warmup {
                watch = Stopwatch::start(user, &self.model);
            }
            let began = ThreadTime::now();
            fill_behind(user, &self.model, buffer, self.payload.chunk(index));
            watch.leave_out(began);
            let len = user.send(socket, buffer, self.size_bytes, self.mode).map_err(named("write"))?;
            let began = ThreadTime::now();
            self.check(user, buffer, index, len);
            watch.leave_out(began);
        }
        let lent = self.model.snapshot().counter(KernelCounter::PagesLent);
        let outcome = &mut *self.cell.borrow_mut();
        watch.stop(user, &self.model, self.clock_mhz, self.writes * self.size_bytes as u64, outcome);
        let pages = (self.size_bytes / PAGE_SIZE) as u64 * (self.warmup + self.writes);
        if self.mode == SendMode::Loan && lent != pages {
            outcome.damage(format!("{lent} pages were lent, not {pages}"));
        }
        Ok(())
    }

    fn check(&self, user: &User<Model>, buffer: Va, index: u64, len: usize) {
        let damage = |fault: String| self.cell.borrow_mut().damage(format!("write {index}: {fault}"));
        if len != self.size_bytes {
            damage(format!("{len} bytes were taken"));
        }
        let on_loan = |page: usize| {
            let frame = user.frame_behind(buffer + page * PAGE_SIZE);
            frame.is_none_or(|frame| user.kernel().vm().frame_info(frame).loan_count > 0)
        };
        let pages = self.size_bytes.div_ceil(PAGE_SIZE);
        if let Some(page) = self.model.inspect(|| (0..pages).find(|&page| on_loan(page))) {
            damage(format!("page {page} of the buffer is still on loan"));
        }
        let whole = self.size_bytes - self.size_bytes % PAGE_SIZE;
        let last = match self.mode {
            SendMode::Copy if whole == self.size_bytes => whole - PAGE_SIZE..whole,
            _ => whole..self.size_bytes,
        };
        // Few bytes go in a small mbuf.
        if last.len() < PAGE_SIZE / 2 {
            return;
        }
        let expected = &self.payload.chunk(index)[last];
        let mut found = vec![0; expected.len()];
        let cluster = self.model.inspect(|| user.kernel().free_clusters())[0];
        if !self.model.peek(cluster, &mut found) || found != expected {
            damage("the last cluster is not what was written".into());
        }
    }
}
