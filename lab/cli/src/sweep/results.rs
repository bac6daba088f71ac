//! What a sweep leaves: a table in the terminal, and the folder that `reproduce` leaves with `sweep.csv` beside.
//!
//! What can fail: the folder cannot be written; a run broke a law, which is said behind the results.

use super::grid::Grid;
use crate::progress::note;
use crate::terminal::{self, print, table};
use pageferry_lab::output::PendingDir;
use pageferry_lab::record::{Record, RunResult};
use pageferry_lab::run::{RunSpec, records};
use pageferry_lab::{LabError, Registry, Spread, text};
use pageferry_report::{Report as _, wide_csv};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Where results go, if they are kept: the folder's name, and the folder on its way.
pub(super) type Folder<'a> = Option<(&'a Path, PendingDir)>;

/// Writes the results, if they are kept, and prints the table.
pub(super) fn give(
    registry: &Registry,
    grid: &Grid,
    plan: &[RunSpec],
    metric: Option<String>,
    runs: &[RunResult],
    kept: Folder<'_>,
) -> Result<(), LabError> {
    let first = runs.first().and_then(|run| run.record.results.keys().next());
    let metric = metric.or_else(|| first.cloned()).unwrap_or_default();
    let out = match kept {
        None => None,
        Some((out, dir)) => {
            write(registry, grid, plan, runs.to_vec(), &metric, dir)?;
            Some(out)
        }
    };
    print(&shown_table(grid, &metric, runs))?;
    out.map(tell_out);
    Ok(())
}

/// What is said last, and whether all laws held.
pub(super) fn end(grid: &Grid, runs: &[RunResult]) -> Result<ExitCode, LabError> {
    tell_repeats(grid, runs);
    check_laws(runs)
}

/// Refuses the first run that broke a law.
pub(super) fn check_laws(runs: &[RunResult]) -> Result<ExitCode, LabError> {
    match runs.iter().map(|run| &run.record).find(|record| !record.broken().is_empty()) {
        None => Ok(ExitCode::SUCCESS),
        Some(record) => Err(LabError::Law { run: record.title(), broken: record.broken() }),
    }
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

/// Repeats that change nothing are no measure of anything.
fn tell_repeats(grid: &Grid, runs: &[RunResult]) {
    let equal = |two: &[RunResult]| two[0].record.results == two[1].record.results;
    if grid.repeat > 1 && runs.chunks(grid.repeat).all(|same| same.windows(2).all(equal)) {
        note("All repeats gave the same results: here nothing hangs on what they have different.");
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
        head.extend(grid.kernels.iter().map(|kernel| format!(">{} {}", machine.name, kernel.name)));
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
    let range = if grid.repeat > 1 {
        let ends = if grid.repeat < Spread::MIN_FOR_INTERVAL { "their range" } else { "its interval" };
        format!(", median of {} repeats and {ends}", grid.repeat)
    } else {
        String::new()
    };
    let heading = terminal::stdout().strong(&format!("{}: {metric}{range}", grid.experiment.file.title));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    format!("{heading}\n{}", table(&head, &rows))
}

/// The median, and how sure it is if the values differ.
fn shown_cell(mut values: Vec<f64>) -> String {
    let Some(spread) = Spread::of(&mut values) else { return "-".to_owned() };
    let median = text::number(spread.median);
    spread.told().map_or(median.clone(), |(low, high)| format!("{median} ({low} to {high})"))
}
