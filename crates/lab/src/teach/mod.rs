//! Teaching: mechanisms explained step by step beside their counters, and scenarios that say what bytes must be seen.

pub mod explain;
mod play;
mod scenario;

pub use play::{Outcome, play};
pub use scenario::{Amount, Do, Scenario, ScenarioFile, Step, Value, Variant};
