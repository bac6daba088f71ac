//! The compile of a kernel (PPC paper): for each source a preprocessor, a compiler and an assembler, which run at the
//! same time and hand on what they make through pipes (`gcc -pipe`); `make` forks them and waits.
//!
//! The three are recorded runs of real programs ([`super::recorded`]). Their files are in the page cache: text and data
//! of a program are mapped from its file, the preprocessor reads its source, the assembler writes the object. The
//! measured part is the whole compile; the first source is not counted for the kernel's high-water mark, which is of a
//! machine that is warm.

use super::compile_plots;
use super::process::{Ends, Wire};
use super::recorded::{RecordedProgram, recorded};
use super::stage::{Stage, install, make_file, remove, wait_for};
use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{CallError, OutcomeCell, Stopwatch, first_process, named};
use crate::plot::Plot;
use crate::record::Metric;
use crate::run::{Testbed, Workload};
use pageferry_hal::{PAGE_SIZE, Prot};
use pageferry_kernel::{Fd, OpenFlags, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::sync::Arc;

/// The sources that were compiled, each by three programs; where one was not recorded, the preprocessor of the first.
const SOURCES: [[&str; 3]; 3] = [
    ["names-cpp", "names-cc1", "names-as"],
    ["names-cpp", "runq-cc1", "runq-as"],
    ["names-cpp", "text-cc1", "text-as"],
];

/// What `make` prints for each.
const COMMAND: &str = "gcc -D__KERNEL__ -I/usr/src/linux/include -Wall -O2 -pipe -fno-builtin -ffixed-r2 \
                       -Wno-uninitialized -mmultiple -c -o";

/// What so many sources are compiled by: the recorded ones in turn.
fn traces(sources: usize) -> Result<Vec<[Arc<RecordedProgram>; 3]>, LabError> {
    let read = |names: &[&str; 3]| -> Result<[Arc<RecordedProgram>; 3], LabError> {
        Ok([recorded(names[0])?, recorded(names[1])?, recorded(names[2])?])
    };
    SOURCES.iter().cycle().take(sources).map(read).collect()
}

pub(crate) struct Compile {
    stage: Stage,
    sources: Vec<[Arc<RecordedProgram>; 3]>,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        sources: usize = 1..=1 << 20,
    }
}

impl Workload for Compile {
    const NAME: &'static str = "kernel-compile";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.sources as u64).saturating_mul(1_000_000)
    }

    fn metrics() -> Vec<Metric> {
        super::stage::METRICS.to_vec()
    }

    /// The program of `make`.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let make = Compile { stage: Stage::new(testbed, cell.clone()), sources: traces(p.sources)? };
        Ok(first_process(cell, 0, move |user| make.run(user)))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        // About how the kernel handles misses: nothing where hardware does.
        let by_hardware = of.machines_of(&experiment.name).any(|m| m.config.mmu.refill.is_none());
        if by_hardware || !experiment.file.curves.is_empty() {
            return Vec::new();
        }
        compile_plots::all(of, &experiment.name)
    }
}

impl Compile {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        // The pages that the largest set of three has at once, and the files of all.
        let pages = |set: &[Arc<RecordedProgram>; 3]| set.iter().map(|r| r.pages.len()).sum::<usize>();
        let max = self.sources.iter().map(pages).max().unwrap_or(0);
        if !self.stage.has_room(user, 2 * max * PAGE_SIZE) {
            return Ok(());
        }
        let all: Vec<Arc<RecordedProgram>> = self.sources.iter().flatten().cloned().collect();
        install(user, &all)?;
        let source_bytes = self.sources.iter().map(|set| set[0].reads_bytes).max().unwrap_or(0);
        make_file(user, "source.c", source_bytes as usize)?;
        let watch = Stopwatch::start(&self.stage.model);
        let screen = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
        for (i, set) in self.sources.iter().enumerate() {
            user.store(screen, COMMAND.as_bytes());
            user.print(screen, COMMAND.len()).map_err(named("print"))?;
            self.compile(user, set)?;
            if i == 0 && self.sources.len() > 1 {
                self.stage.model.take_max_kernel_entries();
            }
        }
        let references: u64 = self.sources.iter().flatten().map(|r| r.references).sum();
        self.stage.finish(references, watch);
        remove(user, &["source.c", "object.o"], &all)
    }

    /// One source: three processes at once.
    fn compile(&self, user: &User<Model>, set: &[Arc<RecordedProgram>; 3]) -> Result<(), CallError> {
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
            self.stage.fork_program(user, recorded, move |user| {
                let keep = [ends.input, ends.output];
                close_all(user, all.into_iter().filter(|fd| !keep.contains(&Some(*fd))))?;
                Ok(ends)
            })?;
        }
        close_all(user, all.into_iter())?;
        wait_for(user, set.len())
    }
}

fn close_all(user: &User<Model>, mut fds: impl Iterator<Item = Fd>) -> Result<(), CallError> {
    fds.try_for_each(|fd| user.close(fd).map_err(named("close")))
}
