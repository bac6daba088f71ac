//! Runs: from experiments to a plan, from a plan to runs.
//!
//! One run is a machine with a kernel on it ([`Testbed`]), in which a [`Workload`] does its work. A [`Registry`] has
//! workloads and experiments by their names; nothing here names a workload. The rooms above see a [`RunSpec`] go in and
//! a [`RunResult`](crate::record::RunResult) come out.

mod choices;
mod execute;
mod journal;
mod judged;
mod left;
mod measured;
mod one_run;
mod perturbation;
mod plan;
mod registry;
mod testbed;
mod workload;

pub use choices::{Choices, Schedule};
pub use execute::{MAX_JOBS, Progress, Silent, execute, execute_each, execute_kept, threads};
pub use journal::Journal;
pub use judged::records;
pub use left::TimeLeft;
pub use measured::{counters, cycles};
pub use one_run::{TraceWindow, run, run_traced};
pub use plan::{MAX_RUNS, RunSpec, check_count, matrix, matrix_repeated};
pub use registry::Registry;
pub use testbed::{FAR_END, Finish, MACHINE, PREFIX_BITS, Testbed};
pub use workload::Workload;
