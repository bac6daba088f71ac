//! `pageferry sweep`: one experiment over the product of machines, kernels, values of settings, and seeds.
//!
//! Its results are a table in the terminal and, with `--out`, the folder that `reproduce` leaves, with `sweep.csv`
//! beside: the runs in wide form.
//!
//! What can fail: what is asked for cannot be run, which is said before the first run; a run fails; a run breaks a law,
//! which is said behind the results.

mod grid;
mod values;

use crate::args::Sweep;
use crate::kept::{KeptRuns, make_kept, tell_others};
use crate::progress::{Runs, note};
use crate::terminal::{self, print, table};
use grid::Grid;
use pageferry_lab::output::{About, PendingDir};
use pageferry_lab::record::{Record, RunResult};
use pageferry_lab::run::{RunSpec, TimeLeft, execute, records, run, threads};
use pageferry_lab::{LabError, Registry, text};
use pageferry_report::{Report as _, wide_csv};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Runs a sweep and tells what it gave.
pub(crate) fn sweep(options: &Sweep) -> Result<ExitCode, LabError> {
    let began = Instant::now();
    let registry = Registry::standard();
    let (grid, plan) = Grid::new(&registry, options)?;
    let metric = grid.metric(&registry, options.metric.as_deref())?;
    if let Some(named) = &options.metric {
        check_metric(named, &plan[0])?;
    }
    let results = match &options.out {
        None => {
            let progress =
                Runs::new(&plan, TimeLeft::new(&plan, &BTreeMap::new(), threads(options.jobs, plan.len())));
            let results = execute(&plan, options.jobs, &progress);
            progress.finish();
            let results = results?;
            let shown = metric.or_else(|| first_result(&results)).unwrap_or_default();
            print(&shown_table(&grid, &shown, &results))?;
            results
        }
        Some(out) => {
            let about = About { quick: options.quick, ..About::default() };
            let mut dir = PendingDir::begin(out, about, options.force)?;
            let KeptRuns { runs, others, kept_at } =
                make_kept(&plan, options.jobs, &mut dir, options.resume)?;
            let shown = metric.or_else(|| first_result(&runs)).unwrap_or_default();
            write(&registry, &grid, &plan, runs.clone(), &shown, dir)?;
            print(&shown_table(&grid, &shown, &runs))?;
            tell_out(out);
            tell_others(others, &kept_at, "sweep");
            runs
        }
    };
    note(&format!("{} runs in {}.", results.len(), text::seconds(began.elapsed().as_secs_f64())));
    tell_repeats(&grid, &results);
    match results.iter().map(|run| &run.record).find(|record| !record.broken().is_empty()) {
        None => Ok(ExitCode::SUCCESS),
        Some(record) => Err(LabError::Law { run: record.title(), broken: record.broken() }),
    }
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

fn first_result(runs: &[RunResult]) -> Option<String> {
    runs.first()?.record.results.keys().next().cloned()
}

/// Writes the folder.
fn write(
    registry: &Registry,
    grid: &Grid,
    plan: &[RunSpec],
    runs: Vec<RunResult>,
    metric: &str,
    dir: PendingDir,
) -> Result<(), LabError> {
    let mut all = records(plan, runs, grid.choices(), registry.dictionary());
    all.experiments = vec![Arc::new(grid.as_experiment(metric)?)];
    let each: Vec<&Record> = all.records().collect();
    dir.write("sweep.csv", wide_csv(&each, &grid.columns()).as_bytes())?;
    registry.reproduction(all)?.write(dir)
}

fn tell_out(out: &Path) {
    let at = |name: &str| out.join(name).display().to_string();
    note(&format!(
        "\nA line for each run: {}. The report, with curves: {}",
        at("sweep.csv"),
        at("report.html")
    ));
}

/// Seeds that change nothing are no measure of anything.
fn tell_repeats(grid: &Grid, runs: &[RunResult]) {
    let equal = |two: &[RunResult]| two[0].record.results == two[1].record.results;
    if grid.repeat > 1 && runs.chunks(grid.repeat).all(|same| same.windows(2).all(equal)) {
        note("All seeds gave the same results: here a seed decides the bytes of the payload, and no time.");
    }
}

/// The table: a row for each combination of values, a column for each machine under each kernel.
fn shown_table(grid: &Grid, metric: &str, runs: &[RunResult]) -> String {
    let records: Vec<&Record> = runs.iter().map(|run| &run.record).collect();
    let mut head: Vec<String> = grid.vary.iter().map(|of| format!(">{}", of.key)).collect();
    if head.is_empty() {
        head.push("experiment".to_owned());
    }
    for machine in &grid.machines {
        head.extend(grid.kernels.iter().map(|kernel| format!(">{machine} {kernel}")));
    }
    let row = |(n, values): (usize, &Vec<String>)| {
        let mut row: Vec<String> =
            grid.vary.iter().zip(values).map(|(of, value)| grid.shown(&of.key, value)).collect();
        if row.is_empty() {
            row.push(grid.experiment.name.clone());
        }
        for machine in 0..grid.machines.len() {
            row.extend(
                (0..grid.kernels.len())
                    .map(|kernel| shown_cell(grid.cell(&records, (machine, kernel, n), metric))),
            );
        }
        row
    };
    let rows: Vec<Vec<String>> = grid.combinations().iter().enumerate().map(row).collect();
    let range =
        if grid.repeat > 1 { format!(", median of {} seeds and range", grid.repeat) } else { String::new() };
    let heading = terminal::stdout().strong(&format!("{}: {metric}{range}", grid.experiment.file.title));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    format!("{heading}\n{}", table(&head, &rows))
}

/// The median, and from where to where the values go if they differ.
fn shown_cell(mut values: Vec<f64>) -> String {
    if values.is_empty() {
        return "-".to_owned();
    }
    let median = text::number(text::median(&mut values));
    let (min, max) = (values[0], values[values.len() - 1]);
    if min == max { median } else { format!("{median} ({} to {})", text::number(min), text::number(max)) }
}
