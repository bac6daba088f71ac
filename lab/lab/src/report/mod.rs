//! What a reproduction leaves behind: the report, the figures, and the numbers.
//!
//! | file | what it is |
//! |---|---|
//! | `report.html` | everything in one page that needs nothing else |
//! | `figures/*.svg` | its figures, each on its own |
//! | `results.json` | records, comparisons and constants; deterministic |
//! | `results.csv` | run, metric, unit, value; deterministic, as are the other tables |
//! | `runs.csv` | the runs: what was run, with which settings |
//! | `published.csv` | results beside published ones |
//! | `crossovers.csv` | from which size, clock, load or speed on each mechanism pays |
//! | `dictionary.csv` | what each metric is |
//! | `host.json` | how long it took here |

mod answer;
mod axis;
mod charts;
mod compile;
mod csv;
mod curves;
mod differences;
mod figure;
mod figures;
mod flip;
mod ispc;
mod looks;
mod message;
mod real_host;
mod reproduction;
mod scale;
mod schemes;
mod svg;
mod then_now;
pub mod trace;
mod view;
mod write;

pub use csv::results as results_csv;
pub use differences::Difference;
pub use reproduction::{Calibrated, Reproduction};
pub use schemes::SchemeRow;
pub use then_now::{ChosenRow, MappingRow, PaysRow};
