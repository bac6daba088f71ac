//! Runs: from experiments to a plan, from a plan to runs, and what a run gives.
//!
//! One run is a machine with a kernel on it, in which a [`workload`](crate::workload) does its work. This room and that
//! one are the only ones that know the model and the kernel as something to run; the others see a [`RunSpec`] go in and
//! a [`RunResult`] come out. Workloads stand on the plan, the testbed and what is measured, and take these by the names
//! of their files; the door leads to what runs workloads.

mod execute;
mod journal;
mod left;
pub(crate) mod measured;
mod one_run;
pub(crate) mod plan;
pub(crate) mod result;
pub(crate) mod testbed;

pub use execute::{MAX_JOBS, Progress, Silent, execute, execute_kept, threads};
pub use journal::Journal;
pub use left::TimeLeft;
pub(crate) use measured::{counters, cycles};
pub use one_run::{TraceWindow, run, run_traced};
pub use pageferry_model::trace::Trace;
pub use plan::{Choices, RunSpec, Schedule, matrix};
pub use result::{CpuCycles, Cycles, Host, Law, Record, RunResult};
pub(crate) use testbed::Testbed;
