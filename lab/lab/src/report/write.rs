//! The files of a reproduction, written all or none.

use super::reproduction::{Calibrated, Reproduction};
use super::{csv, figures, view};
use crate::error::LabError;
use crate::judge::{Chosen, Comparison, Crossover};
use crate::output::PendingDir;
use crate::record::{Record, RunResult};
use pageferry_sourced::Constant;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

impl Reproduction {
    /// The deterministic numbers as JSON.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Results<'a> {
            format: u32,
            version: &'a str,
            quick: bool,
            seed: u64,
            runs: Vec<&'a Record>,
            comparisons: &'a [Comparison],
            crossovers: &'a [Crossover],
            chosen: &'a [Chosen],
            calibrated: Vec<Calibrated>,
            machines: BTreeMap<&'a str, Vec<Constant>>,
            kernels: BTreeMap<&'a str, Vec<Constant>>,
        }
        pretty(&Results {
            format: 1,
            version: env!("CARGO_PKG_VERSION"),
            quick: self.choices.quick,
            seed: self.choices.seed,
            runs: self.records().collect(),
            comparisons: &self.comparisons,
            crossovers: &self.crossovers,
            chosen: &self.chosen,
            calibrated: self.calibrated(),
            machines: self.machines.iter().map(|m| (m.name.as_str(), m.constants())).collect(),
            kernels: self.kernels.iter().map(|k| (k.name.as_str(), k.constants())).collect(),
        })
    }

    /// What it took on this host, as JSON.
    pub fn host_json(&self) -> String {
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
        pretty(&self.runs.iter().map(row).collect::<Vec<_>>())
    }

    /// The report as one HTML page.
    pub fn html(&self) -> String {
        view::html(self)
    }

    /// Writes all files to `dir`: all of them, or none.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(&self, dir: PendingDir) -> Result<(), LabError> {
        dir.write("report.html", self.html().as_bytes())?;
        for figure in figures::all(self) {
            dir.write(&format!("figures/{}.svg", figure.id), view::standalone(&figure).as_bytes())?;
        }
        dir.write("results.json", self.json().as_bytes())?;
        dir.write("results.csv", csv::results(self.records(), &self.dictionary).as_bytes())?;
        dir.write("runs.csv", csv::runs(self).as_bytes())?;
        dir.write("published.csv", csv::published(&self.comparisons).as_bytes())?;
        dir.write("dictionary.csv", csv::metrics_table(&self.dictionary).as_bytes())?;
        dir.write("crossovers.csv", csv::crossovers(&self.crossovers).as_bytes())?;
        dir.write("host.json", self.host_json().as_bytes())?;
        dir.commit()
    }

    /// As [`Reproduction::write`], from the start.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write_to(&self, dir: &Path) -> Result<(), LabError> {
        self.write(PendingDir::create(dir)?)
    }
}

fn pretty<T: Serialize>(value: &T) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("plain data can be written as JSON");
    text.push('\n');
    text
}
