//! What it takes to keep objects and the anons that borrow from them in step (UVM paper, 4.1.1 and 4.1.2): as
//! published, or as it is done here. See `pageferry_vm::LoanLocking`.
//!
//! A process reads a file by transfer: its anons have the file's pages on loan. What it then does with each page locks
//! the anon for it:
//!
//! * *lend*: it sends the pages on by loan, to a null socket.
//! * *store*: it stores to each page, which breaks the loan: the page is copied.
//! * *orphans*: the file ends first, and nobody owns the pages but their borrower; then it stores to each.
//!
//! `others` processes read the same file meanwhile, each into a buffer of its own, and lend on what they get. Each
//! round has a file of its own. Every byte is compared.

use super::Sum;
use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Payload, Stopwatch, differs_behind, first_process, named};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, Program, SendMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::cell::Cell;
use std::rc::Rc;

const NAME: &str = "data";

crate::choice! {
    /// What is done with a page.
    pub(crate) enum Then { Lend = "lend", Store = "store", Orphans = "orphans" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 4096..=4 << 20,
        rounds: u64 = 1..=1 << 20,
        warmup_rounds: u64 = 0..=1 << 20,
        then: Then,
        others: usize = 0..=16,
    }
}

#[derive(Clone)]
pub(crate) struct LoanLocks {
    p: Parameters,
    model: Model,
    cell: OutcomeCell,
    clock_mhz: f64,
    payload: Rc<Payload>,
    receive: Rc<Sum>,
    then: Rc<Sum>,
    /// The measured process has done all rounds.
    over: Rc<Cell<bool>>,
}

impl Workload for LoanLocks {
    const NAME: &'static str = "loan-locks";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        let rounds = p.rounds.saturating_add(p.warmup_rounds);
        (p.size_bytes as u64 / 4096 * 8).saturating_mul(rounds.saturating_mul(1 + p.others as u64)) + 1000
    }

    fn metrics() -> Vec<Metric> {
        let per_page = |name, means| metric(name, "cycles", means);
        vec![
            per_page(
                "borrow_cycles_per_page",
                "Modelled time of reading the file by transfer, for each page.",
            ),
            per_page("then_cycles_per_page", "Modelled time of what is done with each page then."),
        ]
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.needs_whole_pages("size_bytes", p.size_bytes)?;
        if testbed.kernel.file.shadows.is_some() {
            return Err(testbed.incompatible("expected a kernel that lends pages, without [shadows]"));
        }
        let buffers = (6 + 2 * p.others) * p.size_bytes;
        let work = LoanLocks {
            model: testbed.model.clone(),
            cell: cell.clone(),
            clock_mhz: testbed.clock_mhz(),
            payload: Rc::new(Payload::new(testbed.seed, p.size_bytes)),
            receive: Rc::default(),
            then: Rc::default(),
            over: Rc::default(),
            p,
        };
        Ok(first_process(cell, buffers, move |user| {
            let result = work.run(user);
            work.over.set(true);
            // Files outlive their processes.
            let unlinked = user.unlink(NAME).or_else(|e| if e == Errno::NoFile { Ok(()) } else { Err(e) });
            for _ in 0..work.p.others {
                user.wait().map_err(named("wait"))?;
            }
            result.and(unlinked.map_err(named("unlink")))
        }))
    }
}

impl LoanLocks {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let Parameters { size_bytes, rounds, warmup_rounds, others, .. } = self.p;
        let socket = user.null_socket().map_err(named("null socket"))?;
        let map = || user.map(size_bytes, Prot::RW, Inherit::Copy).map_err(named("map a buffer"));
        let (from, at) = (map()?, map()?);
        user.store(from, self.payload.chunk(0));
        let mut file = self.make_file(user, from)?;
        for _ in 0..others {
            let work = self.clone();
            let other = Box::new(move |user: &User<Model>| {
                if let Err((what, errno)) = work.go_on(user) {
                    work.cell.borrow_mut().damage(format!("another process: {what}: {errno}"));
                }
            });
            user.fork("other", other).map_err(named("fork"))?;
        }
        let mut watch = Stopwatch::start(&self.model);
        for round in 0..warmup_rounds + rounds {
            if round == warmup_rounds {
                self.receive.clear();
                self.then.clear();
                watch = Stopwatch::start(&self.model);
            }
            self.borrow(user, file, at)?;
            self.use_pages(user, file, socket, at)?;
            if self.p.then != Then::Orphans {
                user.unlink(NAME).and(user.close(file)).map_err(named("end the file"))?;
            }
            file = self.make_file(user, from)?;
        }
        user.close(file).map_err(named("close"))?;
        let outcome = &mut *self.cell.borrow_mut();
        watch.stop(&self.model, self.clock_mhz, rounds * size_bytes as u64, outcome);
        let pages = (size_bytes / PAGE_SIZE) as f64;
        let results = [
            ("borrow_cycles_per_page", self.receive.of_one(rounds) / pages),
            ("then_cycles_per_page", self.then.of_one(rounds) / pages),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// A new file with the contents, at its beginning.
    fn make_file(&self, user: &User<Model>, from: Va) -> Result<Fd, CallError> {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = user.open(NAME, flags).map_err(named("open"))?;
        user.write(file, from, self.p.size_bytes).map_err(named("write the file"))?;
        user.seek(file, 0).map_err(named("seek"))?;
        Ok(file)
    }

    /// Reads the file by transfer.
    fn borrow(&self, user: &User<Model>, file: Fd, at: Va) -> Result<(), CallError> {
        let size_bytes = self.p.size_bytes;
        let got = self.receive.add(user, "read", || user.receive_transfer(file, Some(at), size_bytes))?;
        self.compare(user, at, 0);
        if got.len_bytes != size_bytes {
            self.cell.borrow_mut().damage(format!("a read brought {} bytes", got.len_bytes));
        }
        Ok(())
    }

    fn use_pages(&self, user: &User<Model>, file: Fd, socket: Fd, at: Va) -> Result<(), CallError> {
        let size_bytes = self.p.size_bytes;
        match self.p.then {
            Then::Lend => {
                self.then.add(user, "lend on", || user.send(socket, at, size_bytes, SendMode::Loan))?;
            }
            Then::Orphans => user.unlink(NAME).and(user.close(file)).map_err(named("end the file"))?,
            Then::Store => {}
        }
        if self.p.then == Then::Lend {
            return Ok(());
        }
        self.then.add(user, "store", || {
            (0..size_bytes).step_by(PAGE_SIZE).for_each(|page| user.store(at + page, &[!0; 8]));
            Ok(())
        })?;
        self.compare(user, at, 8);
        Ok(())
    }

    /// Of each page the first `stored` bytes are what was stored there.
    fn compare(&self, user: &User<Model>, at: Va, stored: usize) {
        let mut expected = self.payload.chunk(0).to_vec();
        expected.chunks_mut(PAGE_SIZE).for_each(|page| page[..stored].fill(!0));
        if let Some(wrong) = differs_behind(user, &self.model, at, &expected) {
            self.cell.borrow_mut().damage(format!("byte {wrong} of what was read is wrong"));
        }
    }

    /// Another process: it reads whatever file there is, and lends on what it gets.
    fn go_on(&self, user: &User<Model>) -> Result<(), CallError> {
        let size_bytes = self.p.size_bytes;
        let socket = user.null_socket().map_err(named("null socket"))?;
        let at = user.map(size_bytes, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
        while !self.over.get() {
            // There may be none at this moment, or one that is not written yet.
            let Ok(file) = user.open(NAME, OpenFlags::READ) else { continue };
            let got = user.receive_transfer(file, Some(at), size_bytes).map_err(named("read"))?;
            if got.len_bytes > 0 {
                user.send(socket, at, got.len_bytes, SendMode::Loan).map_err(named("lend on"))?;
            }
            user.close(file).map_err(named("close"))?;
        }
        Ok(())
    }
}
