//! Anonymous memory that does not fit goes to the swap area (UVM paper, abstract).
//!
//! A process stores to every page of more memory than the machine has, again and again: in the order of addresses, or
//! by a stride that scatters neighbours over the whole. Each page that comes in makes another go out. How many pages go
//! in a request decides how long that takes, and this depends on whether pages that go together may be put together
//! on the disk.
//!
//! In the end every page is read and compared.

use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Stopwatch, named, other_process};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, VmCounter};

crate::choice! {
    /// In which order the pages are stored to.
    pub(crate) enum Order { Ascending = "ascending", Scattered = "scattered" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 4096..=1 << 32,
        passes: usize = 1..=1 << 10,
        order: Order,
    }
}

pub(crate) struct PageOut {
    p: Parameters,
    model: Model,
    cell: OutcomeCell,
    clock_mhz: f64,
}

/// Strides of the scattered order, in pages: primes, more of them than can divide any number of pages at once. One that
/// does not divide it meets all pages.
const STRIDES: [usize; 3] = [1009, 1013, 1019];

impl Workload for PageOut {
    const NAME: &'static str = "page-out";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64 / 4096 * 10).saturating_mul(p.passes as u64) + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "pages_out_per_s",
                "pages/s",
                "Pages that went to the swap area, in a second of modelled time.",
            ),
            metric(
                "pages_per_request",
                "pages",
                "Pages that go out in a request to the disk, one with another.",
            ),
        ]
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.needs_whole_pages("size_bytes", p.size_bytes)?;
        if testbed.kernel.file.paging().is_none() {
            return Err(testbed.incompatible("expected a kernel with [paging]"));
        }
        let (model, clock_mhz) = (testbed.model.clone(), testbed.clock_mhz());
        let work = PageOut { model, cell: cell.clone(), clock_mhz, p };
        // What it needs is more than there is.
        Ok(other_process(cell, move |user| work.run(user)))
    }
}

impl PageOut {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let Parameters { size_bytes, passes, order } = self.p;
        let pages = size_bytes / PAGE_SIZE;
        let at = user.map(size_bytes, Prot::RW, Inherit::Copy).map_err(named("map memory"))?;
        let stride = STRIDES.into_iter().find(|stride| !pages.is_multiple_of(*stride)).expect("4 GB at most");
        let page_of = |i: usize| match order {
            Order::Ascending => i,
            Order::Scattered => i * stride % pages,
        };
        let watch = Stopwatch::start(&self.model);
        for pass in 0..passes {
            for page in (0..pages).map(page_of) {
                user.store(self.va(at, page), &value(pass, page));
            }
        }
        let outcome = &mut *self.cell.borrow_mut();
        let seconds = watch.stop_cycles(&self.model, outcome) / self.clock_mhz / 1e6;
        let counter = |counter| outcome.measured.as_ref().map_or(0, |all| all.counter(counter)) as f64;
        let out = counter(VmCounter::PageOuts);
        // A page of anonymous memory comes in alone.
        let requests = counter(VmCounter::DiskRequests) - counter(VmCounter::PageIns);
        let results = [("pages_out_per_s", out / seconds), ("pages_per_request", out / requests.max(1.0))];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        let wrong = (0..pages).map(page_of).find(|&page| {
            let mut found = [0; 8];
            user.load(self.va(at, page), &mut found);
            found != value(passes - 1, page)
        });
        if let Some(page) = wrong {
            outcome.damage(format!("page {page} is not as it was written"));
        }
        Ok(())
    }

    fn va(&self, at: Va, page: usize) -> Va {
        at + page * PAGE_SIZE
    }
}

/// What is stored to `page` in `pass`.
fn value(pass: usize, page: usize) -> [u8; 8] {
    ((pass as u64 + 1) << 32 | page as u64).to_le_bytes()
}
