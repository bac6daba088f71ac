//! How far it is: a bar with the time left on terminals, a line for each run elsewhere.

use crate::terminal;
use indicatif::{ProgressBar, ProgressStyle};
use pageferry_lab::LabError;
use pageferry_lab::run::{Progress, RunResult, RunSpec};
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The progress of a plan.
pub(crate) struct Runs {
    bar: Option<ProgressBar>,
    /// Titles of the runs that go on now.
    going: Mutex<BTreeSet<String>>,
    done: AtomicUsize,
    count: usize,
}

impl Runs {
    pub(crate) fn new(plan: &[RunSpec]) -> Runs {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(plan.iter().map(RunSpec::weight).sum());
            let template = "{bar:32.red/black} {prefix}  {eta:>4} left  {wide_msg:.dim}";
            bar.set_style(
                ProgressStyle::with_template(template).expect("a good template").progress_chars("━╸─"),
            );
            bar.enable_steady_tick(std::time::Duration::from_millis(200));
            bar.set_prefix(format!("0 of {} runs", plan.len()));
            bar
        });
        Runs { bar, going: Mutex::default(), done: AtomicUsize::new(0), count: plan.len() }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&self, change: impl FnOnce(&mut BTreeSet<String>)) {
        let mut going = self.going.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut going);
        if let Some(bar) = &self.bar {
            bar.set_message(going.iter().cloned().collect::<Vec<_>>().join("; "));
        }
    }
}

impl Progress for Runs {
    fn started(&self, run: &RunSpec) {
        self.show(|going| {
            going.insert(run.title());
        });
    }

    fn finished(&self, run: &RunSpec, result: &Result<RunResult, LabError>) {
        self.show(|going| {
            going.remove(&run.title());
        });
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(bar) = &self.bar else {
            let outcome = match result {
                Ok(result) if result.record.broken().is_empty() => {
                    format!("{:.2} s", result.host.wall_ms / 1e3)
                }
                Ok(_) => "a law is broken".to_owned(),
                Err(_) => "failed".to_owned(),
            };
            eprintln!("{done:>3} of {}  {}  {outcome}", self.count, run.title());
            return;
        };
        bar.inc(run.weight());
        bar.set_prefix(format!("{done} of {} runs", self.count));
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
    eprintln!("{}", terminal::stderr().faint(text));
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
