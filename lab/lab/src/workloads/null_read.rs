//! Reading from a null socket, by copy or by page transfer (UVM paper, 5.2).
//!
//! A process reads again and again; the null protocol answers at once, with clusters as they are. Before each read
//! those get other contents from outside the machine, and what arrives is compared with it: so every byte is checked,
//! and a page that is not the one it should be is found. By transfer, the pages go to the same buffer that copies go
//! to, where they take the place of those before, and are freed by `anflush` behind each read. (The transfer area would
//! do as well: then the kernel looks for room each time, which costs nothing as long as the area is empty.)

use crate::error::LabError;
use crate::kit::{Failed, OutcomeCell, Payload, Stopwatch, differs_behind, first_process, named, receive_by};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, Program, ReceiveMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;

pub(crate) struct NullRead {
    model: Model,
    cell: OutcomeCell,
    mode: ReceiveMode,
    size_bytes: usize,
    warmup: u64,
    reads: u64,
    clock_mhz: f64,
    payload: Payload,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        warmup_reads: u64 = 0..=1 << 20,
        receive: ReceiveMode,
    }
}

impl Workload for NullRead {
    const NAME: &'static str = "null-read";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.total_bytes / 4096 * 3
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let work = NullRead {
            model: testbed.model.clone(),
            cell,
            mode: p.receive,
            size_bytes,
            warmup: p.warmup_reads,
            reads: p.total_bytes.div_ceil(size_bytes as u64),
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Payload::new(testbed.seed, size_bytes),
        };
        Ok(first_process(work.cell.clone(), 3 * size_bytes, move |user| work.run(user)))
    }
}

impl NullRead {
    fn run(&self, user: &User<Model>) -> Result<(), Failed> {
        let socket = user.null_socket().map_err(named("null socket"))?;
        let buffer = user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
        // The first read finds the clusters that all others use.
        let first = self.read(user, socket, buffer)?;
        self.flush(user, buffer, first)?;
        let at_once = first.0;
        let mut watch = Stopwatch::start(user, &self.model);
        let mut total_bytes = 0;
        for index in 0..self.warmup + self.reads {
            if index == self.warmup {
                watch = Stopwatch::start(user, &self.model);
                total_bytes = 0;
            }
            let began = ThreadTime::now();
            let contents = &self.payload.chunk(index)[..at_once];
            let filled = self.fill(user, contents);
            watch.leave_out(began);
            let (len, pages) = self.read(user, socket, buffer)?;
            let began = ThreadTime::now();
            let fault = match differs_behind(user, &self.model, buffer, contents) {
                Some(wrong) => Some(format!("byte {wrong} is not what the socket had")),
                None if !filled || len != at_once => Some(format!("{len} bytes, expected {at_once}")),
                None => None,
            };
            fault.into_iter().for_each(|f| self.cell.borrow_mut().damage(format!("read {index}: {f}")));
            watch.leave_out(began);
            self.flush(user, buffer, (len, pages))?;
            total_bytes += len as u64;
        }
        watch.stop(user, &self.model, self.clock_mhz, total_bytes, &mut self.cell.borrow_mut());
        Ok(())
    }

    fn read(&self, user: &User<Model>, socket: Fd, buffer: Va) -> Result<(usize, bool), Failed> {
        receive_by(user, socket, buffer, self.size_bytes, self.mode).map_err(named("read"))
    }

    /// Frees what was received, if it came as pages.
    fn flush(&self, user: &User<Model>, buffer: Va, (len, pages): (usize, bool)) -> Result<(), Failed> {
        if !pages {
            return Ok(());
        }
        user.anflush(buffer, len.next_multiple_of(PAGE_SIZE)).map_err(named("anflush"))
    }

    /// Gives other contents to the clusters that will answer the next read, at no modelled cost.
    fn fill(&self, user: &User<Model>, contents: &[u8]) -> bool {
        let clusters = self.model.inspect(|| user.kernel().free_clusters());
        let pages = contents.chunks(PAGE_SIZE);
        pages.len() <= clusters.len() && pages.zip(clusters).all(|(page, at)| self.model.poke(at, page))
    }
}
