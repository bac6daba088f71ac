//! A process of any machine, as the programs of `pageferry-workloads` see it. What fails in one of its children is told
//! to the verdict.

use crate::verdict::Verdict;
use alloc::sync::Arc;
use alloc::vec;
use pageferry_hal::Machine;
use pageferry_kernel::{Imported, Pid, User};
use pageferry_processes::Watch;
use pageferry_workloads::CallError;

pub use pageferry_processes::receive_by;

/// A process.
pub type Process<'a, M> = pageferry_processes::Process<'a, M, Watcher>;

/// Who is told of processes: the verdict of a run.
#[derive(Clone)]
pub struct Watcher(pub Arc<Verdict>);

impl<M: Machine> Watch<M> for Watcher {
    fn meets(&self, _: &User<M>) {}

    fn leaves(&self, _: Pid) {}

    fn ended(&self, ended: Result<(), CallError>) {
        self.0.ends(ended);
    }

    // The judge looks at it through the machine, and finds it only if it is mapped.
    fn imported(&self, user: &User<M>, imported: &Imported) {
        user.load(imported.at, &mut vec![0; imported.len_bytes]);
    }
}
