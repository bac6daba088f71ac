//! How far changes of shared mappings are flushed, and for whom.

use crate::defect::EphemeralDefect;
use crate::user::MappingUser;
use pageferry_defects::Planted;
use pageferry_hal::Machine;
use pageferry_pmap::{Pmaps, TlbFlush};

/// How far a change of a shared mapping is flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flusher {
    pub(crate) planted: Planted<EphemeralDefect>,
}

impl Flusher {
    pub(crate) fn flush<M: Machine>(self, flush: TlbFlush<M>, by: MappingUser, pmaps: &Pmaps<M>) {
        let issued = if self.planted.is(EphemeralDefect::FlushedHereOnly) {
            flush.flush_local(pmaps)
        } else {
            flush.flush(pmaps)
        };
        by.invalidated(pmaps.machine(), issued);
    }
}
