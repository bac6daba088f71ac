//! What a run gives: the record, and what its metrics are.

mod dictionary;
mod run_result;

pub(crate) use dictionary::check_results;
pub use dictionary::{Entry, Metric, common_dictionary, metric};
pub use run_result::{CpuCycles, Cycles, Host, Law, LockCounts, Record, RunResult};
