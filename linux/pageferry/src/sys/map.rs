//! Ranges of addresses, and what the kernel can put behind them.
//!
//! # What it holds
//! [`Region`]: a range that this process has reserved. It goes back to the kernel when the region is dropped.
//! Every call names a part of it by offset and length, both in bytes; a part that is not inside panics, since
//! only the library's own arithmetic can have made it.
//!
//! # Safety
//! Calls that replace or protect what is mapped are `unsafe`: nobody may hold a reference into the part whose
//! meaning the call changes. The views (`crate::view`) keep that: they own the region, and give references
//! only for runs of slots that they know to be open.

use super::{Errno, Failed, Named, Result, fork, may_fail};
use core::ptr::NonNull;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;

/// What a mapping permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prot {
    None,
    Read,
    ReadWrite,
}

impl Prot {
    fn map(self) -> ProtFlags {
        match self {
            Prot::None => ProtFlags::empty(),
            Prot::Read => ProtFlags::READ,
            Prot::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }

    fn protect(self) -> MprotectFlags {
        match self {
            Prot::None => MprotectFlags::empty(),
            Prot::Read => MprotectFlags::READ,
            Prot::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        }
    }
}

/// A reserved range of addresses.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    /// What was reserved around it, so that the base is aligned.
    reserved: (NonNull<c_void>, usize),
}

// SAFETY: a region is a range of addresses; all threads of a process see the same behind it. Who may touch it
// is the views' business.
unsafe impl Send for Region {}
// SAFETY: as above; no call through `&Region` has state of its own.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes of addresses, aligned to `align` (a power of two, at least a page). Nothing is
    /// behind them: a touch is a fault.
    pub(crate) fn reserve(len: usize, align: usize) -> Result<Region> {
        may_fail("mmap")?;
        assert!(len > 0 && align.is_power_of_two(), "a region has a length and an alignment");
        let whole = len.checked_add(align).ok_or(Failed { call: "mmap", errno: Errno::NOMEM })?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses addresses at which nothing is mapped.
        let at =
            unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), whole, ProtFlags::empty(), flags) };
        let at = NonNull::new(at.of("mmap")?).ok_or(Failed { call: "mmap", errno: Errno::NOMEM })?;
        let skip = at.as_ptr().align_offset(align);
        // SAFETY: `skip < align`, so the base and the `len` bytes behind it lie within what was reserved.
        let base = unsafe { at.cast::<u8>().add(skip) };
        Ok(Region { base, len, reserved: (at, whole) })
    }

    /// Maps `len` bytes of a file, copy-on-write, at addresses that the kernel chooses, or at some that are aligned to
    /// `align`. Nothing is reserved around them: a process may have only so many mappings.
    pub(crate) fn of_file(fd: BorrowedFd<'_>, len: usize, align: usize) -> Result<Region> {
        may_fail("mmap")?;
        let (prot, flags) = (Prot::ReadWrite.map(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        if align <= super::page_bytes() {
            // SAFETY: the kernel chooses addresses at which nothing is mapped.
            let at =
                unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, prot, flags, fd, 0) }.of("mmap")?;
            let at = NonNull::new(at).ok_or(Failed { call: "mmap", errno: Errno::NOMEM })?;
            return Ok(Region { base: at.cast(), len, reserved: (at, len) });
        }
        let mut region = Region::reserve(len, align)?;
        // SAFETY: the region is new.
        unsafe { region.map_private(0, len, Prot::ReadWrite, fd, 0)? };
        let (at, whole) = region.reserved;
        let head = region.base.as_ptr() as usize - at.as_ptr() as usize;
        for (at, len) in [(at.as_ptr(), head), (region.at(len).cast(), whole - head - len)] {
            if len > 0 {
                // SAFETY: the margins of what was reserved, which nobody uses. Where this fails they stay reserved.
                let _ = unsafe { rustix::mm::munmap(at, len) };
            }
        }
        region.reserved = (region.base.cast(), len);
        Ok(region)
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of `offset`. Dereferencing it is the caller's affair.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "an offset lies in its region");
        // SAFETY: the result is within the region, or one past it.
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn part(&self, offset: usize, len: usize) -> *mut c_void {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a part lies in its region");
        self.at(offset).cast()
    }

    /// Maps `len` bytes of a file at `file_offset`, shared with all who map them, at `offset`.
    ///
    /// # Safety
    /// Nobody holds a reference into the part.
    pub(crate) unsafe fn map_shared(
        &self,
        offset: usize,
        len: usize,
        prot: Prot,
        fd: BorrowedFd<'_>,
        file_offset: u64,
    ) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.map(offset, len, prot, MapFlags::SHARED, Some((fd, file_offset))) }
    }

    /// The same from the start of the file, and not in children: none is made between the two calls.
    ///
    /// # Safety
    /// As for [`Region::map_shared`].
    pub(crate) unsafe fn map_shared_here(
        &self,
        offset: usize,
        len: usize,
        prot: Prot,
        fd: BorrowedFd<'_>,
    ) -> Result<()> {
        fork::without_children(|| {
            // SAFETY: as the caller promises.
            unsafe { self.map_shared(offset, len, prot, fd, 0)? };
            self.dont_fork(offset, len)
        })
    }

    /// Maps a file, or zero pages where there is none.
    ///
    /// # Safety
    /// Nobody holds a reference into the part that what is mapped now would not serve.
    unsafe fn map(
        &self,
        offset: usize,
        len: usize,
        prot: Prot,
        flags: MapFlags,
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> Result<()> {
        may_fail("mmap")?;
        let at = self.part(offset, len);
        let (prot, flags) = (prot.map(), flags | MapFlags::FIXED);
        // SAFETY: `FIXED` replaces only pages of this region; references into them are the caller's promise.
        let mapped = unsafe {
            match file {
                Some((fd, file_offset)) => rustix::mm::mmap(at, len, prot, flags, fd, file_offset),
                None => rustix::mm::mmap_anonymous(at, len, prot, flags),
            }
        };
        mapped.of("mmap")?;
        Ok(())
    }

    /// Maps `len` bytes of a file at `file_offset`, copy-on-write, at `offset`. Until it is written, a page
    /// shows the file's bytes.
    ///
    /// # Safety
    /// As for [`Region::map_shared`], but references to bytes that stay the same may go on.
    pub(crate) unsafe fn map_private(
        &self,
        offset: usize,
        len: usize,
        prot: Prot,
        fd: BorrowedFd<'_>,
        file_offset: u64,
    ) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as the caller promises.
        unsafe { self.map(offset, len, prot, flags, Some((fd, file_offset))) }
    }

    /// Puts fresh zero pages of this process at `offset`.
    ///
    /// # Safety
    /// As for [`Region::map_shared`].
    pub(crate) unsafe fn map_anonymous(&self, offset: usize, len: usize, prot: Prot) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as the caller promises.
        unsafe { self.map(offset, len, prot, flags, None) }
    }

    /// Maps once more, at `offset` of this region, what lies shared at `from` of another. The seal
    /// FUTURE_WRITE does not stop it, so whoever had a shared mapping once can have another.
    ///
    /// # Safety
    /// As for [`Region::map_shared`]. All of `from` is one shared mapping.
    pub(crate) unsafe fn alias(&self, offset: usize, len: usize, from: &Region, at: usize) -> Result<()> {
        may_fail("mremap")?;
        let from = from.part(at, len);
        let to = self.part(offset, len);
        // SAFETY: an old length of zero leaves the old mapping and makes another; the new one replaces pages
        // of this region only.
        unsafe { rustix::mm::mremap_fixed(from, 0, len, MremapFlags::MAYMOVE, to) }.of("mremap")?;
        Ok(())
    }

    /// Changes what the part permits.
    ///
    /// # Safety
    /// Nobody holds a reference that the new protection would not serve.
    pub(crate) unsafe fn protect(&self, offset: usize, len: usize, prot: Prot) -> Result<()> {
        may_fail("mprotect")?;
        let at = self.part(offset, len);
        // SAFETY: the pages are this region's; references are the caller's promise.
        unsafe { rustix::mm::mprotect(at, len, prot.protect()) }.of("mprotect")
    }

    /// Forgets what was written to a private mapping: the file's bytes show again.
    ///
    /// # Safety
    /// Nobody holds a reference into the part.
    pub(crate) unsafe fn dont_need(&self, offset: usize, len: usize) -> Result<()> {
        may_fail("MADV_DONTNEED")?;
        let at = self.part(offset, len);
        // SAFETY: as the caller promises.
        unsafe { rustix::mm::madvise(at, len, Advice::LinuxDontNeed) }.of("MADV_DONTNEED")
    }

    /// Makes each page of a private mapping that is writable one of this process's own, with the bytes that it has.
    /// Other threads may read and write it meanwhile.
    pub(crate) fn make_own(&self, offset: usize, len: usize) -> Result<()> {
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        may_fail("MADV_POPULATE_WRITE")?;
        let at = self.part(offset, len);
        // SAFETY: contents and protection stay.
        super::checked(unsafe { libc::madvise(at, len, MADV_POPULATE_WRITE) }, "MADV_POPULATE_WRITE")?;
        Ok(())
    }

    /// Keeps the part out of children that `fork` makes.
    pub(crate) fn dont_fork(&self, offset: usize, len: usize) -> Result<()> {
        may_fail("MADV_DONTFORK")?;
        let at = self.part(offset, len);
        // SAFETY: changes nothing in this process.
        unsafe { rustix::mm::madvise(at, len, Advice::LinuxDontFork) }.of("MADV_DONTFORK")
    }

    /// The part as a child sees it who maps it copy-on-write, piece by piece, from the start of a file.
    pub(crate) fn in_children(
        &self,
        offset: usize,
        len: usize,
        piece: usize,
        file: &OwnedFd,
    ) -> fork::Memory {
        fork::Memory::new(self.part(offset, len).cast(), len, piece, file)
    }

    /// Has the kernel keep each piece in a mapping (VMA) of its own. Neighbours of equal rights would be joined, and a
    /// piece whose rights change split off again, which takes longer than the change itself: 6 us in place of 2.3 for a
    /// pair of changes. Mappings are not joined where their advice differs, and what is told here of every second piece
    /// means nothing for memory.
    pub(crate) fn keep_apart(&self, piece: usize) {
        for offset in (piece..self.len).step_by(2 * piece) {
            let at = self.part(offset, piece.min(self.len - offset));
            // SAFETY: contents and protection stay. Where it fails, pieces are joined and split.
            let _ = unsafe { rustix::mm::madvise(at, piece.min(self.len - offset), Advice::Random) };
        }
    }

    /// Asks for huge pages, as they come.
    pub(crate) fn want_huge(&self, offset: usize, len: usize) {
        let at = self.part(offset, len);
        // SAFETY: contents stay. An error means small pages, which serve as well.
        let _ = unsafe { rustix::mm::madvise(at, len, Advice::LinuxHugepage) };
    }

    /// Reads the first byte of each `step` bytes, so that translations are there.
    ///
    /// # Safety
    /// The part is readable.
    pub(crate) unsafe fn touch(&self, offset: usize, len: usize, step: usize) {
        for at in (offset..offset + len).step_by(step) {
            // SAFETY: within the region, and readable as the caller promises. Volatile: others may write it,
            // and the value is dropped.
            unsafe { self.at(at).read_volatile() };
        }
    }

    /// Writes the first byte of each `step` bytes back as it is, so that pages of memory are there.
    ///
    /// # Safety
    /// The part is writable, and nobody else uses it.
    pub(crate) unsafe fn populate(&self, offset: usize, len: usize, step: usize) {
        for at in (offset..offset + len).step_by(step) {
            let at = self.at(at);
            // SAFETY: as the caller promises.
            unsafe { at.write_volatile(at.read_volatile()) };
        }
    }

    /// Collapses the part to huge pages. The kernel's word is no proof: see `pages::huge_bytes`.
    pub(crate) fn collapse(&self, offset: usize, len: usize) -> Result<()> {
        const MADV_COLLAPSE: libc::c_int = 25;
        may_fail("MADV_COLLAPSE")?;
        let at = self.part(offset, len);
        // SAFETY: contents and protection stay.
        super::checked(unsafe { libc::madvise(at, len, MADV_COLLAPSE) }, "MADV_COLLAPSE")?;
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let (at, len) = self.reserved;
        // SAFETY: the region owned these addresses; views that gave references into them outlive those.
        let _ = unsafe { rustix::mm::munmap(at.as_ptr(), len) };
    }
}
