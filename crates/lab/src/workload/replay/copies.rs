//! One recorded program, by itself or as several processes at once, each in an address space of its own.

use super::compile::{finish, install, make_file};
use super::process::{Ends, Replay};
use super::recorded::{Recorded, recorded};
use crate::error::LabError;
use crate::run::plan::RunSpec;
use crate::run::testbed::Testbed;
use crate::workload::outcome::{Failed, OutcomeCell, named};
use crate::workload::process::{first_process, other_process, room_for};
use crate::workload::stopwatch::Stopwatch;
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{OpenFlags, Program, User};
use pageferry_model::Model;
use std::sync::Arc;

/// The file that the program reads, whatever it read when it was recorded.
const INPUT: &str = "input";

struct Copies {
    model: Model,
    cell: OutcomeCell,
    recorded: Arc<Recorded>,
    processes: usize,
    clock_mhz: f64,
}

/// The program of the parent of all.
pub(crate) fn program(
    testbed: &Testbed,
    spec: &RunSpec,
    cell: OutcomeCell,
) -> Result<Program<Model>, LabError> {
    let recorded = recorded(spec.choice("trace"))?;
    let layout = testbed.machine.config.board().layout;
    let within = |page: &u64| {
        let at = pageferry_hal::Va(page << pageferry_hal::PAGE_SHIFT);
        layout.is_user(at, PAGE_SIZE)
    };
    if let Some(page) = recorded.pages.iter().find(|page| !within(page)) {
        let at = page << pageferry_hal::PAGE_SHIFT;
        let (start, end) = (layout.user_start.0, layout.user_end.0);
        return Err(testbed.incompatible(format!(
            "{}: it refers to {at:#x}, expected addresses from {start:#x} to {end:#x}, which are the user's on this machine",
            recorded.name
        )));
    }
    let work = Copies {
        model: testbed.model.clone(),
        cell,
        recorded,
        processes: spec.parameter("processes") as usize,
        clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
    };
    Ok(first_process(work.cell.clone(), 0, move |user| work.run(user)))
}

impl Copies {
    fn run(&self, user: &User<Model>) -> Result<(), Failed> {
        let wanted = self.recorded.pages.len() * PAGE_SIZE * (self.processes + 1);
        if let Err(problem) = room_for(user, wanted) {
            self.cell.borrow_mut().failed.get_or_insert(problem);
            return Ok(());
        }
        install(user, std::slice::from_ref(&self.recorded))?;
        make_file(user, INPUT, self.recorded.reads_bytes as usize)?;
        let watch = Stopwatch::start(user, &self.model);
        for _ in 0..self.processes {
            let (model, cell, recorded) = (self.model.clone(), self.cell.clone(), self.recorded.clone());
            let child = other_process(cell.clone(), move |user| {
                let input = user.open(INPUT, OpenFlags::READ).map_err(named("open the input"))?;
                let ends = Ends { input: Some(input), ..Ends::default() };
                Replay::new(&model, user, &cell, recorded, ends).run()
            });
            user.fork(&self.recorded.program, child).map_err(named("fork"))?;
        }
        for _ in 0..self.processes {
            user.wait().map_err(named("wait"))?;
        }
        let references = self.recorded.references * self.processes as u64;
        finish(user, &self.model, self.clock_mhz, references, watch, &self.cell);
        user.unlink(INPUT).map_err(named("unlink"))?;
        match self.recorded.file_bytes() {
            0 => Ok(()),
            _ => user.unlink(&self.recorded.program).map_err(named("unlink")),
        }
    }
}
