//! Locking an anon for its page, where that can be on loan from an object (UVM paper, 4.1.1 and 4.1.2;
//! `uvm_anon_lockloanpg`).
//!
//! Under [`LoanLocking::OneStep`] the anon's lock is all that it takes. Under [`LoanLocking::Published`] the object's
//! lock comes behind the anon's and behind that of the page queues, both against the order: it is only tried. Where it
//! is taken, all locks are given up, and all starts over; its holder waits for none of them meanwhile that this thread
//! has. With the page queues locked the loan count does not change, so the object does not go.
//!
//! A page whose object has let it go is the anon's own from the next such call on.
//!
//! Nothing here fails.

use super::anon::{Anon, AnonGuard, AnonState};
use crate::config::LoanLocking;
use crate::counter::VmCounter;
use crate::page::Lender;
use crate::vm::Vm;
use pageferry_hal::{Access, Machine};

impl<M: Machine> Anon<M> {
    /// Does `with` with the anon locked, and with the object locked that its page is on loan from, if the kernel locks
    /// that. The caller holds no object's lock.
    pub(crate) fn with_page<R>(&self, vm: &Vm<M>, with: impl FnOnce(AnonGuard<'_, M>) -> R) -> R {
        loop {
            let state = self.lock();
            let Some(frame) = state.frame.filter(|_| vm.loan_locking() == LoanLocking::Published) else {
                return with(state);
            };
            let mut table = vm.frames().lock();
            table.touch_counts(frame, Access::Read);
            match table.lender_of(frame, self) {
                Lender::Nobody => {}
                Lender::Gone => table.adopt_borrowed(frame),
                Lender::Object(object) => {
                    let Some(object) = object else { continue };
                    let Some(lent) = object.try_lock() else {
                        vm.machine().count(VmCounter::LoanLocksRefused, 1);
                        continue;
                    };
                    drop(table);
                    let result = with(state);
                    drop(lent);
                    return result;
                }
            }
            drop(table);
            return with(state);
        }
    }

    /// Adopts the page, if it has no other owner; for callers that may hold an object's lock.
    pub(crate) fn adopt_orphan(&self, vm: &Vm<M>, state: &AnonState) {
        let Some(frame) = state.frame.filter(|_| vm.loan_locking() == LoanLocking::Published) else { return };
        let mut table = vm.frames().lock();
        if matches!(table.lender_of(frame, self), Lender::Gone) {
            table.adopt_borrowed(frame);
        }
    }
}
