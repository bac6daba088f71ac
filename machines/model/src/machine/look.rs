//! What is kept of CPUs that look at atomics again and again: see [`super::looks`], which counts.

use crate::mmu::access::Site;

/// Looks since a CPU did anything else.
#[derive(Default)]
pub(crate) struct Looks {
    /// How many; of all CPUs.
    pub(super) count: u64,
    /// Other calls on the machine, up to the last one.
    pub(super) calls: u64,
    /// Operations on atomics so far, which are calls, too.
    pub(super) atomics: u64,
    /// For each CPU, its last one.
    pub(super) by_cpu: Vec<Option<Look>>,
}

/// A CPU that looks, and from when on.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(super) at: Site,
    pub(super) since: u64,
    pub(super) found: u64,
}

impl Looks {
    /// A CPU has done something else.
    pub(super) fn end_row(&mut self, cpus: usize) {
        self.count = 0;
        self.by_cpu.clear();
        self.by_cpu.resize(cpus, None);
    }
}
