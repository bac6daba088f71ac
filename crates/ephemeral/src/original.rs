//! The original kernel (sf_buf paper, 6.2): for each use an address is allocated and a mapping made, and afterwards both
//! are undone.
//!
//! Machine-independent code could not know which CPU might hold a translation, so both changes are flushed on every CPU, and
//! there is no private mapping. The addresses belong to the kernel's general allocator; nothing is kept between uses, and
//! there is no lock but that allocator's.

use crate::config::{AllocError, KernelAddresses};
use crate::flusher::Flusher;
use crate::mapping::Backing;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use pageferry_hal::{Cause, Counter, Machine, Pfn, Prot, VaRange};
use pageferry_pmap::Pmaps;

pub(crate) struct Original<M: Machine, K: KernelAddresses> {
    pmaps: Arc<Pmaps<M>>,
    addresses: Arc<K>,
    /// Mappings that exist; for checks at quiescence only.
    live: AtomicUsize,
    pub(crate) flusher: Flusher,
}

impl<M: Machine, K: KernelAddresses> Original<M, K> {
    pub(crate) fn new(pmaps: &Arc<Pmaps<M>>, addresses: &Arc<K>) -> Original<M, K> {
        Original {
            pmaps: pmaps.clone(),
            addresses: addresses.clone(),
            live: AtomicUsize::new(0),
            flusher: Flusher { local_only: false },
        }
    }

    pub(crate) fn alloc(&self, frame: Pfn) -> Result<Backing, AllocError> {
        let m = self.pmaps.machine();
        let _c = m.scope(Cause::Ephemeral);
        let range = self.addresses.alloc(1).ok_or(AllocError::NoAddresses)?;
        assert_eq!(range.len_pages(), 1, "the address allocator gave {range:?} for one page");
        let flush = self.pmaps.kenter(range.start(), &[frame], Prot::RW);
        self.flusher.flush(flush, &self.pmaps);
        m.count(Counter::EphemeralMisses, 1);
        self.live.fetch_add(1, Ordering::Relaxed);
        Ok(Backing::Own(range))
    }

    pub(crate) fn free(&self, range: VaRange) {
        let _c = self.pmaps.machine().scope(Cause::Ephemeral);
        let flush = self.pmaps.kremove(range);
        self.flusher.flush(flush, &self.pmaps);
        self.addresses.free(range);
        let before = self.live.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more ephemeral mappings freed than allocated");
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}
