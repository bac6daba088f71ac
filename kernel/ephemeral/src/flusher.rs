//! How changes of mappings are flushed: how far, at which change, and for whom.
//!
//! A miss of the cache is flushed when it has to be. Where an address is mapped and unmapped for each use, one flush
//! for both would do, because the address belongs to one user from the one to the other: [`FlushPolicy`] says which.
//! FreeBSD 5 flushed at both (i386 and amd64, `pmap.c`: `pmap_qenter` and `pmap_qremove` end with
//! `pmap_invalidate_range`). FreeBSD 4 and 7 flushed in `pmap_qenter` only what was valid before, so after
//! `pmap_qremove` nothing.

use crate::config::FlushPolicy;
use crate::defect::EphemeralDefect;
use crate::user::MappingUser;
use pageferry_defects::Planted;
use pageferry_hal::Machine;
use pageferry_pmap::{Pmaps, TlbFlush};

/// How changes of mappings are flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flusher {
    pub(crate) policy: FlushPolicy,
    pub(crate) planted: Planted<EphemeralDefect>,
}

impl Flusher {
    pub(crate) fn new(policy: FlushPolicy) -> Flusher {
        Flusher { policy, planted: Planted::NONE }
    }

    /// A shared mapping has changed, and any CPU may have the old one.
    pub(crate) fn flush<M: Machine>(self, flush: TlbFlush<M>, by: MappingUser, pmaps: &Pmaps<M>) {
        let issued = if self.planted.is(EphemeralDefect::FlushedHereOnly) {
            flush.flush_local(pmaps)
        } else {
            flush.flush(pmaps)
        };
        by.invalidated(pmaps.machine(), issued);
    }

    /// Addresses were mapped for a use.
    pub(crate) fn mapped<M: Machine>(self, flush: TlbFlush<M>, by: MappingUser, pmaps: &Pmaps<M>) {
        self.flush_if(self.policy.at.maps(), flush, by, pmaps);
    }

    /// Addresses were unmapped after a use.
    pub(crate) fn unmapped<M: Machine>(self, flush: TlbFlush<M>, by: MappingUser, pmaps: &Pmaps<M>) {
        self.flush_if(self.policy.at.unmaps(), flush, by, pmaps);
    }

    fn flush_if<M: Machine>(self, due: bool, flush: TlbFlush<M>, by: MappingUser, pmaps: &Pmaps<M>) {
        if due && !self.planted.is(EphemeralDefect::FlushLeftOut) {
            self.flush(flush, by, pmaps);
        } else {
            // The other change of this address is flushed, before anyone uses it.
            flush.not_cached(pmaps);
        }
    }
}
