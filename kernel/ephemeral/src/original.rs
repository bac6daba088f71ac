//! The original kernel (sf_buf paper, 6.2): for each use an address is allocated and a mapping made, and afterwards
//! both are undone.
//!
//! Machine-independent code could not know which CPU might hold a translation, so changes are flushed on every CPU, and
//! there is no private mapping. Which changes, [`crate::FlushPolicy`] says: FreeBSD 5 flushed both. The addresses
//! belong to the kernel's general allocator; nothing is kept between uses, and there is no lock but that allocator's.
//!
//! With a *free list* ([`crate::free_list`]) there is no allocator: the addresses were taken at boot and wait under one
//! mutex.
//!
//! With *magazines* it is what Vmem would make of it (Bonwick and Adams, USENIX 2001; sf_buf paper, 7): each CPU keeps
//! some addresses that it has given back, and takes one of these first. An address from there may be cached in any TLB
//! like any other, so nothing else is saved.

use crate::config::{AllocError, Flags, FlushPolicy, KernelAddresses};
use crate::counter::EphemeralCounter;
use crate::flusher::Flusher;
use crate::free_list::FreeList;
use crate::mapping::{Backing, Request};
use crate::user::MappingUser;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use pageferry_hal::{Cause, CodePath, LockClass, Machine, Prot, SpinLock, Threads, VaRange};
use pageferry_pmap::Pmaps;

pub(crate) struct Original<M: Machine, K: KernelAddresses> {
    pmaps: Arc<Pmaps<M>>,
    addresses: Arc<K>,
    /// Mappings that exist; for checks at quiescence only.
    live: AtomicUsize,
    /// Addresses that each CPU keeps, under a lock that no other takes but by accident; none in the original scheme.
    magazines: Vec<M::Lock<Vec<VaRange>>>,
    magazine_path: CodePath,
    /// Where addresses wait, if not with the allocator.
    list: Option<FreeList<M>>,
    pub(crate) flusher: Flusher,
}

/// Addresses in a magazine, at most.
const MAGAZINE_ROUNDS: usize = 16;

impl<M: Machine, K: KernelAddresses> Original<M, K> {
    pub(crate) fn new(pmaps: &Arc<Pmaps<M>>, addresses: &Arc<K>, policy: FlushPolicy) -> Original<M, K> {
        Self::with_magazines(pmaps, addresses, policy, 0, CodePath::of(0))
    }

    /// With addresses from a list.
    pub(crate) fn with_list(
        pmaps: &Arc<Pmaps<M>>,
        addresses: &Arc<K>,
        policy: FlushPolicy,
        list: FreeList<M>,
    ) -> Original<M, K> {
        Original { list: Some(list), ..Self::new(pmaps, addresses, policy) }
    }

    /// With magazines for so many CPUs.
    pub(crate) fn with_magazines(
        pmaps: &Arc<Pmaps<M>>,
        addresses: &Arc<K>,
        policy: FlushPolicy,
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
            list: None,
            flusher: Flusher::new(policy),
        }
    }

    pub(crate) fn alloc(
        &self,
        threads: &dyn Threads,
        request: Request,
        flags: Flags,
    ) -> Result<Backing, AllocError> {
        let _c = self.pmaps.machine().scope(Cause::Ephemeral);
        let range = match &self.list {
            Some(list) => list.take(threads, flags, self.flusher.planted, |at| self.map(at, request))?,
            None => {
                let range = self.take_address().ok_or(AllocError::NoAddresses)?;
                assert_eq!(range.len_pages(), 1, "the address allocator gave {range:?} for one page");
                self.map(range, request);
                range
            }
        };
        self.live.fetch_add(1, Ordering::Relaxed);
        Ok(Backing::Own(range))
    }

    fn map(&self, at: VaRange, Request { frame, by }: Request) {
        let m = self.pmaps.machine();
        let flush = self.pmaps.kenter(at.start(), &[frame], Prot::RW);
        self.flusher.mapped(flush, by, &self.pmaps);
        m.count(EphemeralCounter::EphemeralMisses, 1);
        by.mapped(m, 1);
    }

    pub(crate) fn free(&self, threads: &dyn Threads, range: VaRange, by: MappingUser) {
        let _c = self.pmaps.machine().scope(Cause::Ephemeral);
        let flush = self.pmaps.kremove(range);
        self.flusher.unmapped(flush, by, &self.pmaps);
        match &self.list {
            Some(list) => list.give(threads, range),
            None => self.give_address(range),
        }
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

    /// Addresses of the list, if there is one.
    pub(crate) fn addresses(&self) -> Option<usize> {
        self.list.as_ref().map(FreeList::entries)
    }

    /// Threads that wait for an address of the list.
    pub(crate) fn waiting(&self) -> usize {
        self.list.as_ref().map_or(0, FreeList::waiting)
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}
