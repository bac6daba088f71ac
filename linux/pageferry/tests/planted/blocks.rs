//! Memory without a channel.

use crate::children::in_child;
use crate::{Found, holds};
use pageferry::{Arena, Counted, Handle};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd as _, OwnedFd};

const LEN: usize = 100_000;

fn lent(arena: &Arena, byte: u8) -> Handle {
    let mut block = arena.block(LEN).unwrap();
    block.fill(byte);
    block.lend().unwrap()
}

/// What somebody reads is not written.
pub fn reader() -> Found {
    let arena = Arena::new();
    let handle = lent(&arena, 1);
    let counted = Counted::open(handle.as_fd().try_clone_to_owned().unwrap(), 1 << 30).unwrap();
    drop(handle);
    lent(&arena, 2);
    // SAFETY: a block is not written while it is lent, or the check is to find that it is.
    let first = unsafe { counted.as_ptr().read_volatile() };
    holds(first == 1)
}

/// A child that its parent outlives would keep the memory.
pub fn child() -> Found {
    let arena = Arena::new();
    lent(&arena, 1);
    let none = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
        let mut links = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        !links.any(|link| link.to_string_lossy().contains("pageferry-block"))
    };
    if none() || std::fs::read_dir("/proc/self/fd").is_err() {
        return Found::NotHere;
    }
    in_child(none)
}

fn memfd(len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    fd
}

/// What can be made shorter would end the process that reads it.
pub fn unsealed() -> Found {
    holds(Counted::open(memfd(1 << 20), 1 << 30).is_err())
}

/// A peer decides not how much is mapped.
pub fn budget() -> Found {
    let fd = memfd(2 << 20);
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    holds(Counted::open(fd, 1 << 20).is_err())
}
