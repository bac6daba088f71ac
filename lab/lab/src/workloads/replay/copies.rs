//! One recorded program, by itself or as several processes, each in an address space of its own; or several that
//! differ: all at once, or one after another, which shows what it costs that they are at once.

use super::recorded::{RecordedProgram, all_recorded};
use super::stage::{INPUT, Stage, install, make_file, remove, wait_for, with_input};
use crate::error::LabError;
use crate::files::WordOrFile;
use crate::kit::{CallError, OutcomeCell, Stopwatch, first_process};
use crate::record::Metric;
use crate::run::{Testbed, Workload};
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Program, User};
use pageferry_model::{MachineConfig, Model};
use std::sync::Arc;

/// The trace that stands for several: programs that need many entries each, and in this order.
const MIXED: &str = "mixed";
const IN_MIX: [&str; 8] = [
    "pe-cc1",
    "getversion-cpp",
    "percent-cc1",
    "getversion-cc1",
    "build-ld",
    "percent-cpp",
    "runq-cc1",
    "pe-as",
];

pub(crate) struct Copies {
    stage: Stage,
    /// What each process runs.
    processes: Vec<Arc<RecordedProgram>>,
}

crate::choice! {
    /// When the processes run.
    pub(crate) enum Order { Together = "together", InTurn = "in-turn" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        processes: usize = 1..=256,
        order: Order,
        /// A recording, by its name or its file.
        trace: WordOrFile,
    }
}

impl Workload for Copies {
    const NAME: &'static str = "replay";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.processes as u64).saturating_mul(1_000_000)
    }

    fn metrics() -> Vec<Metric> {
        super::stage::metrics()
    }

    /// The program of the parent of all.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let names = if p.trace.0 == MIXED { &IN_MIX[..] } else { &[p.trace.0.as_str()][..] };
        let each: Vec<&str> = names.iter().copied().cycle().take(p.processes).collect();
        let processes = all_recorded(&each)?;
        let layout = testbed.machine.config.board().layout;
        for recorded in processes.iter().take(names.len()) {
            let Some(at) = recorded.misfit(&layout) else { continue };
            let (at, start, end) = (at.0, layout.user_start.0, layout.user_end.0);
            let fitting = recorded.machines_that_fit();
            let fitting = if fitting.is_empty() {
                "no built-in machine has all of its addresses".to_owned()
            } else {
                format!("it fits {}", fitting.join(", "))
            };
            return Err(testbed.incompatible(format!(
                "{}: it refers to {at:#x}, expected addresses from {start:#x} to {end:#x}, which are the user's on \
                 this machine; {fitting}",
                recorded.name
            )));
        }
        let work = Copies { stage: Stage::new(testbed, cell.clone()), processes };
        Ok(first_process(cell, 0, move |user| work.run(user, p.order)))
    }
}

impl Copies {
    fn run(&self, user: &User<Model>, order: Order) -> Result<(), CallError> {
        let image = |recorded: &Arc<RecordedProgram>| recorded.pages.len() * PAGE_SIZE;
        let images = self.processes.iter().map(image).sum::<usize>();
        let largest = self.processes.iter().map(image).max().unwrap_or(0);
        let file = self.processes.iter().map(|r| r.reads_bytes).max().unwrap_or(0);
        let file = usize::try_from(file).unwrap_or(usize::MAX);
        let wanted = images.saturating_add(largest).saturating_add(file);
        if !self.stage.has_room(user, wanted) {
            return Ok(());
        }
        install(user, &self.processes)?;
        make_file(user, INPUT, file)?;
        let watch = Stopwatch::start(&self.stage.model);
        for recorded in &self.processes {
            self.stage.fork_program(user, recorded, with_input)?;
            if order == Order::InTurn {
                wait_for(user, 1)?;
            }
        }
        if order == Order::Together {
            wait_for(user, self.processes.len())?;
        }
        let references = self.processes.iter().map(|recorded| recorded.references).sum();
        self.stage.finish(user, references, watch);
        remove(user, &[INPUT], &self.processes)
    }
}
