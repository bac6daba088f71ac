//! Where pages go that are received by transfer, and how they are given up (UVM paper, 4.2.1 and 4.2.2).
//!
//! A process reads from a null socket by transfer, again and again, and keeps what the last few reads brought. The
//! pages go to an address that it gives, one after another in a ring of buffers, or to the transfer area, where the
//! kernel looks for room. What is no longer kept is given up: by `anflush`, which leaves the amap; by `munmap`, which
//! does not (a buffer is mapped again then); or not at all, where the next read replaces it.
//!
//! Every page is compared with what the socket had.

use super::{Sum, entries};
use crate::error::LabError;
use crate::kit::{
    CallError, OutcomeCell, Payload, Stopwatch, differs_behind, fill_answer, first_process, named,
};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, MapAddr};
use std::collections::VecDeque;

crate::choice! {
    /// Where the pages go.
    pub(crate) enum To { Given = "given", Area = "area" }
}

crate::choice! {
    /// How they are given up.
    pub(crate) enum Dispose { Anflush = "anflush", Munmap = "munmap", Replace = "replace" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 4096..=4 << 20,
        kept: usize = 0..=1024,
        reads: u64 = 1..=1 << 20,
        warmup_reads: u64 = 0..=1 << 20,
        to: To,
        dispose: Dispose,
    }
}

pub(crate) struct TransferArea {
    p: Parameters,
    model: Model,
    cell: OutcomeCell,
    clock_mhz: f64,
    payload: Payload,
    receive: Sum,
    give_up: Sum,
}

impl Workload for TransferArea {
    const NAME: &'static str = "transfer-area";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64 / 4096 * 4).saturating_mul(p.reads.saturating_add(p.warmup_reads)) + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "receive_cycles_per_page",
                "cycles",
                "Modelled time of the reads, for each page that came.",
            ),
            metric(
                "dispose_cycles_per_page",
                "cycles",
                "Modelled time of giving pages up, and of mapping buffers again.",
            ),
            metric(
                "entries_added",
                "count",
                "Map entries that the process has more at the end than after the warm-up.",
            ),
        ]
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        if p.to == To::Area && p.dispose == Dispose::Replace {
            return Err(testbed
                .incompatible("dispose=replace: expected to=given, as nothing in the area is replaced"));
        }
        testbed.needs_whole_pages("size_bytes", p.size_bytes)?;
        testbed.needs_clusters_for(p.size_bytes)?;
        let buffers = (p.kept + 2) * p.size_bytes;
        let work = TransferArea {
            model: testbed.model.clone(),
            cell: cell.clone(),
            clock_mhz: testbed.clock_mhz(),
            payload: Payload::new(testbed.seed, p.size_bytes),
            receive: Sum::default(),
            give_up: Sum::default(),
            p,
        };
        Ok(first_process(cell, buffers, move |user| work.run(user)))
    }
}

impl TransferArea {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let Parameters { size_bytes, kept, reads, warmup_reads, to, .. } = self.p;
        let socket = user.null_socket().map_err(named("null socket"))?;
        // Buffers of the ring that hold nothing, and what was read last, the oldest first.
        let mut free = VecDeque::new();
        if to == To::Given {
            for _ in 0..=kept {
                // A page between any two, so that each has a map entry of its own.
                let at = user
                    .map(size_bytes + PAGE_SIZE, Prot::RW, Inherit::Copy)
                    .map_err(named("map a buffer"))?;
                user.unmap(at + size_bytes, PAGE_SIZE).map_err(named("unmap"))?;
                user.store(at, &[1]);
                free.push_back(at);
            }
        }
        // The first read finds the clusters that all others use.
        let first = free.front().copied();
        let got = user.receive_transfer(socket, first, size_bytes).map_err(named("receive"))?;
        user.anflush(got.at, size_bytes).map_err(named("anflush"))?;
        let mut held = VecDeque::new();
        let (mut watch, mut entries_before) = (Stopwatch::start(&self.model), 0.0);
        // The ring is full before anything is measured.
        let warmup = warmup_reads + kept as u64;
        for read in 0..warmup + reads {
            if read == warmup {
                entries_before = entries(user);
                self.receive.clear();
                self.give_up.clear();
                watch = Stopwatch::start(&self.model);
            }
            let given = free.pop_front();
            let at = self.read(user, socket, given, read)?;
            held.push_back(at);
            if held.len() > kept {
                let oldest = held.pop_front().expect("there is one");
                let again = self.give_up.add(user, "give pages up", || self.dispose(user, oldest))?;
                if to == To::Given {
                    free.push_back(again);
                }
            }
        }
        let outcome = &mut *self.cell.borrow_mut();
        watch.stop(&self.model, self.clock_mhz, reads * size_bytes as u64, outcome);
        let pages = (size_bytes / PAGE_SIZE) as f64;
        let results = [
            ("receive_cycles_per_page", self.receive.of_one(reads) / pages),
            ("dispose_cycles_per_page", self.give_up.of_one(reads) / pages),
            ("entries_added", entries(user) - entries_before),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// Receives other contents each time; where they are.
    fn read(&self, user: &User<Model>, socket: Fd, given: Option<Va>, index: u64) -> Result<Va, CallError> {
        let contents = self.payload.chunk(index);
        let filled = fill_answer(user, &self.model, contents);
        let got =
            self.receive.add(user, "receive", || user.receive_transfer(socket, given, contents.len()))?;
        let wrong = differs_behind(user, &self.model, got.at, contents);
        if !filled || got.len_bytes != contents.len() || wrong.is_some() {
            let fault = format!("read {index} brought {} bytes, the first wrong {wrong:?}", got.len_bytes);
            self.cell.borrow_mut().damage(fault);
        }
        Ok(got.at)
    }

    /// Gives what is at `at` up; where the next can go.
    fn dispose(&self, user: &User<Model>, at: Va) -> Result<Va, Errno> {
        let Parameters { size_bytes, to, dispose, .. } = self.p;
        match dispose {
            Dispose::Replace => {}
            Dispose::Anflush => user.anflush(at, size_bytes)?,
            Dispose::Munmap => user.unmap(at, size_bytes)?,
        }
        if dispose == Dispose::Munmap && to == To::Given {
            return user.map_at(MapAddr::Free(at), size_bytes, Prot::RW, Inherit::Copy);
        }
        Ok(at)
    }
}
