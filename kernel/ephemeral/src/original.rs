//! The original kernel (sf_buf paper, 6.2): for each use an address is allocated and a mapping made, and afterwards
//! both are undone.
//!
//! Machine-independent code could not know which CPU might hold a translation, so both changes are flushed on every
//! CPU, and there is no private mapping. The addresses belong to the kernel's general allocator; nothing is kept
//! between uses, and there is no lock but that allocator's.
//!
//! With *magazines* it is what Vmem would make of it (Bonwick and Adams, USENIX 2001; sf_buf paper, 7): each CPU keeps
//! some addresses that it has given back, and takes one of these first. An address from there may be cached in any TLB
//! like any other, so nothing else is saved.

use crate::config::{AllocError, KernelAddresses};
use crate::counter::EphemeralCounter;
use crate::flusher::Flusher;
use crate::mapping::{Backing, Request};
use crate::user::MappingUser;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use pageferry_defects::Planted;
use pageferry_hal::{Cause, CodePath, LockClass, Machine, Prot, SpinLock, VaRange};
use pageferry_pmap::Pmaps;

pub(crate) struct Original<M: Machine, K: KernelAddresses> {
    pmaps: Arc<Pmaps<M>>,
    addresses: Arc<K>,
    /// Mappings that exist; for checks at quiescence only.
    live: AtomicUsize,
    /// Addresses that each CPU keeps, under a lock that no other takes but by accident; none in the original scheme.
    magazines: Vec<M::Lock<Vec<VaRange>>>,
    magazine_path: CodePath,
    pub(crate) flusher: Flusher,
}

/// Addresses in a magazine, at most.
const MAGAZINE_ROUNDS: usize = 16;

impl<M: Machine, K: KernelAddresses> Original<M, K> {
    pub(crate) fn new(pmaps: &Arc<Pmaps<M>>, addresses: &Arc<K>) -> Original<M, K> {
        Self::with_magazines(pmaps, addresses, 0, CodePath::of(0))
    }

    /// With magazines for so many CPUs.
    pub(crate) fn with_magazines(
        pmaps: &Arc<Pmaps<M>>,
        addresses: &Arc<K>,
        cpus: usize,
        magazine_path: CodePath,
    ) -> Original<M, K> {
        let m = pmaps.machine();
        Original {
            magazines: (0..cpus).map(|_| m.new_lock(LockClass::EPHEMERAL, Vec::new())).collect(),
            magazine_path,
            pmaps: pmaps.clone(),
            addresses: addresses.clone(),
            live: AtomicUsize::new(0),
            flusher: Flusher { planted: Planted::NONE },
        }
    }

    pub(crate) fn alloc(&self, Request { frame, by }: Request) -> Result<Backing, AllocError> {
        let m = self.pmaps.machine();
        let _c = m.scope(Cause::Ephemeral);
        let range = self.take_address().ok_or(AllocError::NoAddresses)?;
        assert_eq!(range.len_pages(), 1, "the address allocator gave {range:?} for one page");
        let flush = self.pmaps.kenter(range.start(), &[frame], Prot::RW);
        self.flusher.flush(flush, by, &self.pmaps);
        m.count(EphemeralCounter::EphemeralMisses, 1);
        by.mapped(m, 1);
        self.live.fetch_add(1, Ordering::Relaxed);
        Ok(Backing::Own(range))
    }

    pub(crate) fn free(&self, range: VaRange, by: MappingUser) {
        let _c = self.pmaps.machine().scope(Cause::Ephemeral);
        let flush = self.pmaps.kremove(range);
        self.flusher.flush(flush, by, &self.pmaps);
        self.give_address(range);
        let before = self.live.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more ephemeral mappings freed than allocated");
    }

    fn take_address(&self) -> Option<VaRange> {
        let m = self.pmaps.machine();
        if let Some(magazine) = self.magazines.get(m.cpu().index()) {
            let _c = m.scope(Cause::AddressAllocation);
            m.execute(self.magazine_path);
            let kept = magazine.lock().pop();
            if kept.is_some() {
                return kept;
            }
        }
        self.addresses.alloc(1)
    }

    fn give_address(&self, range: VaRange) {
        let m = self.pmaps.machine();
        if let Some(magazine) = self.magazines.get(m.cpu().index()) {
            let _c = m.scope(Cause::AddressAllocation);
            m.execute(self.magazine_path);
            let mut kept = magazine.lock();
            if kept.len() < MAGAZINE_ROUNDS {
                kept.push(range);
                return;
            }
        }
        self.addresses.free(range);
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}
