//! Who looks at the processes of a run from outside of the machine, at no modelled cost: what its judges have in
//! common.
//!
//! It knows each process's memory by the process's number, from its first call to its last.
//! What it finds wrong is left in the run's outcome. A buffer that it looks at is page-aligned.

use super::outcome::OutcomeCell;
use super::payload::{differs_in, fill_in};
use pageferry_hal::Va;
use pageferry_kernel::{Pid, User};
use pageferry_model::Model;
use pageferry_vm::Space;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The onlooker of a run; all clones are one.
#[derive(Clone)]
pub(crate) struct Onlooker {
    pub(crate) model: Model,
    pub(crate) cell: OutcomeCell,
    spaces: Rc<RefCell<BTreeMap<Pid, Arc<Space<Model>>>>>,
}

impl Onlooker {
    /// Of a run on `model`, whose outcome is in `cell`.
    pub(crate) fn new(model: &Model, cell: &OutcomeCell) -> Onlooker {
        Onlooker { model: model.clone(), cell: cell.clone(), spaces: Rc::default() }
    }

    /// A process begins its work.
    pub(super) fn meets(&self, user: &User<Model>) {
        self.spaces.borrow_mut().insert(user.pid(), user.space().clone());
    }

    /// A process has ended its work: its memory goes when it exits.
    pub(super) fn leaves(&self, pid: Pid) {
        self.spaces.borrow_mut().remove(&pid);
    }

    /// Where a buffer of a process is other than it should be, mapped or not.
    pub(crate) fn differs(&self, pid: Pid, at: Va, expected: &[u8]) -> Option<usize> {
        differs_in(&self.space(pid), &self.model, at, expected)
    }

    /// Gives a buffer of a process other contents, mapped or not.
    ///
    /// # Panics
    /// When a page is not in memory; the program stores to it first.
    pub(crate) fn fill(&self, pid: Pid, at: Va, bytes: &[u8]) {
        fill_in(&self.space(pid), &self.model, at, bytes);
    }

    /// Keeps the first thing that was wrong.
    pub(crate) fn damage(&self, fault: String) {
        self.cell.borrow_mut().damage(fault);
    }

    fn space(&self, pid: Pid) -> Arc<Space<Model>> {
        self.spaces.borrow().get(&pid).expect("a process tells of itself while it works").clone()
    }
}
