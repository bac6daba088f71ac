//! One recorded program, by itself or as several processes at once, each in an address space of its own.

use super::recorded::{RecordedProgram, recorded};
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

pub(crate) struct Copies {
    stage: Stage,
    recorded: Arc<RecordedProgram>,
    processes: usize,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        processes: usize = 1..=256,
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
        super::stage::METRICS.to_vec()
    }

    /// The program of the parent of all.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let recorded = recorded(&p.trace.0)?;
        let layout = testbed.machine.config.board().layout;
        if let Some(at) = recorded.misfit(&layout) {
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
        let work = Copies { stage: Stage::new(testbed, cell.clone()), recorded, processes: p.processes };
        Ok(first_process(cell, 0, move |user| work.run(user)))
    }
}

impl Copies {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let image = self.recorded.pages.len() * PAGE_SIZE;
        let file = usize::try_from(self.recorded.reads_bytes).unwrap_or(usize::MAX);
        let wanted = image.saturating_mul(self.processes + 1).saturating_add(file);
        if !self.stage.has_room(user, wanted) {
            return Ok(());
        }
        let all = std::slice::from_ref(&self.recorded);
        install(user, all)?;
        make_file(user, INPUT, file)?;
        let watch = Stopwatch::start(&self.stage.model);
        for _ in 0..self.processes {
            self.stage.fork_program(user, &self.recorded, with_input)?;
        }
        wait_for(user, self.processes)?;
        let references = self.recorded.references * self.processes as u64;
        self.stage.finish(references, watch);
        remove(user, &[INPUT], all)
    }
}
