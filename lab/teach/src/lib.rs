//! Teaching: mechanisms explained step by step beside their counters, what a lesson finds, and scenarios that say what
//! bytes must be seen.
#![forbid(unsafe_code)]

pub mod explain;
pub mod finding;
mod play;
mod scenario;

pub use play::{Outcome, play};
pub use scenario::{Amount, Do, Scenario, ScenarioFile, Step, Value, Variant};
