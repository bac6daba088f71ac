//! What is shared of an address space: by its owner and by the registry, which leads to it from a frame.

use crate::tables::radix::Tables;
use crate::tlb::asid::Tags;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64};
use pageferry_hal::{Asid, Machine, Pa, SpaceId};

/// What the registry shares of an address space.
pub(crate) struct Shared<M: Machine> {
    pub(crate) id: SpaceId,
    pub(crate) root: Pa,
    pub(crate) tables: M::Lock<Tables>,
    /// A block of its own, packed; 0 is none.
    pub(crate) block: AtomicU64,
    /// The numbers of its TLB entries, where they carry any.
    pub(crate) tags: Option<Arc<Tags>>,
    /// Reserved entries of the TLB that are its own,
    pub(crate) wired: AtomicU32,
    /// and the tag that they carry; the kernel's where they were cleared.
    pub(crate) wired_asid: AtomicU32,
    /// Pages of the communication area that its page table attaches.
    pub(crate) attached: AtomicU32,
}

impl<M: Machine> Shared<M> {
    /// The number of its entries in the hash table, where hardware uses one.
    pub(crate) fn hash_tag(&self) -> Option<Asid> {
        self.tags.as_ref().and_then(|tags| tags.shared())
    }
}
