//! Memory of a block, as its owner has it.
//!
//! # What it holds
//! [`Filling`]: a memfd that this process alone can write, mapped shared, with its pages made. It cannot shrink or
//! grow. Others get descriptors for reading, each a file of its own to the kernel, which counts them wherever they are:
//! open, mapped, in the queue of a socket, in a child. [`Filling::is_alone`] asks for that count.
//!
//! # Children
//! A child that `fork` makes has neither the mapping nor the descriptors; what of it is dropped there frees nothing.
//!
//! # Why references hold
//! Whoever has a `Filling` is the only one who writes to it. References are given by the rules for references to it,
//! and its owner keeps it from being written for as long as somebody reads it.

use super::make_huge;
use crate::error::Error;
use crate::host::Host;
use crate::sys::copy::{self, Stores};
use crate::sys::fork::{self, Own, Registration};
use crate::sys::map::{Prot, Region};
use crate::sys::{self, Failed, lease, memfd};
use core::mem::ManuallyDrop;
use rustix::fd::AsFd as _;
use rustix::fs::{OFlags, SealFlags};

/// A memfd of this process, and its mapping.
#[derive(Debug)]
pub(crate) struct Filling {
    file: Own,
    region: ManuallyDrop<Region>,
    generation: u32,
}

impl Filling {
    /// Bytes that are made for `len` bytes: four sizes from one power of two to the next, so that blocks fit again.
    pub(crate) fn whole(len: usize, host: &Host) -> Option<usize> {
        let huge = host.slot_align().max(sys::page_bytes());
        let min = sys::page_bytes().max(16 << 10);
        let step = len.max(1).checked_next_power_of_two()?.div_ceil(8).max(min);
        let of = if len >= huge / 2 { step.max(huge) } else { step };
        len.max(1).checked_next_multiple_of(of).filter(|&whole| whole <= isize::MAX as usize / 4)
    }

    /// Makes zero memory of `whole` bytes.
    pub(crate) fn new(whole: usize, host: &Host) -> Result<Filling, Error> {
        let file = Own::new(|| {
            let original = memfd::create("pageferry-block", whole)?;
            memfd::seal(&original, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            if !host.proc() {
                return Ok(original);
            }
            // The original can write, and the kernel does not count it as a writer.
            memfd::reopen(original.as_fd(), OFlags::RDWR)
        })?;
        let huge = host.slot_align().max(sys::page_bytes());
        let align = if whole.is_multiple_of(huge) { huge } else { sys::page_bytes() };
        let region = Region::reserve(whole, align)?;
        // SAFETY: the region is new. All memory is there from now on, so that a limit of memory bites here and not in a
        // store.
        unsafe {
            region.map_shared_here(0, whole, Prot::ReadWrite, file.as_fd())?;
            make_huge(&region, host);
        }
        Ok(Filling { file, region: ManuallyDrop::new(region), generation: fork::generation() })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.region.len()
    }

    /// A child has the bytes at the same addresses, copy-on-write, for as long as the answer is kept: references of its
    /// parent's find them there.
    /// They map it by `reader`, and are counted.
    pub(crate) fn seen_by_children(&self, reader: &Own) -> Registration {
        let len = self.region.len();
        fork::register_memory(self.region.in_children(0, len, len, reader.fd()))
    }

    /// A descriptor for reading, which is counted.
    pub(crate) fn reader(&self, host: &Host) -> Result<Own, Failed> {
        Own::new(|| match memfd::reopen(self.file.as_fd(), OFlags::RDONLY) {
            // Nothing is counted on such a host, and no block used again: the receiver gets what there is.
            Err(_) if !host.can_count() => rustix::io::fcntl_dupfd_cloexec(self.file.as_fd(), 0)
                .map_err(|errno| Failed { call: "F_DUPFD_CLOEXEC", errno }),
            other => other,
        })
    }

    /// Whether nobody else has it, to read or to write. A kernel that does not say so has it with somebody for ever.
    pub(crate) fn is_alone(&self) -> bool {
        planted!(NoReaderCheck) || lease::is_alone(self.file.fd()).unwrap_or(false)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives, also in a child that can have a reference; nobody else writes.
        unsafe { core::slice::from_raw_parts(self.region.at(0), self.region.len()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is alone.
        unsafe { core::slice::from_raw_parts_mut(self.region.at(0), self.region.len()) }
    }

    /// Copies `len` bytes in.
    ///
    /// # Safety
    /// They are mapped for reading, and are not part of this memory. Others may write them meanwhile.
    pub(crate) unsafe fn copy_in(&mut self, offset: usize, from: *const u8, len: usize, stores: Stores) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len()));
        // SAFETY: the destination is within the region, and `&mut self` is alone; the rest is the caller's promise.
        unsafe { copy::between(self.region.at(offset), from, len, stores) }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        // What lies at these addresses of a child is something else.
        if self.generation == fork::generation() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.region) };
        }
    }
}
