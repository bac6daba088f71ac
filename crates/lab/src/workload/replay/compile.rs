//! The compile of a kernel (PPC paper): for each source a preprocessor, a compiler and an assembler, which run at the same time
//! and hand on what they make through pipes (`gcc -pipe`); `make` forks them and waits.
//!
//! The three are recorded runs of real programs ([`super::recorded`]). Their files are in the page cache: text and data of a
//! program are mapped from its file, the preprocessor reads its source, the assembler writes the object. The measured part is
//! the whole compile; the first source is not counted for the kernel's high-water mark, which is of a machine that is warm.

use super::process::{Ends, Replay, Wire};
use super::recorded::{Recorded, recorded};
use super::shadow::file_page;
use crate::error::LabError;
use crate::run::plan::RunSpec;
use crate::run::testbed::Testbed;
use crate::workload::outcome::{Failed, OutcomeCell, named};
use crate::workload::process::{first_process, other_process, room_for};
use crate::workload::stopwatch::Stopwatch;
use pageferry_hal::{Counter, PAGE_SHIFT, PAGE_SIZE, Prot};
use pageferry_kernel::{Fd, OpenFlags, Program, User};
use pageferry_model::Model;
use pageferry_vm::Inherit;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The sources that were compiled, each by three programs; where one was not recorded, the preprocessor of the first.
const SOURCES: [[&str; 3]; 3] = [
    ["names-cpp", "names-cc1", "names-as"],
    ["names-cpp", "runq-cc1", "runq-as"],
    ["names-cpp", "text-cc1", "text-as"],
];

/// What `make` prints for each.
const COMMAND: &str = "gcc -D__KERNEL__ -I/usr/src/linux/include -Wall -O2 -pipe -fno-builtin -ffixed-r2 -Wno-uninitialized -mmultiple -c -o";

/// The sources that `quick` leaves: the whole of one.
pub(crate) fn traces(sources: usize) -> Result<Vec<[Arc<Recorded>; 3]>, LabError> {
    let read = |names: &[&str; 3]| -> Result<[Arc<Recorded>; 3], LabError> {
        Ok([recorded(names[0])?, recorded(names[1])?, recorded(names[2])?])
    };
    SOURCES.iter().cycle().take(sources).map(read).collect()
}

#[derive(Clone)]
struct Compile {
    model: Model,
    cell: OutcomeCell,
    sources: Arc<Vec<[Arc<Recorded>; 3]>>,
    clock_mhz: f64,
}

/// The program of `make`.
pub(crate) fn program(
    testbed: &Testbed,
    spec: &RunSpec,
    cell: OutcomeCell,
) -> Result<Program<Model>, LabError> {
    let make = Compile {
        model: testbed.model.clone(),
        cell,
        sources: Arc::new(traces(spec.parameter("sources") as usize)?),
        clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
    };
    Ok(first_process(make.cell.clone(), 0, move |user| make.run(user)))
}

impl Compile {
    fn run(&self, user: &User<Model>) -> Result<(), Failed> {
        // The pages that the largest set of three has at once, and the files of all.
        let pages = |set: &[Arc<Recorded>; 3]| set.iter().map(|r| r.pages.len()).sum::<usize>();
        let most = self.sources.iter().map(pages).max().unwrap_or(0);
        if let Err(problem) = room_for(user, 2 * most * PAGE_SIZE) {
            self.cell.borrow_mut().failed.get_or_insert(problem);
            return Ok(());
        }
        let all: Vec<Arc<Recorded>> = self.sources.iter().flatten().cloned().collect();
        install(user, &all)?;
        let source_bytes = self.sources.iter().map(|set| set[0].reads_bytes).max().unwrap_or(0);
        make_file(user, "source.c", source_bytes as usize)?;
        let watch = Stopwatch::start(user, &self.model);
        let screen = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
        for (i, set) in self.sources.iter().enumerate() {
            user.store(screen, COMMAND.as_bytes());
            user.print(screen, COMMAND.len()).map_err(named("print"))?;
            self.compile(user, set)?;
            if i == 0 && self.sources.len() > 1 {
                self.model.take_most_kernel_entries();
            }
        }
        let references: u64 = self.sources.iter().flatten().map(|r| r.references).sum();
        finish(user, &self.model, self.clock_mhz, references, watch, &self.cell);
        for name in ["source.c", "object.o"].into_iter().chain(programs(&all)) {
            user.unlink(name).map_err(named("unlink"))?;
        }
        Ok(())
    }

    /// One source: three processes at once.
    fn compile(&self, user: &User<Model>, set: &[Arc<Recorded>; 3]) -> Result<(), Failed> {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let source = user.open("source.c", OpenFlags::READ).map_err(named("open the source"))?;
        let object = user.open("object.o", flags).map_err(named("open the object"))?;
        let (from_cpp, to_cc1) = user.pipe().map_err(named("pipe"))?;
        let (from_cc1, to_as) = user.pipe().map_err(named("pipe"))?;
        let (first, second) = (Wire::default(), Wire::default());
        let all = [source, object, from_cpp, to_cc1, from_cc1, to_as];
        let ends = [
            Ends {
                input: Some(source),
                output: Some(to_cc1),
                input_wire: None,
                output_wire: Some(first.clone()),
            },
            Ends {
                input: Some(from_cpp),
                output: Some(to_as),
                input_wire: Some(first),
                output_wire: Some(second.clone()),
            },
            Ends { input: Some(from_cc1), output: Some(object), input_wire: Some(second), output_wire: None },
        ];
        for (recorded, ends) in set.iter().zip(ends) {
            let (model, cell, recorded) = (self.model.clone(), self.cell.clone(), recorded.clone());
            let name = recorded.program.clone();
            let child = other_process(cell.clone(), move |user| {
                let keep = [ends.input, ends.output];
                close_all(user, all.into_iter().filter(|fd| !keep.contains(&Some(*fd))))?;
                Replay::new(&model, user, &cell, recorded, ends).run()
            });
            user.fork(&name, child).map_err(named("fork"))?;
        }
        close_all(user, all.into_iter())?;
        for _ in set {
            user.wait().map_err(named("wait"))?;
        }
        Ok(())
    }
}

fn close_all(user: &User<Model>, mut fds: impl Iterator<Item = Fd>) -> Result<(), Failed> {
    fds.try_for_each(|fd| user.close(fd).map_err(named("close")))
}

fn programs(all: &[Arc<Recorded>]) -> impl Iterator<Item = &str> {
    let names: BTreeSet<&str> =
        all.iter().filter(|r| r.file_bytes() > 0).map(|r| r.program.as_str()).collect();
    names.into_iter()
}

/// Writes the programs' files: the pages that they refer to, and holes between.
pub(super) fn install(user: &User<Model>, all: &[Arc<Recorded>]) -> Result<(), Failed> {
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

/// Writes a file of so many bytes.
pub(super) fn make_file(user: &User<Model>, name: &str, len_bytes: usize) -> Result<(), Failed> {
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

/// Ends the measured part of programs that made so many references, and leaves what was found.
pub(super) fn finish(
    user: &User<Model>,
    model: &Model,
    clock_mhz: f64,
    references: u64,
    watch: Stopwatch,
    cell: &OutcomeCell,
) {
    let high_water = model.take_most_kernel_entries();
    let outcome = &mut cell.borrow_mut();
    watch.stop(user, model, clock_mhz, references, outcome);
    // What is moved here are references, not bytes.
    outcome.results.remove("bandwidth_mb_s");
    outcome.results.remove("elapsed_cycles_per_page");
    let Some(measured) = &outcome.measured else { return };
    let h = measured.hardware;
    let (misses, elapsed_us) = ((h.tlb_misses + h.fetch_misses) as f64, outcome.results["elapsed_us"]);
    let percent = |part: u64, all: u64| if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 };
    let results = [
        ("wall_s", elapsed_us / 1e6),
        ("references", references as f64),
        ("million_references_per_s", references as f64 / elapsed_us),
        ("tlb_misses_total", misses),
        ("tlb_misses_per_s", misses * 1e6 / elapsed_us),
        ("hash_misses_per_s", measured.counter(Counter::HashMisses) as f64 * 1e6 / elapsed_us),
        ("kernel_tlb_misses", h.kernel_misses as f64),
        ("misses_per_million_references", misses * 1e6 / references as f64),
        ("kernel_tlb_share_percent", percent(h.sampled_kernel_entries, h.sampled_entries)),
        ("kernel_tlb_high_water", high_water as f64),
    ];
    outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
}
