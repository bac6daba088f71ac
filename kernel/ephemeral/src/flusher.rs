//! How far changes of shared mappings are flushed.

use pageferry_hal::Machine;
use pageferry_pmap::{Pmaps, TlbFlush};

/// How far a change of a shared mapping is flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flusher {
    /// A planted defect: the other CPUs do not invalidate.
    pub(crate) local_only: bool,
}

impl Flusher {
    pub(crate) fn flush<M: Machine>(self, flush: TlbFlush<M>, pmaps: &Pmaps<M>) {
        if self.local_only { flush.flush_local(pmaps) } else { flush.flush(pmaps) }
    }
}
