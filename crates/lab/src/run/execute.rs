//! Running plans on all cores.
//!
//! Runs are independent and each is single-threaded; only whole runs are spread over host threads. Results come back in
//! the order of the plan, so that nothing depends on which run finished first.

use super::plan::RunSpec;
use super::result::RunResult;
use crate::error::LabError;
use rayon::prelude::*;

/// Watches a plan being executed. Called from several threads.
pub trait Progress: Sync {
    /// A run begins.
    fn started(&self, run: &RunSpec) {
        let _ = run;
    }
    /// A run is over.
    fn finished(&self, run: &RunSpec, result: &Result<RunResult, LabError>) {
        let _ = (run, result);
    }
}

/// Reports nothing.
pub struct Silent;

impl Progress for Silent {}

/// Runs all of `plan` on `jobs` host threads (0: one for each core).
///
/// # Panics
/// When the host gives no threads.
pub fn execute(plan: &[RunSpec], jobs: usize, progress: &dyn Progress) -> Vec<Result<RunResult, LabError>> {
    execute_with(plan, jobs, progress, &super::one_run::run)
}

/// As [`execute`], with another way to run one.
fn execute_with(
    plan: &[RunSpec],
    jobs: usize,
    progress: &dyn Progress,
    run: &(dyn Fn(&RunSpec) -> Result<RunResult, LabError> + Sync),
) -> Vec<Result<RunResult, LabError>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build().expect("the host has threads");
    let results: Vec<_> = pool.install(|| {
        plan.par_iter()
            .with_max_len(1)
            .map(|spec| {
                progress.started(spec);
                let result = run(spec);
                progress.finished(spec, &result);
                result
            })
            .collect()
    });
    assert_eq!(results.len(), plan.len(), "one result for each run");
    results
}
