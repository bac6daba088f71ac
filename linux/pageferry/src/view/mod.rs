//! What each side sees of a pool, and who may touch what of it.
//!
//! # What it holds
//! A *pool* is a memfd of slots of equal size. [`SenderView`] is its owner's view: shared and writable where
//! a slot is *open*, a private view of the same bytes where it is *frozen*, nothing where it was given away.
//! [`ReceiverView`] is the peer's: private, read-only until a message is to be written to. [`Anonymous`] is
//! memory of this process alone, [`Snapshot`] a view of sealed memory. Of a leased channel the receiver owns the
//! slots: `leased_receiver` and `leased_sender`. Memory without a channel is [`Filling`] to its owner, who
//! fills it as a [`Block`], and [`Counted`] to those who read it.
//!
//! # Who may touch what
//! A [`Run`] is the right to some slots of one view. Only the view makes it, for slots that no other run has;
//! it cannot be cloned. References into a view are given for a run, by the rules for references to the run:
//! `&Run` to read, `&mut Run` to write or to change what is mapped. That is all that keeps this process from
//! aliasing. What keeps the *other* process from writing is said at each function that gives a reference.
//!
//! # Locks
//! A view's table of slots has one, taken for the time of a look-up and never while the kernel is called.
#![allow(unsafe_code, reason = "references into mapped memory; each block says why it is sound")]

mod anonymous;
mod block;
mod counted;
mod filling;
mod leased_receiver;
mod leased_sender;
mod receiver;
mod sender;
mod slots;
mod snapshot;
#[cfg(test)]
mod tests;

pub(crate) use anonymous::{Anonymous, Recycled};
pub use block::{Block, Handle};
pub use counted::Counted;
pub(crate) use filling::Filling;
pub(crate) use leased_receiver::MAX_LEASED_SLOTS;
#[cfg(feature = "verify")]
pub use leased_receiver::look_at_leases;
pub(crate) use receiver::{Access, ReceiverView};
pub(crate) use sender::{SenderView, offered};
pub(crate) use slots::{Reuse, Run, Slots};
pub(crate) use snapshot::{Draft, Snapshot};

use crate::error::{Error, Usage};
use crate::host::Host;
use crate::sys;
use crate::sys::map::Region;

/// Makes the pages of a new shared mapping; whether they are huge. One byte in each huge page is enough to have it
/// made, and far cheaper than to have it made of filled small pages.
///
/// # Safety
/// The region is mapped writable, and nobody has a reference into it.
unsafe fn make_huge(region: &Region, host: &Host) -> bool {
    let len = region.len();
    // SAFETY: as the caller promises.
    unsafe {
        if host.huge() && len.is_multiple_of(host.slot_align()) {
            region.populate(0, len, host.slot_align());
            if region.collapse(0, len).is_ok() && host.is_huge(region, 0, len) {
                region.touch(0, len, host.slot_align());
                return true;
            }
        }
        region.populate(0, len, sys::page_bytes());
    }
    false
}

/// The shape of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) slots: u32,
    pub(crate) slot_bytes: usize,
}

impl Geometry {
    /// Slots of a pool, at most.
    pub(crate) const MAX_SLOTS: u32 = 4096;

    /// Bytes of the pool; `None` where no address space would hold it.
    pub(crate) fn checked_bytes(&self) -> Option<usize> {
        self.slot_bytes.checked_mul(self.slots as usize).filter(|&bytes| bytes <= isize::MAX as usize / 4)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.checked_bytes().expect("a pool's size was checked when its shape was")
    }

    /// Slots that `len` bytes take.
    pub(crate) fn slots_for(&self, len: usize) -> Result<u32, Error> {
        if len == 0 {
            return Err(Usage::Empty.into());
        }
        if len > self.bytes() {
            return Err(Usage::TooLong { len: len as u64, pool: self.bytes() as u64 }.into());
        }
        Ok(len.div_ceil(self.slot_bytes) as u32)
    }

    fn offset(&self, run: &Run) -> usize {
        run.first() as usize * self.slot_bytes
    }

    fn len(&self, run: &Run) -> usize {
        run.slots() as usize * self.slot_bytes
    }
}
