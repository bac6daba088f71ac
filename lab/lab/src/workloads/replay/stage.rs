//! What every workload of recorded programs does around them: room, files, a process for each, and the results.

use super::by_use::{self, Counted};
use super::process::{Ends, Replay};
use super::recorded::RecordedProgram;
use super::shadow::file_page;
use crate::kit::{CallError, OutcomeCell, Stopwatch, named, other_process, room_for};
use crate::record::{Metric, metric};
use crate::run::Testbed;
use pageferry_hal::{Cause, PAGE_SHIFT, PAGE_SIZE, Pa, Pfn, Prot};
use pageferry_kernel::{OpenFlags, User};
use pageferry_model::Model;
use pageferry_pmap::{HashCensus, PmapCounter};
use pageferry_vm::Inherit;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is measured of recorded programs.
pub(super) fn metrics() -> Vec<Metric> {
    METRICS.into_iter().chain(by_use::metrics()).collect()
}

const METRICS: [Metric; 14] = [
    metric(
        "hash_hits_percent",
        "%",
        "Misses of the TLBs that found their translation in the hash table, of those that looked there.",
    ),
    metric(
        "hash_misses_per_s",
        "1/s",
        "Look-ups of a translation in the hash table that did not find it, a second.",
    ),
    metric("hash_use_percent", "%", "Places of the hash table that were taken when the measured part ended."),
    metric("kernel_text_misses", "count", "Misses of the TLB for instructions in the kernel's text."),
    metric(
        "kernel_tlb_high_water",
        "count",
        "The most entries of both TLBs of a CPU that the kernel's addresses had in a sample, once warm.",
    ),
    metric("kernel_tlb_misses", "count", "Misses of both TLBs at kernel addresses."),
    metric(
        "kernel_tlb_share_percent",
        "%",
        "Entries of both TLBs in use that the kernel's addresses had, in samples.",
    ),
    metric(
        "million_references_per_s",
        "1e6/s",
        "References of recorded programs a second of modelled time, in millions.",
    ),
    metric(
        "misses_per_million_references",
        "count",
        "Misses of both TLBs for each 1,000,000 references of the program.",
    ),
    metric(
        "programs_s",
        "s",
        "Time that programs are charged with: their own instructions and accesses, and what handles TLB misses \
         meanwhile, in which no tick comes.",
    ),
    metric("references", "count", "Instructions, loads and stores of recorded programs."),
    metric("tlb_misses_per_s", "1/s", "Misses of the TLBs for data and for instructions, a second."),
    metric("tlb_misses_total", "count", "Misses of the TLBs for data and for instructions together."),
    metric("wall_s", "s", "Modelled time of the measured part."),
];

/// The file that a program reads, whatever it read when it was recorded.
pub(super) const INPUT: &str = "input";

/// The machine that recorded programs run on, and where what they find is left.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) model: Model,
    pub(super) cell: OutcomeCell,
    clock_mhz: f64,
}

impl Stage {
    pub(super) fn new(testbed: &Testbed, cell: OutcomeCell) -> Self {
        let clock_mhz = testbed.machine.config.cpu.clock_mhz.value as f64;
        Self { model: testbed.model.clone(), cell, clock_mhz }
    }

    /// Whether there is room for so many bytes; if not, that is what the workload failed of.
    pub(super) fn has_room(&self, user: &User<Model>, wanted_bytes: usize) -> bool {
        let room = room_for(user, wanted_bytes);
        let there_is = room.is_ok();
        if let Err(problem) = room {
            self.cell.borrow_mut().failed.get_or_insert(problem);
        }
        there_is
    }

    /// Forks a process that runs a recorded program, with the ends that `open` finds for it in the child.
    pub(super) fn fork_program(
        &self,
        user: &User<Model>,
        recorded: &Arc<RecordedProgram>,
        open: impl FnOnce(&User<Model>) -> Result<Ends, CallError> + 'static,
    ) -> Result<(), CallError> {
        let (model, cell, program) = (self.model.clone(), self.cell.clone(), recorded.clone());
        let child = other_process(cell.clone(), move |user| {
            let ends = open(user)?;
            Replay::new(&model, user, &cell, program, ends).run()
        });
        user.fork(&recorded.program, child).map_err(named("fork"))?;
        Ok(())
    }

    /// Writes files to the disk, and takes all memory that there is for a moment, so that they are nowhere else.
    pub(super) fn push_out<'a>(
        &self,
        user: &User<Model>,
        names: impl Iterator<Item = &'a String>,
    ) -> Result<(), CallError> {
        let mut pages = 0;
        for name in names {
            let file = user.open(name, OpenFlags::READ | OpenFlags::WRITE).map_err(named("open a file"))?;
            user.sync_file(file).map_err(named("write to the disk"))?;
            pages +=
                user.file_size(file).map_err(named("look at a file"))?.div_ceil(PAGE_SIZE as u64) as usize;
            user.close(file).map_err(named("close"))?;
        }
        let all = (user.kernel().vm().free_frames() + pages) * PAGE_SIZE;
        let at = user.map(all, Prot::RW, Inherit::Copy).map_err(named("map memory"))?;
        (0..all).step_by(PAGE_SIZE).for_each(|i| user.store(at + i, &[1]));
        user.unmap(at, all).map_err(named("unmap"))
    }

    /// What is in the hash table, where there is one.
    fn hash_census(&self, user: &User<Model>) -> Option<HashCensus> {
        let frame = RefCell::new((Pfn(u32::MAX), Vec::new()));
        user.kernel().vm().pmaps().hash_census(&|at: Pa| {
            let mut frame = frame.borrow_mut();
            if frame.0 != at.pfn() {
                *frame = (at.pfn(), self.model.frame_bytes(at.pfn()));
            }
            let entry = &frame.1[at.0 as usize % PAGE_SIZE..][..8];
            entry.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
        })
    }

    /// Ends the measured part of programs that made so many references, and leaves what was found.
    pub(super) fn finish(&self, user: &User<Model>, references: u64, watch: Stopwatch) {
        let high_water = self.model.take_max_kernel_entries();
        let census = self.hash_census(user);
        let outcome = &mut self.cell.borrow_mut();
        watch.stop(&self.model, self.clock_mhz, references, outcome);
        // What is moved here are references, not bytes.
        outcome.results.remove("bandwidth_mb_s");
        outcome.results.remove("elapsed_cycles_per_page");
        let Some(measured) = &outcome.measured else { return };
        let h = measured.hardware;
        let (misses, elapsed_us) = ((h.tlb_misses + h.fetch_misses) as f64, outcome.results["elapsed_us"]);
        let hash_misses = measured.counter(PmapCounter::HashMisses);
        let percent = |part: u64, all: u64| if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 };
        let programs: u64 =
            [Cause::User, Cause::Refill, Cause::TlbMiss].map(|cause| measured.cause(cause)).iter().sum();
        let results = [
            ("wall_s", elapsed_us / 1e6),
            ("programs_s", programs as f64 / self.clock_mhz / 1e6),
            ("references", references as f64),
            ("million_references_per_s", references as f64 / elapsed_us),
            ("tlb_misses_total", misses),
            ("tlb_misses_per_s", misses * 1e6 / elapsed_us),
            ("hash_hits_percent", census.map_or(0.0, |_| 100.0 - percent(hash_misses, misses as u64))),
            ("hash_use_percent", census.map_or(0.0, |c| percent(c.valid as u64, c.slots as u64))),
            ("kernel_text_misses", h.kernel_fetch_misses as f64),
            ("hash_misses_per_s", hash_misses as f64 * 1e6 / elapsed_us),
            ("kernel_tlb_misses", h.kernel_misses() as f64),
            ("misses_per_million_references", misses * 1e6 / references as f64),
            ("kernel_tlb_share_percent", percent(h.sampled_kernel_entries, h.sampled_entries)),
            ("kernel_tlb_high_water", high_water as f64),
        ];
        let hash = measured.at_uses(PmapCounter::HashMisses);
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        for (counted, counts) in [
            (Counted::TlbMisses, h.misses_by_use),
            (Counted::HashMisses, hash),
            (Counted::Entries, h.sampled_by_use),
        ] {
            by_use::add(&mut outcome.results, counted, &counts);
        }
    }
}

/// Waits for so many children.
pub(super) fn wait_for(user: &User<Model>, children: usize) -> Result<(), CallError> {
    (0..children).try_for_each(|_| user.wait().map(drop).map_err(named("wait")))
}

/// Opens the file that a program reads.
pub(super) fn with_input(user: &User<Model>) -> Result<Ends, CallError> {
    let input = user.open(INPUT, OpenFlags::READ).map_err(named("open the input"))?;
    Ok(Ends { input: Some(input), ..Ends::default() })
}

/// The names of the programs that are files, each once.
fn programs(all: &[Arc<RecordedProgram>]) -> BTreeSet<&str> {
    all.iter().filter(|r| r.file_bytes() > 0).map(|r| r.program.as_str()).collect()
}

/// Writes the programs' files: the pages that they refer to, and holes between.
pub(super) fn install(user: &User<Model>, all: &[Arc<RecordedProgram>]) -> Result<(), CallError> {
    let buffer = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let mut written: BTreeSet<(&str, u64)> = BTreeSet::new();
    for recorded in all.iter().filter(|r| r.file_bytes() > 0) {
        let file = user.open(&recorded.program, flags).map_err(named("make a program"))?;
        let base = recorded.base().0 >> PAGE_SHIFT;
        let end = base + (recorded.file_bytes() >> PAGE_SHIFT) as u64;
        for page in recorded.pages.range(base..end).map(|page| page - base) {
            if !written.insert((&recorded.program, page)) {
                continue;
            }
            user.store(buffer, &file_page(page));
            user.seek(file, page << PAGE_SHIFT).map_err(named("seek"))?;
            user.write(file, buffer, PAGE_SIZE).map_err(named("write a program"))?;
        }
        user.close(file).map_err(named("close"))?;
    }
    user.unmap(buffer, PAGE_SIZE).map_err(named("unmap"))
}

/// What [`make_file`] writes.
pub(super) fn made_bytes(len_bytes: usize) -> Vec<u8> {
    let pages =
        (0..len_bytes.max(1)).step_by(PAGE_SIZE).flat_map(|at| file_page((at / PAGE_SIZE) as u64 + 7));
    pages.take(len_bytes.max(1)).collect()
}

/// Writes a file of so many bytes.
pub(super) fn make_file(user: &User<Model>, name: &str, len_bytes: usize) -> Result<(), CallError> {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let file = user.open(name, flags).map_err(named("make a file"))?;
    let buffer = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
    for start in (0..len_bytes.max(1)).step_by(PAGE_SIZE) {
        user.store(buffer, &file_page((start / PAGE_SIZE) as u64 + 7));
        let len = (len_bytes.max(1) - start).min(PAGE_SIZE);
        user.write(file, buffer, len).map_err(named("write a file"))?;
    }
    user.unmap(buffer, PAGE_SIZE).map_err(named("unmap"))?;
    user.close(file).map_err(named("close"))
}

/// Removes these files and the programs'.
pub(super) fn remove(
    user: &User<Model>,
    names: &[&str],
    all: &[Arc<RecordedProgram>],
) -> Result<(), CallError> {
    names.iter().copied().chain(programs(all)).try_for_each(|name| user.unlink(name).map_err(named("unlink")))
}
