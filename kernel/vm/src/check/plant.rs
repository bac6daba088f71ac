//! How tests use the probes of a VM system.

use crate::probe::VmDefect;
use crate::vm::Vm;
use pageferry_hal::Machine;

impl<M: Machine> Vm<M> {
    /// For tests: of the allocations to come of this floor (frames, structures, kernel addresses) and of those above
    /// that ask ([`Vm::allocation_fails`]: mbufs, pipes, offers of memory), lets `succeed` succeed and the next one
    /// fail, once. `None` calls it off.
    pub fn fail_after(&self, succeed: Option<u32>) {
        self.probes().failures.plan(succeed);
    }

    /// For tests: true while a failure planned with [`Vm::fail_after`] has not come.
    pub fn failure_pending(&self) -> bool {
        self.probes().failures.pending()
    }

    /// For tests of the checks: plants a defect, or takes it out.
    pub fn plant(&self, defect: Option<VmDefect>) {
        self.probes().planted.set(defect);
    }
}
