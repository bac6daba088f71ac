//! The files of a reproduction, written all or none.

use super::{csv, figures, folder, pages};
use pageferry_lab::LabError;
use pageferry_lab::judge::{AutoChoice, Comparison, Crossover};
use pageferry_lab::judge::{Calibration, Reproduction};
use pageferry_lab::output::PendingDir;
use pageferry_lab::record::{Record, RunResult};
use pageferry_sourced::Constant;
use serde::Serialize;
use std::collections::BTreeMap;

/// The deterministic numbers as JSON.
pub(super) fn json(all: &Reproduction) -> String {
    #[derive(Serialize)]
    struct Results<'a> {
        format: u32,
        version: &'a str,
        quick: bool,
        seed: u64,
        runs: Vec<&'a Record>,
        comparisons: &'a [Comparison],
        crossovers: &'a [Crossover],
        chosen: &'a [AutoChoice],
        calibrated: Vec<Calibration>,
        machines: BTreeMap<&'a str, Vec<Constant>>,
        kernels: BTreeMap<&'a str, Vec<Constant>>,
    }
    pretty(&Results {
        format: 1,
        version: env!("CARGO_PKG_VERSION"),
        quick: all.quick,
        seed: all.seed,
        runs: all.records().collect(),
        comparisons: &all.comparisons,
        crossovers: &all.crossovers,
        chosen: &all.chosen,
        calibrated: all.calibrated(),
        machines: all.machines.iter().map(|m| (m.name.as_str(), m.constants())).collect(),
        kernels: all.kernels.iter().map(|k| (k.name.as_str(), k.constants())).collect(),
    })
}

/// What it took on this host, as JSON.
pub(super) fn host_json(all: &Reproduction) -> String {
    #[derive(Serialize)]
    struct Row {
        run: String,
        wall_ms: f64,
        measured_ms: f64,
        accesses_per_s: f64,
        lines_streamed_per_s: f64,
        dependent_accesses_per_s: f64,
        instructions_charged_per_s: f64,
    }
    let row = |run: &RunResult| Row {
        run: run.record.title(),
        wall_ms: run.host.wall_ms,
        measured_ms: run.host.measured_ms,
        accesses_per_s: run.host.accesses_per_s,
        lines_streamed_per_s: run.host.lines_streamed_per_s,
        dependent_accesses_per_s: run.host.dependent_accesses_per_s,
        instructions_charged_per_s: run.host.instructions_charged_per_s,
    };
    pretty(&all.runs.iter().map(row).collect::<Vec<_>>())
}

/// Writes all files to `dir`: all of them, or none.
///
/// # Errors
/// When the directory cannot be written.
pub(super) fn write(all: &Reproduction, dir: PendingDir) -> Result<(), LabError> {
    for page in pages::all(all) {
        dir.write(&page.path, page.html.as_bytes())?;
    }
    for figure in figures::all(all) {
        dir.write(&format!("figures/{}.svg", figure.id), pages::standalone(all, &figure).as_bytes())?;
        dir.write(&format!("figures/{}.csv", figure.id), csv::figure(&figure.data).as_bytes())?;
    }
    dir.write("results.json", json(all).as_bytes())?;
    dir.write("results.csv", csv::results(all.records(), &all.dictionary).as_bytes())?;
    dir.write("runs.csv", csv::runs(all).as_bytes())?;
    dir.write("published.csv", csv::published(&all.comparisons).as_bytes())?;
    dir.write("dictionary.csv", csv::metrics_table(&all.dictionary).as_bytes())?;
    dir.write("crossovers.csv", csv::crossovers(&all.crossovers).as_bytes())?;
    dir.write(folder::INPUTS, folder::inputs(all).as_bytes())?;
    dir.write("host.json", host_json(all).as_bytes())?;
    dir.commit()
}

fn pretty<T: Serialize>(value: &T) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("plain data can be written as JSON");
    text.push('\n');
    text
}
