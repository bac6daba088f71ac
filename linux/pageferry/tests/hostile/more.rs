//! What hostile peers need beyond the raw peer.

use std::os::fd::{AsRawFd as _, OwnedFd};

/// Whether the kernel maps a file, shared and writable.
pub fn can_map(fd: &OwnedFd, len: usize) -> bool {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses addresses at which nothing is mapped, and nobody uses them.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    at != libc::MAP_FAILED
}

/// Maps once more what is mapped at an address, which no seal forbids. It stays for ever.
pub fn remap(at: *mut u8, len: usize) -> Option<*mut u8> {
    // SAFETY: an old length of zero leaves the old map and makes another, where the kernel chooses.
    let again = unsafe { libc::mremap(at.cast(), 0, len, libc::MREMAP_MAYMOVE) };
    (again != libc::MAP_FAILED).then_some(again.cast())
}
