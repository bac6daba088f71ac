//! What is done about misses of the TLB, step by step: for lessons, which follow one miss to its end.
//!
//! Nothing is kept unless [`Model::watch`] asks for it. A step stands when it is over, and has all that was spent since
//! the step before: so the steps of a watch leave nothing out.

use crate::machine::Model;
use crate::watch::{Action, Observation, Watch};

impl Model {
    /// Watches what the executing CPU does about misses, until [`Model::take_watched`]. The other CPUs are to be at
    /// rest: accesses and instructions are those of all.
    pub fn watch(&self) {
        let cpu = self.0.cpu();
        let mut hw = self.0.hw.borrow_mut();
        let since = hw.spent(cpu);
        hw.watch = Some(Box::new(Watch { cpu, since, steps: Vec::new() }));
    }

    /// The steps since [`Model::watch`], the last of which is the rest; the watch ends.
    pub fn take_watched(&self) -> Vec<Observation> {
        let mut hw = self.0.hw.borrow_mut();
        hw.note_step(Action::Rest);
        hw.watch.take().map_or(Vec::new(), |watch| watch.steps)
    }

    /// Entries in both TLBs of the executing CPU's core, and those of them that the kernel's addresses have.
    pub fn kernel_tlb_entries(&self) -> (usize, usize) {
        let cpu = self.0.cpu();
        self.0.hw.borrow_mut().live_and_kernels(cpu)
    }
}
