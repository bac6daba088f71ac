//! The request that a shootdown's interrupts go with. See `shootdown`.

use core::sync::atomic::{AtomicU32, AtomicU64};
use pageferry_hal::{LockClass, Machine, StructVa};

/// Ranges in one request: it fills a cache line of 64 bytes.
pub(crate) const MAX_RANGES: usize = 3;
/// Bytes of the request.
pub(crate) const REQUEST_BYTES: usize = 64;

/// What the asked CPUs shall do.
#[derive(Clone, Copy)]
pub(crate) enum IpiOp {
    /// Invalidate the pages of the request's ranges.
    Pages = 0,
    /// Invalidate all of the request's address space.
    Space = 1,
    /// Leave the request's address space.
    Leave = 2,
    /// Invalidate everything.
    All = 3,
}

impl IpiOp {
    pub(crate) const ALL: [IpiOp; 4] = [IpiOp::Pages, IpiOp::Space, IpiOp::Leave, IpiOp::All];
}

/// The request in flight.
pub(crate) struct Shootdown<M: Machine> {
    /// Held by the initiator until all have answered.
    pub(crate) ipi_lock: M::Lock<()>,
    pub(crate) op: AtomicU32,
    /// The address space, or the kernel's.
    pub(crate) space: AtomicU32,
    /// Its tag, where that is the same on all CPUs.
    pub(crate) asid: AtomicU32,
    pub(crate) ranges: AtomicU32,
    pub(crate) starts: [AtomicU64; MAX_RANGES],
    pub(crate) ends: [AtomicU64; MAX_RANGES],
    /// The CPUs that have not answered yet.
    pub(crate) pending: AtomicU64,
    /// The modelled address of all this.
    pub(crate) at: StructVa,
}

impl<M: Machine> Shootdown<M> {
    pub(crate) fn new(machine: &M, at: StructVa) -> Shootdown<M> {
        Shootdown {
            ipi_lock: machine.new_lock(LockClass::SHOOTDOWN, ()),
            op: AtomicU32::new(0),
            space: AtomicU32::new(0),
            asid: AtomicU32::new(0),
            ranges: AtomicU32::new(0),
            starts: Default::default(),
            ends: Default::default(),
            pending: AtomicU64::new(0),
            at,
        }
    }
}
