//! A plan that is made with a folder for its results: finished runs are kept beside it as they come, and gone on with.
//!
//! What can fail: the journal cannot be read or written; a run cannot be made.

use crate::progress::{Runs, note};
use pageferry_lab::LabError;
use pageferry_lab::output::PendingDir;
use pageferry_lab::record::RunResult;
use pageferry_lab::run::{Journal, RunSpec, TimeLeft, execute, execute_kept, threads};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a plan gave, and what is kept besides.
pub(crate) struct KeptRuns {
    pub(crate) runs: Vec<RunResult>,
    /// Finished runs in the journal that the plan does not have.
    pub(crate) others: usize,
    /// The journal.
    pub(crate) kept_at: PathBuf,
}

/// Makes the runs of `plan`, and keeps none.
pub(crate) fn make(plan: &[RunSpec], jobs: usize) -> Result<Vec<RunResult>, LabError> {
    let left = TimeLeft::new(plan, &BTreeMap::new(), threads(jobs, plan.len()));
    let progress = Runs::new(plan, left);
    let results = execute(plan, jobs, &progress);
    progress.finish();
    results
}

/// Makes the runs of `plan`; with `resume`, only those that the journal of `dir` does not have.
pub(crate) fn make_kept(
    plan: &[RunSpec],
    jobs: usize,
    dir: &mut PendingDir,
    resume: bool,
) -> Result<KeptRuns, LabError> {
    let kept_at = dir.journal();
    let journal = Journal::open(&kept_at)?;
    let kept = plan.iter().filter(|run| journal.find(run).is_some()).count();
    match (kept, resume) {
        (0, false) => {}
        (0, true) => note("There is no finished run to go on with: all are made."),
        (kept, true) => note(&format!("{kept} of {} runs are finished.", plan.len())),
        (kept, false) => note(&format!(
            "{kept} of {} runs are kept from one that was interrupted: `--resume` goes on with them. All are made \
             again.",
            plan.len()
        )),
    }
    let last = dir.before().filter(|before| before.quick == dir.about.quick);
    let last = last.map(|before| before.wall_ms.clone()).unwrap_or_default();
    let progress = Runs::new(plan, TimeLeft::new(plan, &last, threads(jobs, plan.len())));
    let results = execute_kept(plan, jobs, &progress, &journal, resume);
    progress.finish();
    let runs = results?;
    dir.about.wall_ms = plan.iter().zip(&runs).map(|(spec, run)| (spec.title(), run.host.wall_ms)).collect();
    let (others, rest) = journal.rest(plan);
    dir.rest = rest;
    Ok(KeptRuns { runs, others, kept_at })
}

/// Says that finished runs stay which this `command` had no use for.
pub(crate) fn tell_others(others: usize, kept_at: &Path, command: &str) {
    if others > 0 {
        note(&format!(
            "{others} other finished runs are kept in {}: a `{command} --resume` that has them goes on with them.",
            kept_at.display()
        ));
    }
}
