//! What hostile peers need beyond the raw peer.

use crate::peer::{self, Plan};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// What a plan says in bytes.
pub trait Bytes {
    fn forward_bytes(&self) -> u64;
    fn reverse_bytes(&self) -> u64;
    fn pool_bytes(&self) -> u64;
    /// Takes the shapes that a sender has said in its greeting.
    fn learn(&mut self, hello: &[u8]);
}

impl Bytes for Plan {
    fn forward_bytes(&self) -> u64 {
        let bytes = 4096 + u64::from(self.capacity) * (64 + u64::from(self.inline_bytes));
        bytes.next_multiple_of(peer::page_bytes())
    }

    fn reverse_bytes(&self) -> u64 {
        (4096 + u64::from(self.capacity) * 16).next_multiple_of(peer::page_bytes())
    }

    fn pool_bytes(&self) -> u64 {
        u64::from(self.slots) * self.slot_bytes
    }

    fn learn(&mut self, hello: &[u8]) {
        let u32_at = |at: usize| u32::from_ne_bytes(hello[at..at + 4].try_into().unwrap());
        self.capacity = u32_at(32);
        self.inline_bytes = u32_at(36);
        self.slots = u32_at(40);
        self.slot_bytes = u64::from_ne_bytes(hello[48..56].try_into().unwrap());
    }
}

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
