//! Pages that were received and become a file's (UVM paper, 4.2.2, the third way to dispose of transferred data).
//!
//! A process receives from a null socket, and what it got is to be in a file:
//!
//! * *write*: it is copied out of the socket, and written to the file: two copies.
//! * *transfer-write*: it is received by transfer, written, and flushed: one copy.
//! * *shared*: it is copied out of the socket into a shared mapping of the file: one copy.
//! * *lend*: it is received by transfer into a private mapping of the file and pushed down; the process's anons keep
//!   the pages, on loan from the file.
//! * *give*: the same, but the anons are freed.
//!
//! After each round the file is compared with what the socket had, through another mapping.

use super::Sum;
use crate::error::LabError;
use crate::kit::{
    CallError, OutcomeCell, Payload, Stopwatch, differs_behind, fill_answer, first_process, named,
};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, MapAddr, PushDown as How};

const NAME: &str = "data";

crate::choice! {
    /// How the data gets into the file.
    pub(crate) enum By {
        Write = "write",
        TransferWrite = "transfer-write",
        Shared = "shared",
        Lend = "lend",
        Give = "give",
    }
}

impl By {
    fn transfers(self) -> bool {
        matches!(self, By::TransferWrite | By::Lend | By::Give)
    }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 4096..=4 << 20,
        rounds: u64 = 1..=1 << 20,
        warmup_rounds: u64 = 0..=1 << 20,
        by: By,
        /// The process reads every word once it is in the file.
        touch: bool,
    }
}

pub(crate) struct PushDown {
    p: Parameters,
    model: Model,
    cell: OutcomeCell,
    clock_mhz: f64,
    payload: Payload,
    receive: Sum,
    store: Sum,
}

impl Workload for PushDown {
    const NAME: &'static str = "push-down";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64 / 4096 * 8).saturating_mul(p.rounds.saturating_add(p.warmup_rounds)) + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "receive_cycles_per_page",
                "cycles",
                "Modelled time of the reads, for each page that came.",
            ),
            metric(
                "store_cycles_per_page",
                "cycles",
                "Modelled time from there until the data is the file's.",
            ),
        ]
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.needs_whole_pages("size_bytes", p.size_bytes)?;
        testbed.needs_clusters_for(p.size_bytes)?;
        let buffers = 4 * p.size_bytes;
        let work = PushDown {
            model: testbed.model.clone(),
            cell: cell.clone(),
            clock_mhz: testbed.clock_mhz(),
            payload: Payload::new(testbed.seed, p.size_bytes),
            receive: Sum::default(),
            store: Sum::default(),
            p,
        };
        Ok(first_process(cell, buffers, move |user| {
            let result = work.run(user);
            // Files outlive their processes.
            result.and(user.unlink(NAME).map_err(named("unlink")))
        }))
    }
}

impl PushDown {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let Parameters { size_bytes, rounds, warmup_rounds, by, touch } = self.p;
        let socket = user.null_socket().map_err(named("null socket"))?;
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = user.open(NAME, flags).map_err(named("open"))?;
        user.truncate(file, size_bytes as u64).map_err(named("make the file"))?;
        let map = |shared, prot| user.map_file(file, 0, MapAddr::Anywhere, size_bytes, prot, shared);
        let at = match by {
            By::Write | By::TransferWrite => user.map(size_bytes, Prot::RW, Inherit::Copy),
            By::Shared => map(true, Prot::RW),
            By::Lend | By::Give => map(false, Prot::RW),
        };
        let at = at.map_err(named("map the buffer"))?;
        // Nobody loads from here: what the file has is looked at behind it, from outside.
        let seen = map(true, Prot::READ).map_err(named("map the file"))?;
        // The first read finds the clusters that all others use.
        self.receive(user, socket, at)?;
        let mut watch = Stopwatch::start(&self.model);
        for round in 0..warmup_rounds + rounds {
            if round == warmup_rounds {
                self.receive.clear();
                self.store.clear();
                watch = Stopwatch::start(&self.model);
            }
            self.read(user, socket, at, round)?;
            self.store.add(user, "put the data into the file", || self.put(user, file, at))?;
            if touch {
                user.load(at, &mut vec![0; size_bytes]);
            }
            if let Some(wrong) = differs_behind(user, &self.model, seen, self.payload.chunk(round)) {
                self.cell
                    .borrow_mut()
                    .damage(format!("byte {wrong} of the file is not that of round {round}"));
            }
        }
        let outcome = &mut *self.cell.borrow_mut();
        watch.stop(&self.model, self.clock_mhz, rounds * size_bytes as u64, outcome);
        let pages = (size_bytes / PAGE_SIZE) as f64;
        let results = [
            ("receive_cycles_per_page", self.receive.of_one(rounds) / pages),
            ("store_cycles_per_page", self.store.of_one(rounds) / pages),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// Receives other contents each time.
    fn read(&self, user: &User<Model>, socket: Fd, at: Va, round: u64) -> Result<(), CallError> {
        let contents = self.payload.chunk(round);
        let filled = fill_answer(user, &self.model, contents);
        let len = self.receive(user, socket, at)?;
        if !filled || len != contents.len() {
            self.cell.borrow_mut().damage(format!("round {round} brought {len} bytes"));
        }
        Ok(())
    }

    fn receive(&self, user: &User<Model>, socket: Fd, at: Va) -> Result<usize, CallError> {
        let size_bytes = self.p.size_bytes;
        self.receive.add(user, "receive", || match self.p.by.transfers() {
            true => user.receive_transfer(socket, Some(at), size_bytes).map(|got| got.len_bytes),
            false => user.receive(socket, at, size_bytes),
        })
    }

    fn put(&self, user: &User<Model>, file: Fd, at: Va) -> Result<(), Errno> {
        let Parameters { size_bytes, by, .. } = self.p;
        let how = match by {
            By::Shared => return Ok(()),
            By::Lend => How::Lend,
            By::Give => How::Give,
            By::Write | By::TransferWrite => {
                let written = user.write_at(file, 0, at, size_bytes)?;
                if written != size_bytes {
                    return Err(Errno::Io);
                }
                return if by == By::TransferWrite { user.anflush(at, size_bytes) } else { Ok(()) };
            }
        };
        let pushed = user.push_down(file, at, size_bytes, how)?;
        if pushed == size_bytes / PAGE_SIZE { Ok(()) } else { Err(Errno::Fault) }
    }
}
