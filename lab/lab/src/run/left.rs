//! How long a plan will still take.
//!
//! Each run is expected to cost what it cost here the last time, or else what its settings let expect. What runs that
//! are finished have cost, beside what was expected of them, says how fast this host is now. The time that is told is
//! never longer than what was told before: where the rest turns out to cost more, it waits.

use super::plan::RunSpec;
use std::collections::BTreeMap;
use std::time::Duration;

/// Host milliseconds of one unit of [`RunSpec::weight`], for runs that were never made here. Only the share of a run in
/// the whole depends on it, and that only beside runs that were.
const MS_OF_WEIGHT: f64 = 0.015;
/// What every run costs at least: a machine is built and a kernel booted.
const MIN_MS: f64 = 40.0;
/// The share of the whole that has to be finished before its speed says anything of the rest.
const ENOUGH: f64 = 0.05;

/// The time left of a plan.
#[derive(Clone, Debug)]
pub struct TimeLeft {
    /// What each run is expected to cost, in milliseconds.
    expected: Vec<f64>,
    jobs: f64,
    /// The sum of what is expected of all runs, and of those that are not finished.
    all: f64,
    rest: f64,
    /// Of the runs that were made: what was expected, and what they took.
    made: (f64, f64),
    told: Option<Duration>,
}

impl TimeLeft {
    /// Of `plan` on `jobs` threads; `last` is what runs took the last time, in milliseconds, by their titles.
    pub fn new(plan: &[RunSpec], last: &BTreeMap<String, f64>, jobs: usize) -> TimeLeft {
        let expected: Vec<f64> = plan.iter().map(|run| expected_ms(run, last)).collect();
        let all = expected.iter().sum();
        TimeLeft { expected, jobs: jobs.max(1) as f64, all, rest: all, made: (0.0, 0.0), told: None }
    }

    /// The share of the plan that is finished, from 0 to 1.
    pub fn done(&self) -> f64 {
        if self.all > 0.0 { (1.0 - self.rest / self.all).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// Run `index` of the plan is finished and took `took`, or nothing where its result was kept.
    pub fn finished(&mut self, index: usize, took: Option<Duration>) {
        self.rest -= self.expected[index];
        if let Some(took) = took {
            self.made.0 += self.expected[index];
            self.made.1 += took.as_secs_f64() * 1e3;
        }
    }

    /// The time left; nothing until so much is finished that it can be told.
    pub fn left(&mut self) -> Option<Duration> {
        let (expected, took) = self.made;
        if expected < ENOUGH * self.all || expected <= 0.0 {
            return None;
        }
        let ms = self.rest.max(0.0) * took / expected / self.jobs;
        let left = Duration::from_secs_f64(ms / 1e3);
        let left = self.told.map_or(left, |told| told.min(left));
        self.told = Some(left);
        Some(left)
    }
}

fn expected_ms(run: &RunSpec, last: &BTreeMap<String, f64>) -> f64 {
    let estimated = || MIN_MS + run.weight() as f64 * MS_OF_WEIGHT;
    last.get(&run.title()).copied().filter(|ms| ms.is_finite() && *ms > 0.0).unwrap_or_else(estimated)
}
