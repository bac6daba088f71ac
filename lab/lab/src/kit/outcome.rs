//! What a workload found, and the first thing that went wrong in it.

use pageferry_kernel::Errno;
use pageferry_model::Snapshot;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a workload found.
#[derive(Debug)]
pub struct Outcome {
    /// What the experiment measures.
    pub results: BTreeMap<String, f64>,
    /// Cycles, counters and hardware counts of the measured part.
    pub measured: Option<Snapshot>,
    /// Host time of the measured part.
    pub measured_s: f64,
    /// What was wrong with the payload.
    pub payload: Result<(), String>,
    /// A system call that failed, with what it was for.
    pub failed: Option<String>,
}

/// Where a workload leaves what it found: shared by its processes, which are coroutines of one thread.
pub type OutcomeCell = Rc<RefCell<Outcome>>;

impl Default for Outcome {
    fn default() -> Self {
        Outcome { results: BTreeMap::new(), measured: None, measured_s: 0.0, payload: Ok(()), failed: None }
    }
}

impl Outcome {
    /// Keeps the first failure of a system call.
    pub fn fail(&mut self, what: &str, errno: Errno) {
        self.failed.get_or_insert_with(|| format!("{what}: {errno}"));
    }

    /// Keeps the first thing wrong with the payload.
    pub fn damage(&mut self, fault: String) {
        if self.payload.is_ok() {
            self.payload = Err(fault);
        }
    }
}
