//! Judgement: results beside what is published, by the rules of their experiments; and from which size a mechanism
//! pays.
//!
//! Judged are the records of runs, whatever made them: nothing here runs a machine.

mod case;
mod compare;
mod coverage;
mod crossover;
mod quoted;
mod reproduction;
mod shape;

pub use case::TOLERANCE;
pub use compare::{Comparison, Repeats, Standing, Statement, compare, statements};
pub use coverage::Coverage;
pub use crossover::{AutoChoice, Crossover, NOW, SHARE_OF_BEST, chosen, crossovers, points, spreads};
pub use pageferry_costs::Pays;
pub use quoted::WrongQuote;
pub use reproduction::{Calibration, Finding, Records, Reproduction};
pub use shape::{ShapeCheck, greatest_fall};
