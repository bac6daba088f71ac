//! Running plans on all cores.
//!
//! Runs are independent and each is single-threaded; only whole runs are spread over host threads. Results come back in
//! the order of the plan, so that nothing depends on which run finished first.

use super::journal::Journal;
use super::plan::RunSpec;
use crate::error::LabError;
use crate::record::RunResult;
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// The most host threads.
pub const MAX_JOBS: usize = 1024;

/// Watches a plan being executed. Called from several threads.
pub trait Progress: Sync {
    /// A run begins.
    fn started(&self, run: &RunSpec) {
        let _ = run;
    }
    /// Run `index` of the plan is over; it took `took`, or nothing where its result was kept.
    fn finished(
        &self,
        index: usize,
        run: &RunSpec,
        result: &Result<RunResult, LabError>,
        took: Option<Duration>,
    ) {
        let _ = (index, run, result, took);
    }
}

/// Reports nothing.
pub struct Silent;

impl Progress for Silent {}

/// How many host threads `jobs` means for `runs` runs; 0 means one for each core.
pub fn threads(jobs: usize, runs: usize) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if jobs == 0 { cores() } else { jobs };
    wanted.min(runs).max(1)
}

/// Runs all of `plan` on `jobs` host threads (0: one for each core).
///
/// # Errors
/// The first run of the plan that failed; or the host does not give so many threads.
pub fn execute(plan: &[RunSpec], jobs: usize, progress: &dyn Progress) -> Result<Vec<RunResult>, LabError> {
    let runs = execute_with(plan, jobs, progress, &|spec| Ok((super::one_run::run(spec)?, false)))?;
    runs.into_iter().collect()
}

/// As [`execute`]. Every run is added to `journal`; those that it had are not made again if `resume` says so.
///
/// # Errors
/// As [`execute`]; or the journal cannot be written.
pub fn execute_kept(
    plan: &[RunSpec],
    jobs: usize,
    progress: &dyn Progress,
    journal: &Journal,
    resume: bool,
) -> Result<Vec<RunResult>, LabError> {
    let runs = execute_with(plan, jobs, progress, &|spec| keep(spec, journal, resume))?;
    runs.into_iter().collect()
}

/// As [`execute`], of runs that may be refused, each by itself; with a journal as [`execute_kept`].
///
/// # Errors
/// The host does not give so many threads.
pub fn execute_each(
    plan: &[RunSpec],
    jobs: usize,
    progress: &dyn Progress,
    journal: Option<(&Journal, bool)>,
) -> Result<Vec<Result<RunResult, LabError>>, LabError> {
    execute_with(plan, jobs, progress, &|spec| match journal {
        Some((journal, resume)) => keep(spec, journal, resume),
        None => Ok((super::one_run::run(spec)?, false)),
    })
}

/// Makes a run and adds it to `journal`, or finds it there.
fn keep(spec: &RunSpec, journal: &Journal, resume: bool) -> Result<(RunResult, bool), LabError> {
    if let Some(kept) = journal.find(spec).filter(|_| resume) {
        return Ok((kept.clone(), true));
    }
    let run = super::one_run::run(spec)?;
    journal.add(spec, &run)?;
    Ok((run, false))
}

/// Makes a run, or says that its result was kept.
type Make<'a> = dyn Fn(&RunSpec) -> Result<(RunResult, bool), LabError> + Sync + 'a;

/// What each run of `plan` gave, with a way to make a run.
fn execute_with(
    plan: &[RunSpec],
    jobs: usize,
    progress: &dyn Progress,
    run: &Make<'_>,
) -> Result<Vec<Result<RunResult, LabError>>, LabError> {
    let threads = threads(jobs, plan.len());
    if threads > MAX_JOBS {
        return Err(LabError::Threads { threads, problem: format!("expected at most {MAX_JOBS}") });
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| LabError::Threads { threads, problem: e.to_string() })?;
    let results: Vec<_> = pool.install(|| {
        plan.par_iter()
            .enumerate()
            .with_max_len(1)
            .map(|(index, spec)| {
                progress.started(spec);
                let began = Instant::now();
                let result = run(spec);
                let kept = result.as_ref().is_ok_and(|(_, kept)| *kept);
                let result = result.map(|(result, _)| result);
                progress.finished(index, spec, &result, (!kept).then(|| began.elapsed()));
                result
            })
            .collect()
    });
    assert_eq!(results.len(), plan.len(), "one result for each run");
    Ok(results)
}
