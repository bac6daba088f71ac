//! Memory of a block, as those have it who read it.
//!
//! # What it holds
//! [`Counted`]: a private mapping of memory that came by a descriptor, and not the descriptor. The kernel counts the
//! mapping as a reader for as long as it is there, in this process or in a child. What is written to it stays here.
//!
//! # What is looked at
//! A peer may send any descriptor. It must be memory that cannot shrink, or reading it could end this process; and of a
//! size that the receiver allows.
//!
//! # Why it gives no references by itself
//! Its owner could still write. One that runs this library does not, but nothing keeps another one from it. So the
//! bytes come as a copy ([`Counted::copy_out`]), by their address, or by an `unsafe` call.

use crate::error::{Broken, Error};
use crate::sys::copy::{self, Stores};
use crate::sys::map::Region;
use crate::sys::pages::MAX_SLOT_ALIGN;
use crate::sys::{self, memfd};
use core::mem::MaybeUninit;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::SealFlags;

/// A view of a block that another process has filled: private, copy-on-write. When it is dropped, and all others of the
/// block are, its owner may use the block again.
#[derive(Debug)]
pub struct Counted {
    region: Region,
}

impl Counted {
    /// Maps what came, if it is a block of at most `max` bytes, and closes the descriptor.
    pub fn open(fd: OwnedFd, max: u64) -> Result<Counted, Error> {
        let what = "block";
        let size = |found| Broken::Size { what, found, expected: max };
        // Nothing but memory has seals, and no call that comes before waits for what is behind the descriptor.
        if !memfd::seals(&fd)?.contains(SealFlags::SHRINK) && !planted!(NoSealCheck) {
            return Err(Broken::NotSealed { what }.into());
        }
        if memfd::is_of_huge_pages(&fd)? {
            return Err(Broken::NotSealed { what }.into());
        }
        let found = memfd::len(&fd)?;
        if found == 0 || (found > max && !planted!(NoBudgetCheck)) {
            return Err(size(found).into());
        }
        let len = usize::try_from(found).map_err(|_| size(found))?;
        let page = sys::page_bytes();
        if !len.is_multiple_of(page) {
            return Err(size(found).into());
        }
        let align = if len.is_multiple_of(MAX_SLOT_ALIGN) { MAX_SLOT_ALIGN.max(page) } else { page };
        Counted::map(fd.as_fd(), len, align)
    }

    /// Maps a block of this process's own.
    pub(super) fn map(fd: BorrowedFd<'_>, len: usize, align: usize) -> Result<Counted, Error> {
        Ok(Counted { region: Region::of_file(fd, len, align)? })
    }

    /// Bytes of the block: at least those that were filled.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Never: a block has a page at least.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where it lies: readable and writable for as long as this value lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.at(0)
    }

    /// Copies the bytes at `offset` out, each of which is read once.
    ///
    /// # Panics
    /// If they are not in the block.
    pub fn copy_out(&self, offset: usize, to: &mut [MaybeUninit<u8>]) {
        assert!(
            offset.checked_add(to.len()).is_some_and(|end| end <= self.len()),
            "a part lies in its block"
        );
        // SAFETY: mapped readable, and the file cannot shrink.
        unsafe { copy::out_of(to, self.region.at(offset), Stores::Ordinary) }
    }

    /// The bytes.
    ///
    /// # Safety
    /// Its owner runs this library, or does not write to the block while anybody has it; and nobody writes by
    /// [`Counted::as_ptr`] while the reference lives.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as the region lives; that nobody writes is the caller's promise.
        unsafe { core::slice::from_raw_parts(self.region.at(0), self.region.len()) }
    }
}
