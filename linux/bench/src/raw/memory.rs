//! Memory of this process, or shared with the other.

use crate::error::{Calls as _, Result};
use core::ptr::NonNull;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};

const HUGE: usize = 2 << 20;

/// Mapped memory, aligned to huge pages, all of it there.
#[derive(Debug)]
pub(crate) struct Memory {
    at: NonNull<u8>,
    len: usize,
    reserved: (NonNull<core::ffi::c_void>, usize),
    fd: Option<OwnedFd>,
}

// SAFETY: a range of addresses that this value owns.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory of this process alone, with huge pages where the kernel gives them.
    pub(crate) fn own(len: usize) -> Result<Memory> {
        Memory::map(len, None)
    }

    /// Memory that can be shared, with huge pages where the kernel gives them.
    pub(crate) fn shared(len: usize) -> Result<Memory> {
        let flags = MemfdFlags::CLOEXEC;
        let fd = rustix::fs::memfd_create("pageferry-bench", flags).call("memfd_create")?;
        rustix::fs::ftruncate(&fd, len.next_multiple_of(HUGE) as u64).call("ftruncate")?;
        Memory::map(len, Some(fd))
    }

    /// What the other process shares.
    pub(crate) fn of(fd: OwnedFd) -> Result<Memory> {
        let len = rustix::fs::fstat(&fd).call("fstat")?.st_size as usize;
        Memory::map(len, Some(fd))
    }

    fn map(len: usize, fd: Option<OwnedFd>) -> Result<Memory> {
        let len = len.next_multiple_of(HUGE);
        let whole = len + HUGE;
        let null = core::ptr::null_mut();
        let (none, rw) = (ProtFlags::empty(), ProtFlags::READ | ProtFlags::WRITE);
        let private = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses addresses at which nothing is mapped.
        let base = unsafe { rustix::mm::mmap_anonymous(null, whole, none, private) }.call("mmap")?;
        let skip = base.align_offset(HUGE);
        // SAFETY: `skip < HUGE`, so the result and `len` bytes behind it lie within what was reserved.
        let at = unsafe { base.byte_add(skip) };
        // SAFETY: replaces what was reserved just now.
        let mapped = unsafe {
            match &fd {
                Some(fd) => rustix::mm::mmap(at, len, rw, MapFlags::SHARED | MapFlags::FIXED, fd.as_fd(), 0),
                None => rustix::mm::mmap_anonymous(at, len, rw, private | MapFlags::FIXED),
            }
        };
        mapped.call("mmap")?;
        let memory = Memory {
            at: NonNull::new(at.cast()).expect("the kernel maps nothing at 0"),
            len,
            reserved: (NonNull::new(base).expect("the kernel maps nothing at 0"), whole),
            fd,
        };
        memory.make_huge();
        Ok(memory)
    }

    /// Small pages serve as well, and slower.
    fn make_huge(&self) {
        const MADV_COLLAPSE: libc::c_int = 25;
        let at = self.at.as_ptr();
        // SAFETY: contents stay.
        let _ = unsafe { rustix::mm::madvise(at.cast(), self.len, Advice::LinuxHugepage) };
        self.touch(HUGE);
        // SAFETY: as above.
        unsafe { libc::madvise(at.cast(), self.len, MADV_COLLAPSE) };
        self.touch(4096);
    }

    /// Writes a byte of each `step` back as it is. (Both processes do it, one after the other.)
    fn touch(&self, step: usize) {
        for at in (0..self.len).step_by(step) {
            // SAFETY: within the mapping, which is writable; nobody has a reference yet.
            unsafe {
                let at = self.at.as_ptr().add(at);
                at.write_volatile(at.read_volatile());
            }
        }
    }

    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    pub(crate) fn address(&self) -> u64 {
        self.at.as_ptr() as u64
    }

    fn part(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: within the mapping.
        unsafe { self.at.as_ptr().add(at) }
    }

    /// For the one whose turn it is.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: mapped and initialised for as long as the value lives; by the turns nobody writes it.
        unsafe { core::slice::from_raw_parts(self.part(at, len), len) }
    }

    /// For the one whose turn it is.
    pub(crate) fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        // SAFETY: as above; `&mut self`, and by the turns the other process does not touch it.
        unsafe { core::slice::from_raw_parts_mut(self.part(at, len), len) }
    }

    /// The start, as words that both processes use at once.
    pub(super) fn words(&self) -> &[core::sync::atomic::AtomicU32] {
        // SAFETY: mapped, aligned, and used as atomic words only.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr().cast(), 4096 / 4) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (at, len) = self.reserved;
        // SAFETY: the value owned these addresses.
        let _ = unsafe { rustix::mm::munmap(at.as_ptr(), len) };
    }
}
