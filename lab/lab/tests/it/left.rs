//! The time that is told to be left while runs are made.

use pageferry_lab::run::{Choices, Registry, RunSpec, TimeLeft, matrix};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn plan() -> Vec<RunSpec> {
    let quick = Choices { quick: true, ..Choices::default() };
    let registry = Registry::standard();
    let all = registry.experiments().expect("embedded").into_iter();
    all.flat_map(|e| matrix(&registry, &Arc::new(e), quick).expect("good")).collect()
}

/// What is told after each run of `plan`, when each costs what `ms` says, and how long was really left.
fn told(left: &mut TimeLeft, ms: &[f64]) -> Vec<(Duration, Duration)> {
    let mut rest: f64 = ms.iter().sum();
    let mut all = Vec::new();
    for (index, &ms) in ms.iter().enumerate() {
        left.finished(index, Some(Duration::from_secs_f64(ms / 1e3)));
        rest -= ms;
        all.extend(left.left().map(|told| (told, Duration::from_secs_f64(rest.max(0.0) / 1e3))));
    }
    all
}

#[test]
fn the_time_left_never_rises() {
    let plan = plan();
    // Costs that have nothing to do with what is expected: the later, the longer.
    let ms: Vec<f64> = (0..plan.len()).map(|i| 1.0 + (i * i) as f64).collect();
    let told = told(&mut TimeLeft::new(&plan, &BTreeMap::new(), 1), &ms);
    assert!(told.len() > plan.len() / 2 && told.is_sorted_by(|a, b| a.0 >= b.0));
}

#[test]
fn what_runs_took_the_last_time_tells_what_they_take_now() {
    let plan = plan();
    let ms: Vec<f64> = (0..plan.len()).map(|i| 1.0 + (i * 7919 % 1000) as f64).collect();
    let last = plan.iter().zip(&ms).map(|(run, ms)| (run.title(), *ms)).collect();
    // The host is three times slower now.
    let now: Vec<f64> = ms.iter().map(|ms| 3.0 * ms).collect();
    for (told, real) in told(&mut TimeLeft::new(&plan, &last, 1), &now) {
        assert!(told.abs_diff(real) < Duration::from_millis(5), "{told:?} for {real:?}");
    }
}

#[test]
fn runs_that_were_kept_take_no_time() {
    let plan = plan();
    let mut left = TimeLeft::new(&plan, &BTreeMap::new(), 1);
    (0..plan.len() - 1).for_each(|index| left.finished(index, None));
    assert_eq!(left.left(), None);
    left.finished(plan.len() - 1, Some(Duration::from_secs(1)));
    assert!(left.done() > 0.999);
}
