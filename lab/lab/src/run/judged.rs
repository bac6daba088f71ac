//! From what a plan gave to what is judged of it.

use super::choices::Choices;
use super::plan::RunSpec;
use super::registry::Registry;
use crate::error::LabError;
use crate::judge::{Records, Reproduction};
use crate::record::{Entry, RunResult};

/// What `plan` gave; `dictionary` says what the metrics are.
///
/// # Panics
/// When there is not one result for each run of the plan.
pub fn records(plan: &[RunSpec], runs: Vec<RunResult>, choices: Choices, dictionary: Vec<Entry>) -> Records {
    assert_eq!(plan.len(), runs.len(), "a result for each run");
    let Choices { quick, seed, .. } = choices;
    let mut all = Records { quick, seed, runs, dictionary, ..Records::default() };
    for spec in plan {
        if all.experiments.iter().all(|e| e.name != spec.experiment.name) {
            all.experiments.push(spec.experiment.clone());
        }
        if all.machines.iter().all(|m| m.name != spec.machine.name) {
            all.machines.push(spec.machine.clone());
        }
        if all.kernels.iter().all(|k| k.name != spec.kernel.name) {
            all.kernels.push(spec.kernel.clone());
        }
    }
    all.configurations = RunSpec::configurations(plan);
    all
}

impl Registry {
    /// What `plan` gave, judged and drawn.
    ///
    /// # Errors
    /// As [`Registry::reproduction`].
    ///
    /// # Panics
    /// When there is not one result for each run of the plan.
    pub fn judged(
        &self,
        plan: &[RunSpec],
        runs: Vec<RunResult>,
        choices: Choices,
    ) -> Result<Reproduction, LabError> {
        self.reproduction(records(plan, runs, choices, self.dictionary()))
    }
}
