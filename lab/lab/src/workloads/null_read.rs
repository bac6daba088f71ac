//! Reading from a null socket, by copy or by page transfer (UVM paper, 5.2).
//!
//! The program is [`null_read::NullRead`]: a process reads again and again; the null protocol answers at once, with
//! pages as they are. Before each read those get other contents from outside the machine, and what arrives is compared
//! with it: so every byte is checked, and a page that is not the one it should be is found. By transfer, the
//! pages go to the same buffer that copies go to, where they take the place of those before, and are freed by `anflush`
//! behind each read. (The transfer area would do as well: then the kernel looks for room each time, which costs nothing
//! as long as the area is empty.)

use crate::error::LabError;
use crate::kit::{
    Onlooker, OutcomeCell, Payload, Process, Stopwatch, differs_behind, fill_answer, first_process,
};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Va};
use pageferry_kernel::{Program, ReceiveMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_workloads::null_read;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        warmup_reads: u64 = 0..=1 << 20,
        receive: ReceiveMode,
    }
}

/// The workload.
pub(crate) struct NullRead;

impl Workload for NullRead {
    const NAME: &'static str = "null-read";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.total_bytes / 4096 * 3
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        // More than the kernel has clusters comes in several answers, but each is one at least.
        testbed.needs_clusters_for(size_bytes.min(PAGE_SIZE))?;
        let program = null_read::NullRead {
            size_bytes,
            warmup: p.warmup_reads,
            reads: p.total_bytes.div_ceil(size_bytes as u64),
            mode: p.receive,
        };
        let (model, clock_mhz) = (testbed.model.clone(), testbed.clock_mhz());
        let onlooker = Onlooker::new(&model, &cell);
        let payload = Payload::new(testbed.seed, size_bytes);
        Ok(first_process(cell.clone(), 3 * size_bytes, move |user| {
            let mut judge = Judge {
                user,
                model: &model,
                cell: &cell,
                payload: &payload,
                at_once: 0,
                filled: false,
                total_bytes: 0,
                watch: Stopwatch::start(&model),
            };
            program.run(&Process::new(user, &onlooker), &mut judge)?;
            judge.watch.stop(&model, clock_mhz, judge.total_bytes, &mut cell.borrow_mut());
            Ok(())
        }))
    }
}

/// Fills what is answered with before each read, and compares what arrives.
struct Judge<'a> {
    user: &'a User<Model>,
    model: &'a Model,
    cell: &'a OutcomeCell,
    payload: &'a Payload,
    at_once: usize,
    /// What the next read is answered with has other contents.
    filled: bool,
    total_bytes: u64,
    watch: Stopwatch,
}

impl null_read::Judge for Judge<'_> {
    fn begins(&mut self, at_once: usize) {
        self.at_once = at_once;
        self.watch = Stopwatch::start(self.model);
        self.total_bytes = 0;
    }

    fn reads(&mut self, index: u64) {
        let began = ThreadTime::now();
        let contents = &self.payload.chunk(index)[..self.at_once];
        self.filled = fill_answer(self.user, self.model, contents);
        self.watch.leave_out(began);
    }

    fn read(&mut self, buffer: Va, index: u64, len: usize) {
        let began = ThreadTime::now();
        let contents = &self.payload.chunk(index)[..self.at_once];
        let fault = match differs_behind(self.user, self.model, buffer, contents) {
            Some(wrong) => Some(format!("byte {wrong} is not what the socket had")),
            None if !self.filled || len != self.at_once => {
                Some(format!("{len} bytes, expected {}", self.at_once))
            }
            None => None,
        };
        fault.into_iter().for_each(|f| self.cell.borrow_mut().damage(format!("read {index}: {f}")));
        self.watch.leave_out(began);
    }

    fn flushed(&mut self, len: usize) {
        self.total_bytes += len as u64;
    }
}
