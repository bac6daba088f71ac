//! How far it is: a bar with the time left on terminals, a line for each run elsewhere.

use crate::terminal::{self, tell};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use pageferry_lab::LabError;
use pageferry_lab::record::RunResult;
use pageferry_lab::run::{Progress, RunSpec, TimeLeft};
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, stderr};
use std::sync::Mutex;
use std::time::Duration;

/// The progress of a plan.
pub(crate) struct Runs {
    bar: Option<ProgressBar>,
    state: Mutex<State>,
    count: usize,
}

struct State {
    /// Titles of the runs that go on now.
    going: BTreeSet<String>,
    done: usize,
    left: TimeLeft,
}

/// Steps of a bar.
const BAR: u64 = 1000;

impl Runs {
    /// Of `plan`, whose time is `left`.
    pub(crate) fn new(plan: &[RunSpec], left: TimeLeft) -> Runs {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(BAR);
            let template = "{bar:32.red/black} {prefix}  {wide_msg:.dim}";
            bar.set_style(
                ProgressStyle::with_template(template).expect("a good template").progress_chars("━╸─"),
            );
            bar.enable_steady_tick(Duration::from_millis(200));
            bar.set_prefix(format!("0 of {} runs", plan.len()));
            bar
        });
        let state = State { going: BTreeSet::new(), done: 0, left };
        Runs { bar, state: Mutex::new(state), count: plan.len() }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut state);
        if let Some(bar) = &self.bar {
            bar.set_message(state.going.iter().cloned().collect::<Vec<_>>().join("; "));
        }
    }
}

impl Progress for Runs {
    fn started(&self, run: &RunSpec) {
        self.change(|state| {
            state.going.insert(run.title());
        });
    }

    fn finished(
        &self,
        index: usize,
        run: &RunSpec,
        result: &Result<RunResult, LabError>,
        took: Option<Duration>,
    ) {
        self.change(|state| {
            state.going.remove(&run.title());
            state.done += 1;
            state.left.finished(index, took);
            let (done, count) = (state.done, self.count);
            let Some(bar) = &self.bar else {
                let outcome = match result {
                    Ok(_) if took.is_none() => "kept".to_owned(),
                    Ok(result) if result.record.broken().is_empty() => {
                        format!("{:.2} s", result.host.wall_ms / 1e3)
                    }
                    Ok(_) => "a law is broken".to_owned(),
                    Err(_) => "failed".to_owned(),
                };
                let left = state.left.left().map(|left| format!(", about {:#} left", HumanDuration(left)));
                let left = left.unwrap_or_default();
                return tell(&format!("{done:>3} of {count}{left}  {}  {outcome}", run.title()));
            };
            let left = state.left.left().map(|left| format!("  about {:#} left", HumanDuration(left)));
            bar.set_position((state.left.done() * BAR as f64) as u64);
            bar.set_prefix(format!("{done} of {count} runs{}", left.unwrap_or_default()));
        });
    }
}

/// The progress of a transfer: bytes of a known or unknown total. Nothing where there is no terminal.
pub(crate) fn bytes(total: Option<u64>) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = match total {
        Some(_) => "{bar:32.red/black} {bytes} of {total_bytes}  {eta:>4} left",
        None => "{spinner} {bytes}  {elapsed}",
    };
    bar.set_style(ProgressStyle::with_template(template).expect("a good template").progress_chars("━╸─"));
    bar
}

/// What goes between a heading and its value on standard error, where it is for people.
pub(crate) fn note(text: &str) {
    tell(&terminal::stderr().faint(text));
}

/// The progress of many steps, of a known or unknown total. Nothing where there is no terminal.
pub(crate) fn steps(total: Option<u64>) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = match total {
        Some(_) => "{bar:32.red/black} {human_pos} of {human_len}  {per_sec}  {eta:>4} left",
        None => "{spinner} {human_pos} steps  {per_sec}  {elapsed}",
    };
    bar.set_style(ProgressStyle::with_template(template).expect("a good template").progress_chars("━╸─"));
    bar
}
