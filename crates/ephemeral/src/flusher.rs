//! How changes of shared mappings reach the other CPUs.

use pageferry_hal::Machine;
use pageferry_pmap::{Pmaps, TlbFlush};

/// How a change of a shared mapping is made known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flusher {
    /// A planted defect: the other CPUs are not told.
    pub(crate) local_only: bool,
}

impl Flusher {
    pub(crate) fn flush<M: Machine>(self, flush: TlbFlush<M>, pmaps: &Pmaps<M>) {
        if self.local_only { flush.flush_local(pmaps) } else { flush.flush(pmaps) }
    }
}
