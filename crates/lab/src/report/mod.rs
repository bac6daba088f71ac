//! What a reproduction leaves behind: the report, the figures, and the numbers.
//!
//! | file | what it is |
//! |---|---|
//! | `report.html` | everything in one page that needs nothing else |
//! | `figures/*.svg` | its figures, each on its own |
//! | `results.json` | records, comparisons and constants; deterministic |
//! | `results.csv` | a row for each run and metric, parameters as columns; deterministic |
//! | `crossovers.csv` | from which size each mechanism pays; deterministic |
//! | `host.json` | how long it took here |

mod charts;
mod csv;
mod curves;
mod figure;
mod figures;
pub mod output;
mod reproduction;
mod svg;
mod then_now;
pub mod trace;
mod view;
mod write;

pub use csv::csv;
pub use reproduction::{Calibrated, Reproduction};
pub use then_now::{ChosenRow, PaysRow};
