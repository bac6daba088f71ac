//! The cost of invalidations (sf_buf paper, 3): a system call that is there for it repeats one many times.

use crate::os::{CallError, Os, named};
use pageferry_abi::InvalidateKind;
use pageferry_hal::Cycles;

/// What is repeated, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Invalidate {
    /// Invalidations of each kind.
    pub times: u32,
    /// There is another CPU: remote ones are measured, too.
    pub remote: bool,
}

impl Invalidate {
    /// The program of the only process. `took` is told how long all invalidations of a kind took together.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(&self, os: &dyn Os, took: &mut dyn FnMut(InvalidateKind, Cycles)) -> Result<(), CallError> {
        let local = [InvalidateKind::LocalCached, InvalidateKind::LocalUncached];
        let remote = self.remote.then_some(InvalidateKind::Remote);
        for kind in local.into_iter().chain(remote) {
            took(kind, os.invalidate(kind, self.times).map_err(named("invalidate"))?);
        }
        Ok(())
    }
}
