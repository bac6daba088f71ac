//! `pageferry sweep`: one experiment over the product of machines, kernels, values of settings, and seeds.
//!
//! Its results are a table in the terminal and, with `--out`, the folder that `reproduce` leaves, with `sweep.csv`
//! beside: the runs in wide form. With `--plan` it is not run here but written down in parts, for other hosts.
//!
//! What can fail: what is asked for cannot be run, which is said before the first run; a run fails; a run breaks a law,
//! which is said behind the results.

mod grid;
mod hosts;
mod part;
mod results;
mod values;

use crate::args::{Sweep, SweepCommand};
use crate::kept::{KeptRuns, make, make_kept, tell_others};
use crate::progress::note;
use grid::Grid;
use pageferry_lab::output::{About, PendingDir};
use pageferry_lab::run::{RunSpec, run};
use pageferry_lab::{LabError, text};
use results::{end, give};
use std::process::ExitCode;
use std::time::Instant;

/// Runs a sweep and tells what it gave.
pub(crate) fn sweep(options: &Sweep) -> Result<ExitCode, LabError> {
    match &options.command {
        Some(SweepCommand::Run(options)) => return hosts::run(options),
        Some(SweepCommand::Collect(options)) => return hosts::collect(options),
        None => {}
    }
    let began = Instant::now();
    let registry = crate::registry::registry();
    let (grid, plan) = Grid::new(registry, options)?;
    let metric = grid.metric(registry, options.metric.as_deref())?;
    if let Some(named) = &options.metric {
        check_metric(named, &plan[0])?;
    }
    if let Some(folder) = &options.plan {
        return hosts::plan(&grid, &plan, metric, folder, options.parts as usize);
    }
    let results = match &options.out {
        None => {
            let runs = make(&plan, options.jobs)?;
            give(registry, &grid, &plan, metric, &runs, None)?;
            runs
        }
        Some(out) => {
            let about = About { quick: options.quick, ..About::default() };
            let mut dir = PendingDir::begin(out, about, options.force)?;
            let KeptRuns { runs, others, kept_at } =
                make_kept(&plan, options.jobs, &mut dir, options.resume)?;
            give(registry, &grid, &plan, metric, &runs, Some((out, dir)))?;
            tell_others(others, &kept_at, "sweep");
            runs
        }
    };
    note(&format!("{} runs in {}.", results.len(), text::seconds(began.elapsed().as_secs_f64())));
    end(&grid, &results)
}

/// Refuses a metric that the first run does not give: whether an experiment has it is in no file.
fn check_metric(named: &str, first: &RunSpec) -> Result<(), LabError> {
    let record = run(first)?.record;
    if record.metric(named).is_some() {
        return Ok(());
    }
    let results: Vec<&str> = record.results.keys().map(String::as_str).collect();
    let problem = format!("{} does not measure it; its results are {}", record.title(), results.join(", "));
    Err(LabError::Option { option: format!("--metric {named}"), problem })
}
