//! `pageferry sensitivity`: every constant changed a little, one at a time, and what of the results moves.
//!
//! What can fail: a name or a key that nothing has; a run as it is; the folder of `--out`. A run that is refused with a
//! changed constant is told.

mod shown;

use crate::args::Sensitivity;
use crate::progress::{Runs, note};
use crate::terminal::print;
use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::output::{About, PendingDir};
use pageferry_lab::record::RunResult;
use pageferry_lab::run::{Choices, Journal, RunSpec, TimeLeft, execute_each, matrix_repeated, threads};
use pageferry_lab::sensitivity::{Filter, Maker, is_watched, study};
use pageferry_lab::{LabError, text};
use pageferry_report::sensitivity::{crossovers_csv, effects_csv, tornado, tornado_csv};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Changes constants and tells what moves.
pub(crate) fn sensitivity(options: &Sensitivity) -> Result<ExitCode, LabError> {
    let began = Instant::now();
    let quick = !options.full;
    for machine in &options.machine {
        MachineChoice::find(machine)?;
    }
    for kernel in &options.kernel {
        KernelChoice::find(kernel)?;
    }
    let plan = plan(&options.experiments, Choices { quick, ..Choices::default() })?;
    let about = About { quick, ..About::default() };
    let dir = options.out.as_ref().map(|out| PendingDir::begin(out, about, false)).transpose()?;
    let journal = dir.as_ref().map(|dir| Journal::open(&dir.journal())).transpose()?;
    if quick {
        note("Quick runs; --full makes long ones.");
    }
    let filter = Filter {
        machines: options.machine.clone(),
        kernels: options.kernel.clone(),
        keys: options.key.clone(),
    };
    let mut maker = Runner { jobs: options.jobs, journal, resume: options.resume, made: 0 };
    let found = study(plan, &filter, options.by / 100.0, &mut maker)?;
    let made = maker.made;
    drop(maker);
    if let Some(dir) = dir {
        dir.write("sensitivity.csv", effects_csv(&found).as_bytes())?;
        dir.write("crossovers-range.csv", crossovers_csv(&found).as_bytes())?;
        dir.write("tornado.svg", tornado(&found).as_bytes())?;
        dir.write("tornado.csv", tornado_csv(&found).as_bytes())?;
        dir.commit()?;
    }
    print(&shown::shown(&found))?;
    note(&format!("{made} runs in {}.", text::seconds(began.elapsed().as_secs_f64())));
    Ok(ExitCode::SUCCESS)
}

/// The runs of the experiments of these names, each once; of all that are watched if there are none.
fn plan(wanted: &[String], choices: Choices) -> Result<Vec<RunSpec>, LabError> {
    let registry = crate::registry::registry();
    let mut seen = BTreeSet::new();
    let mut experiments = Vec::new();
    for name in wanted.iter().filter(|name| seen.insert(name.as_str())) {
        let experiment = registry.experiment(name)?;
        if !is_watched(&experiment) {
            let problem = "nothing of it is judged, and it has no crossover: there is nothing to move";
            return Err(LabError::Input { file: name.clone(), problem: problem.to_owned() });
        }
        experiments.push(experiment);
    }
    if wanted.is_empty() {
        experiments = registry.experiments()?.into_iter().filter(is_watched).collect();
    }
    let mut plan = Vec::new();
    for experiment in experiments {
        plan.extend(matrix_repeated(registry, &Arc::new(experiment), choices, 1)?);
    }
    Ok(plan)
}

/// Makes runs with progress, and keeps them in the journal if there is one.
struct Runner {
    jobs: usize,
    journal: Option<Journal>,
    resume: bool,
    made: usize,
}

impl Maker for Runner {
    fn make(&mut self, what: &str, plan: &[RunSpec]) -> Result<Vec<Result<RunResult, LabError>>, LabError> {
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        note(&format!("{} runs {what}", plan.len()));
        let left = TimeLeft::new(plan, &BTreeMap::new(), threads(self.jobs, plan.len()));
        let progress = Runs::new(plan, left);
        let journal = self.journal.as_ref().map(|journal| (journal, self.resume));
        let runs = execute_each(plan, self.jobs, &progress, journal);
        progress.finish();
        self.made += plan.len();
        runs
    }

    fn note(&mut self, text: &str) {
        note(text);
    }
}
