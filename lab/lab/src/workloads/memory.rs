//! Memory as lmbench measures it (`lat_mem_rd` and `bw_mem`, McVoy and Staelin, USENIX 1996): one process goes through
//! an array of its own, again and again.
//!
//! For the *latency* the array holds a list. Each word holds where the next one is, a stride on; so a load waits for
//! the one before it. What one takes is that of the level of the caches that has the array, and where the array has
//! more pages than the TLB entries, a share of a walk. The model counts a load that the first level has with its
//! instruction, so the first level's own latency, as the machine's file gives it, is added to all.
//!
//! *Read* and *write* go through the array page by page. *Copy* moves it into another of the same size, a line at a
//! time. Each word that is loaded must be the one that leads on, and each copy is compared, outside the machine. The
//! first pass of each is not counted.

use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Stopwatch, differs, first_process, named};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{Access, CpuId, Machine as _, PAGE_SIZE, Prot, Reference, Va};
use pageferry_kernel::{Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;

/// Bytes of a word of the list.
const WORD: usize = 4;
/// Loads of the list that are made between two looks for interrupts.
const LOADS: usize = 64;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 512..=1 << 28,
        stride_bytes: usize = 4..=4096,
        total_bytes: u64 = 1..=1 << 40,
    }
}

pub(crate) struct Memory {
    model: Model,
    cell: OutcomeCell,
    size_bytes: usize,
    stride_bytes: usize,
    /// Passes that count.
    passes: u64,
    /// The first level's.
    line_bytes: usize,
    latency_cycles: u64,
    clock_mhz: f64,
}

impl Workload for Memory {
    const NAME: &'static str = "memory";

    type Parameters = Parameters;

    fn weight(p: &Parameters, machine: &MachineConfig) -> u64 {
        let bytes = p.total_bytes.max(p.size_bytes as u64) + p.size_bytes as u64;
        let line = machine.cache.first().map_or(32, |level| level.line_bytes.value);
        bytes / line / 8 + bytes / p.stride_bytes as u64 / 4
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric("latency_ns", "ns", "Modelled time of a load that waits for the one before it."),
            metric("latency_cycles", "cycles", "The same in cycles of the CPU."),
            metric(
                "read_mb_s",
                "MB/s",
                "Bytes that a program loads in a modelled second, one after the other.",
            ),
            metric("write_mb_s", "MB/s", "Bytes that it stores."),
            metric("copy_mb_s", "MB/s", "Bytes that it copies; each is loaded once and stored once."),
        ]
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let first_level = testbed.machine.config.cache.first();
        let work = Memory {
            model: testbed.model.clone(),
            cell: cell.clone(),
            size_bytes: p.size_bytes,
            stride_bytes: p.stride_bytes,
            passes: (p.total_bytes / p.size_bytes as u64).max(1),
            line_bytes: first_level.map_or(32, |level| level.line_bytes.value as usize),
            latency_cycles: first_level.map_or(0, |level| level.latency_cycles.value),
            clock_mhz: testbed.clock_mhz(),
        };
        Ok(first_process(cell, 2 * p.size_bytes, move |user| work.run(user)))
    }
}

impl Memory {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        // Times are of one CPU's clock.
        user.bind_cpu(Some(CpuId(0))).map_err(named("bind to a CPU"))?;
        let map = || user.map(self.size_bytes, Prot::RW, Inherit::None).map_err(named("map memory"));
        let (array, copy) = (map()?, map()?);
        let contents = self.contents();
        user.store(array, &contents);
        user.store(copy, &vec![0; self.size_bytes]);
        let watch = Stopwatch::start(&self.model);
        let pass_cycles = self.cycles(|| self.follow(user, array));
        let latency_cycles = pass_cycles / self.places().count() as f64 + self.latency_cycles as f64;
        let mut page = [0; PAGE_SIZE];
        let read_cycles =
            self.cycles(|| self.by_pieces(PAGE_SIZE, |at, len| user.load(array + at, &mut page[..len])));
        let mut line = vec![0; self.line_bytes];
        let copy_cycles = self.cycles(|| {
            self.by_pieces(self.line_bytes, |at, len| {
                user.load(array + at, &mut line[..len]);
                user.store(copy + at, &line[..len]);
            });
        });
        self.compare(copy, &contents);
        let others: Vec<u8> = contents.iter().map(|byte| !byte).collect();
        let write_cycles =
            self.cycles(|| self.by_pieces(PAGE_SIZE, |at, len| user.store(copy + at, &others[at..at + len])));
        self.compare(copy, &others);
        let mb_s = |cycles: f64| self.size_bytes as f64 * self.clock_mhz / cycles;
        let results = [
            ("latency_ns", latency_cycles * 1000.0 / self.clock_mhz),
            ("latency_cycles", latency_cycles),
            ("read_mb_s", mb_s(read_cycles)),
            ("write_mb_s", mb_s(write_cycles)),
            ("copy_mb_s", mb_s(copy_cycles)),
        ];
        let outcome = &mut *self.cell.borrow_mut();
        let elapsed_cycles = watch.stop_cycles(&self.model, outcome);
        outcome.results.insert("elapsed_us".to_owned(), elapsed_cycles / self.clock_mhz);
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// Where the words of the list are; each lies in one line.
    fn places(&self) -> impl Iterator<Item = usize> {
        (0..=self.size_bytes - WORD).step_by(self.stride_bytes).map(|at| at - at % WORD)
    }

    /// The list: each word says where the next one is, and the last leads back to the first.
    fn contents(&self) -> Vec<u8> {
        let mut contents = vec![0; self.size_bytes];
        for (at, next) in self.places().zip(self.places().skip(1).chain([0])) {
            contents[at..at + WORD].copy_from_slice(&(next as u32).to_le_bytes());
        }
        contents
    }

    /// Cycles of a pass, where the first does not count.
    fn cycles(&self, mut pass: impl FnMut()) -> f64 {
        pass();
        let began = self.model.now();
        (0..self.passes).for_each(|_| pass());
        (self.model.now().0 - began.0) as f64 / self.passes as f64
    }

    fn by_pieces(&self, piece_bytes: usize, mut work: impl FnMut(usize, usize)) {
        (0..self.size_bytes)
            .step_by(piece_bytes)
            .for_each(|at| work(at, piece_bytes.min(self.size_bytes - at)));
    }

    /// Follows the list from its first word to its last.
    fn follow(&self, user: &User<Model>, array: Va) {
        let mut places = self.places().peekable();
        let mut loads = Vec::with_capacity(LOADS);
        while places.peek().is_some() {
            let load = |at| Reference { instructions: 0, access: Access::Read, at: array + at, word: 0 };
            loads.clear();
            loads.extend(places.by_ref().take(LOADS).map(load));
            user.refer(&mut loads);
            let next = places.peek().map_or(array, |&at| array + at);
            let leads_to = loads.iter().skip(1).map(|load| load.at).chain([next]);
            if let Some((load, _)) =
                loads.iter().zip(leads_to).find(|(load, to)| array + load.word as usize != *to)
            {
                self.cell
                    .borrow_mut()
                    .damage(format!("the list leads from {:?} to {:#x}", load.at, load.word));
            }
        }
    }

    /// The copy is what it should be.
    fn compare(&self, copy: Va, contents: &[u8]) {
        if let Some(at) = differs(&self.model, copy, contents, &mut Vec::new()) {
            self.cell.borrow_mut().damage(format!("the copy differs at byte {at}"));
        }
    }
}
