//! Tests of races: one body under many schedules, and the one schedule again in which it went wrong.
//!
//! ```
//! use pageferry_hal::{Account, Instructions, LockClass, Machine, SpinLock};
//! use pageferry_model::{MachineConfig, Options, testing};
//!
//! let machine = MachineConfig::named("xeon-mp").expect("it is built in");
//! testing::seeds(&machine, Options::default(), 0..20, |m| {
//!     let lock = m.new_lock(LockClass::new("counter", 1), 0);
//!     m.execute(Instructions(100));
//!     *lock.lock() += 1;
//!     None
//! });
//! ```
//!
//! The body boots a kernel on CPU 0 of a machine that was made for it, as the one of [`Model::run`] does. Memory is
//! [flat](Model::flat): these are tests of what happens, not of when. A run is right when it ends well
//! ([`Model::run`]) and the machine's laws hold ([`Model::check`]); the body asserts all else.
//!
//! The seed takes the place of that of the schedule in the [`Options`]: at every call a CPU goes on that is drawn at
//! random, or, with [`Schedule::pct`], the one with the highest priority. Random turns find what shows in many orders,
//! priorities what needs a CPU to be held up for long; a test may try both. The events that a run keeps are chosen here
//! (the last 40, or what [`replay`] is told), and the rest of the options is yours. Clocks of events may go back: under
//! a seed the CPU that goes on is not the one that is behind.
//!
//! When a seed fails, [`seeds`] panics with the error, what the CPUs did last, and the seed; where the kernel panicked,
//! with the place of that, and with the calls that led there if `RUST_BACKTRACE=1`. Nothing is printed besides: panics
//! of single runs are results here.
//!
//! `PAGEFERRY_SEED=17 cargo test NAME -- --exact --nocapture` runs that schedule alone, and prints all that CPUs did,
//! well or not, as far as `PAGEFERRY_EVENTS` goes (100,000 if it is not set). Every test that runs looks at the
//! variable, which is why the one is named. [`find`] and [`replay`] do not look at it.
//!
//! Beside races there is what rigs of tests have in common: machines by name ([`small`]), and CPUs that do what they
//! are handed ([`Workers`]), and page tables by hand ([`Tables`]).

mod machines;
mod tables;
mod workers;

pub use machines::{assert_sound, choices, or_other_kind, other_kind, small};
pub use tables::Tables;
pub use workers::{Job, Workers};

use crate::account::Snapshot;
use crate::config::MachineConfig;
#[cfg(doc)]
use crate::machine::Schedule;
use crate::machine::{Event, Model, Options, RunError};
use crate::panics::{PanicPlace, quietly};
use core::fmt;
use pageferry_hal::ContextId;

/// Events that are kept of every run.
const LAST_EVENTS: usize = 40;
/// Events that are kept of a run that is done again.
const ALL_EVENTS: usize = 100_000;

/// Why a run was not right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It did not end well.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It did, and a law of the machine does not hold.
    #[error("{0}")]
    Law(String),
}

/// A run under one seed. Printed, it is all its events, one a line, then how it ended, with the places.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How it ended.
    pub result: Result<(), Wrong>,
    /// Where the panic was, if one ended it.
    pub panicked: Option<PanicPlace>,
    /// For how many turns there was a choice between CPUs.
    pub turns: u64,
    /// What CPUs did last.
    pub events: Vec<Event>,
    /// The accounts at the end.
    pub accounts: Snapshot,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            writeln!(f, "{event}")?;
        }
        match &self.result {
            Ok(()) => write!(f, "seed {}: all is well", self.seed),
            Err(wrong) => write!(f, "seed {}: {wrong}", self.seed),
        }?;
        match (&self.result, &self.panicked) {
            (Err(Wrong::Run(RunError::Panicked(_))), Some(place)) => write!(f, "\n{place}"),
            // The words say where; only the calls are more.
            (_, Some(PanicPlace { backtrace: Some(calls), .. })) => write!(f, "\n{calls}"),
            _ => Ok(()),
        }
    }
}

/// Runs `body` under one seed, and keeps the last `keep_events` events. Prints nothing: what a panic would have printed
/// is in the [`Outcome`].
///
/// # Panics
/// When the machine's configuration contradicts itself.
pub fn replay(
    machine: &MachineConfig,
    options: Options,
    seed: u64,
    keep_events: usize,
    body: impl FnOnce(&Model) -> Option<ContextId> + 'static,
) -> Outcome {
    let options = Options { schedule: options.schedule.with_seed(seed), ..options }.keep_events(keep_events);
    let model = Model::flat(machine, options).unwrap_or_else(|fault| panic!("the machine: {fault}"));
    let (ran, panicked) = quietly(|| model.run(Box::new(body)));
    let accounts = model.snapshot();
    let laws = || model.check().and_then(|()| accounts.check()).map_err(Wrong::Law);
    let result = ran.map_err(Wrong::Run).and_then(|()| laws());
    Outcome { seed, result, panicked, turns: model.turns(), events: model.events(), accounts }
}

/// The first of `seeds` under which `body` goes wrong: for tests of what must be found. Prints nothing.
///
/// # Panics
/// As [`replay`].
pub fn find(
    machine: &MachineConfig,
    options: Options,
    seeds: impl IntoIterator<Item = u64>,
    body: impl FnOnce(&Model) -> Option<ContextId> + Clone + 'static,
) -> Option<Outcome> {
    let run = |seed| replay(machine, options, seed, LAST_EVENTS, body.clone());
    seeds.into_iter().map(run).find(|outcome| outcome.result.is_err())
}

/// Runs `body` under each of `seeds`; or, where the environment has a `PAGEFERRY_SEED`, under that one, with all that
/// CPUs did printed to standard error.
///
/// # Panics
/// When a run goes wrong: with its seed. When `PAGEFERRY_SEED` or `PAGEFERRY_EVENTS` is no number.
#[track_caller]
pub fn seeds(
    machine: &MachineConfig,
    options: Options,
    seeds: impl IntoIterator<Item = u64>,
    body: impl FnOnce(&Model) -> Option<ContextId> + Clone + 'static,
) {
    if let Some(seed) = number("PAGEFERRY_SEED") {
        let events = number("PAGEFERRY_EVENTS").map_or(ALL_EVENTS, |n| n as usize);
        let outcome = replay(machine, options, seed, events, body);
        eprintln!("{outcome}");
        if let Err(wrong) = outcome.result {
            panic!("seed {seed}: {wrong}");
        }
    } else if let Some(wrong) = find(machine, options, seeds, body) {
        // The thread of a test has the test's name.
        let thread = std::thread::current();
        let test = thread.name().filter(|&name| name != "main").unwrap_or("NAME");
        panic!(
            "what CPUs did last:\n\
             {wrong}\n\
             to see all of it: PAGEFERRY_SEED={} cargo test {test} -- --exact --nocapture",
            wrong.seed
        );
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text}: expected a number, such as {variable}=17")))
}
