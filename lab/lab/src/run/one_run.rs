//! One run: a machine is built, a kernel booted on it, a workload run in it, and the laws are checked.
//!
//! A run can go wrong in two ways: the configuration does not fit (no memory for a buffer: the input is to blame), or a
//! law is broken. The laws are checked in every run and kept in its record; the caller decides
//! what to do about a broken one, see [`Record::broken`].

use super::measured::{conservation, counters, cycles, derive, hardware, locks};
use super::plan::RunSpec;
use super::testbed::{Finish, Testbed};
use crate::error::LabError;
use crate::kit::{Outcome, OutcomeCell};
use crate::record::{Host, Law, Record, RunResult, check_results};
use pageferry_model::trace::{Recording, Sink};
use pageferry_model::{Hardware, Model};
use std::time::{Duration, Instant};

/// What of a run is traced, in modelled time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceWindow {
    /// From when on, since the machine was switched on; if absent, from where the measured part begins.
    pub from: Option<Duration>,
    /// For how long; to the end if absent.
    pub length: Option<Duration>,
}

impl TraceWindow {
    fn cycles(self, clock_mhz: u64) -> std::ops::Range<u64> {
        let at = |time: Duration| {
            let cycles = time.as_nanos().saturating_mul(u128::from(clock_mhz)) / 1000;
            u64::try_from(cycles).unwrap_or(u64::MAX)
        };
        let from = self.from.unwrap_or_default();
        at(from)..self.length.map_or(u64::MAX, |length| at(from.saturating_add(length)))
    }
}

/// Runs `spec`.
///
/// # Errors
/// When machine, kernel and experiment do not fit each other. A broken law is not an error here.
pub fn run(spec: &RunSpec) -> Result<RunResult, LabError> {
    Ok(run_on(spec, |_| ())?.0)
}

/// Runs `spec`, and tells `sink` where the time goes, what moves, and how much there is of what, as long as the window
/// is open. Gives beside the result when the last of what happened was over, in cycles.
///
/// # Errors
/// As [`run`].
pub fn run_traced(
    spec: &RunSpec,
    window: TraceWindow,
    sink: Box<dyn Sink>,
) -> Result<(RunResult, u64), LabError> {
    let window_cycles = window.cycles(spec.machine.config.cpu.clock_mhz.value);
    let is_of_measured_part = window.from.is_none();
    let recording = Recording { window_cycles, is_of_measured_part };
    let (result, model) = run_on(spec, |model| model.record(recording, sink))?;
    Ok((result, model.end_recording().expect("it was recorded").0))
}

fn run_on(spec: &RunSpec, prepare: impl FnOnce(&Model)) -> Result<(RunResult, Model), LabError> {
    let began = Instant::now();
    let mut machine = (*spec.machine).clone();
    spec.workload.adapt(&spec.parameters, &mut machine.config)?;
    let mut testbed = Testbed::new(&machine, &spec.kernel, spec.choices)?;
    prepare(&testbed.model);
    let cell = OutcomeCell::default();
    let program = spec.workload.program(&spec.parameters, &mut testbed, cell.clone())?;
    let finish = testbed.execute(&spec.experiment.name, program)?;
    let outcome = cell.take();
    // Where all laws hold, a call failed because too much was asked of the machine; where one is broken, as a
    // consequence.
    if let Some(problem) = outcome.failed.as_ref().filter(|_| finish.laws.iter().all(|law| law.held)) {
        return Err(testbed.incompatible(problem));
    }
    if outcome.failed.is_none() && outcome.payload.is_ok() && finish.laws.iter().all(|law| law.held) {
        check_results(&spec.workload.metrics(), &outcome.results).map_err(|problem| LabError::Input {
            file: format!("workload `{}`", spec.workload.name()),
            problem,
        })?;
    }
    let record = record(spec, &outcome, &finish);
    let rate = |count: fn(&Hardware) -> u64| match &outcome.measured {
        Some(measured) if outcome.measured_s > 0.0 => {
            (count(&measured.hardware) as f64 / outcome.measured_s).round()
        }
        _ => 0.0,
    };
    let host = Host {
        wall_ms: began.elapsed().as_secs_f64() * 1e3,
        measured_ms: outcome.measured_s * 1e3,
        accesses_per_s: rate(|h| h.accesses),
        lines_streamed_per_s: rate(|h| h.lines_streamed),
        dependent_accesses_per_s: rate(|h| h.accesses - h.lines_streamed),
        instructions_charged_per_s: rate(|h| h.instructions),
    };
    Ok((RunResult { record, host }, testbed.model))
}

fn record(spec: &RunSpec, outcome: &Outcome, finish: &Finish) -> Record {
    let measured = outcome.measured.as_ref();
    let mut laws = finish.laws.clone();
    laws.push(Law::new("the payload arrived as it was sent", outcome.payload.clone()));
    if let Some(snapshot) = measured {
        laws.extend(conservation(snapshot));
    }
    let counters = measured.map(counters).unwrap_or_default();
    let mut results = outcome.results.clone();
    derive(&counters, &mut results);
    Record {
        experiment: spec.experiment.name.clone(),
        machine: spec.machine.name.clone(),
        kernel: spec.kernel.name.clone(),
        seed: spec.choices.seed,
        perturbed: spec.choices.perturbed,
        settings: spec.settings(),
        results,
        counters,
        cycles: measured.map(cycles).unwrap_or_default(),
        hardware: measured.map(hardware).unwrap_or_default(),
        locks: measured.map(locks).unwrap_or_default(),
        payload_ok: outcome.payload.is_ok(),
        stale_translations: finish.stale.len() as u64,
        laws,
    }
}
