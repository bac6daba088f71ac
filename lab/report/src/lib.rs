//! Reports: records in, HTML, CSV and SVG out.
//!
//! What is reported is a [`Reproduction`]: records of runs, wherever they come from, and what is judged of them.
//! Figures come from data: the plots of workloads ([`pageferry_lab::plot`]), and the curves that experiment files ask
//! for, and so do the titles: what a title says is found is computed from what is drawn. Nothing here runs a machine.
//!
//! | file | what it is |
//! |---|---|
//! | `report.html` | from where on each mechanism pays, and how much of each paper comes out |
//! | `papers/*.html` | a page for each paper: what comes out, what does not and why, and its experiments |
//! | `real-host.html`, `metal.html` | messages on a real host; the kernel on metal, beside the modelled machine |
//! | `constants.html` | constants, laws and runs |
//! | `figures/*.svg`, `figures/*.csv` | each figure on its own, and its data |
//! | `results.json` | records, comparisons and constants; deterministic |
//! | `results.csv` | run, metric, unit, value; deterministic, as are the other tables |
//! | `runs.csv` | the runs: what was run, with which settings |
//! | `published.csv` | results beside published ones |
//! | `crossovers.csv` | from which size, clock, load or speed on each mechanism pays |
//! | `dictionary.csv` | what each metric is |
//! | `inputs.json` | the experiments, machines and kernels that the records were made with |
//! | `host.json` | how long it took here |
#![forbid(unsafe_code)]

mod answer;
mod charts;
mod csv;
mod curve;
mod curves;
mod data;
pub mod diff;
mod differences;
mod figure;
mod figures;
pub mod folder;
mod headline;
mod looks;
mod metal;
mod pages;
mod papers;
mod pays;
mod real_host;
mod scale;
mod schemes;
pub mod sensitivity;
mod svg;
mod then_now;
pub mod trace;
mod write;

pub use csv::{results as results_csv, wide as wide_csv};
pub use differences::Difference;
pub use pages::Page;
pub use schemes::SchemeRow;
pub use then_now::{ChosenRow, MappingRow, PaysRow};

use pageferry_lab::LabError;
use pageferry_lab::judge::Reproduction;
use pageferry_lab::output::PendingDir;
use std::path::Path;

/// What is made of a [`Reproduction`].
pub trait Report {
    /// The report as HTML pages, the index first.
    fn pages(&self) -> Vec<Page>;

    /// The deterministic numbers as JSON.
    fn json(&self) -> String;

    /// What it took on this host, as JSON.
    fn host_json(&self) -> String;

    /// Writes all files to `dir`: all of them, or none.
    ///
    /// # Errors
    /// When the directory cannot be written.
    fn write(&self, dir: PendingDir) -> Result<(), LabError>;

    /// As [`Report::write`], from the start.
    ///
    /// # Errors
    /// When the directory cannot be written.
    fn write_to(&self, dir: &Path) -> Result<(), LabError> {
        self.write(PendingDir::create(dir)?)
    }

    /// All published statements that do not come out, each with its reason.
    fn differences(&self) -> Vec<Difference>;

    /// From where on each mechanism pays: then, on each machine of the time, and now.
    fn pays_rows(&self) -> Vec<PaysRow>;

    /// What it is worth to map the kernel otherwise than by pages of 4 KB: each run that does, beside the one that does
    /// not.
    fn mapping_rows(&self) -> Vec<MappingRow>;

    /// How near the kernel's choices come to the best fixed ones.
    fn chosen_rows(&self) -> Vec<ChosenRow>;

    /// What each user of short mappings pays under each scheme.
    fn scheme_rows(&self) -> Vec<SchemeRow>;
}

impl Report for Reproduction {
    fn pages(&self) -> Vec<Page> {
        pages::all(self)
    }

    fn json(&self) -> String {
        write::json(self)
    }

    fn host_json(&self) -> String {
        write::host_json(self)
    }

    fn write(&self, dir: PendingDir) -> Result<(), LabError> {
        write::write(self, dir)
    }

    fn differences(&self) -> Vec<Difference> {
        differences::differences(self)
    }

    fn pays_rows(&self) -> Vec<PaysRow> {
        then_now::pays_rows(self)
    }

    fn mapping_rows(&self) -> Vec<MappingRow> {
        then_now::mapping_rows(self)
    }

    fn chosen_rows(&self) -> Vec<ChosenRow> {
        then_now::chosen_rows(self)
    }

    fn scheme_rows(&self) -> Vec<SchemeRow> {
        schemes::scheme_rows(self)
    }
}
