//! Memory that io_uring has pinned: the kernel writes to it, whatever mappings and descriptors are left.
//!
//! Programs of tests take this file in by `#[path]`.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// `struct io_uring_params`, as words: first the shape, then where things are in the two rings.
type Params = [u32; 30];

const FEATURES: usize = 5;
const SQ_TAIL: usize = 11;
const SQ_ARRAY: usize = 16;
const SQ_ENTRIES: usize = 0;
const CQ_TAIL: usize = 21;
const CQES: usize = 25;
const CQ_ENTRIES: usize = 1;

const SINGLE_MMAP: u32 = 1;
const SQES: i64 = 0x1000_0000;
const READ_FIXED: u8 = 4;

fn setup() -> Option<(OwnedFd, Params)> {
    let mut params: Params = [0; 30];
    // SAFETY: the kernel writes 120 bytes.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    // SAFETY: the kernel has just made it for us.
    (fd >= 0).then(|| (unsafe { OwnedFd::from_raw_fd(fd as i32) }, params))
}

/// Whether this host lets a process have a ring; many do not.
pub fn is_here() -> bool {
    setup().is_some_and(|(_, params)| params[FEATURES] & SINGLE_MMAP != 0)
}

/// Memory that stays pinned for as long as this lives.
#[derive(Debug)]
pub struct Pinned {
    fd: OwnedFd,
    params: Params,
    rings: *mut u8,
    entries: *mut u8,
    at: *mut u8,
}

impl Pinned {
    /// Pins a mapping. It must be one that this process may write to.
    pub fn new(at: *mut u8, len: usize) -> std::io::Result<Pinned> {
        let (fd, params) = setup().expect("there is a ring where `is_here` says so");
        let map = |len: usize, offset| {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the kernel chooses addresses at which nothing is mapped. They stay for ever.
            let at = unsafe {
                libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd.as_raw_fd(), offset)
            };
            assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            at.cast::<u8>()
        };
        let sq = params[SQ_ARRAY] + 4 * params[SQ_ENTRIES];
        let cq = params[CQES] + 16 * params[CQ_ENTRIES];
        let rings = map(sq.max(cq) as usize, 0);
        let entries = map(64 * params[SQ_ENTRIES] as usize, SQES);
        let memory = libc::iovec { iov_base: at.cast(), iov_len: len };
        // SAFETY: the kernel reads one range, and pins its pages.
        let answer =
            unsafe { libc::syscall(libc::SYS_io_uring_register, fd.as_raw_fd(), 0, &raw const memory, 1) };
        if answer != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Pinned { fd, params, rings, entries, at })
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: within the rings, aligned, and shared with the kernel as an atomic number.
        unsafe { AtomicU32::from_ptr(self.rings.add(offset as usize).cast()) }
    }

    /// Has the kernel store bytes there, at an offset.
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, bytes).unwrap();
        let mut entry = [0u64; 8];
        entry[0] = u64::from(READ_FIXED) | (read.as_raw_fd() as u64) << 32;
        entry[2] = self.at as u64 + offset as u64;
        entry[3] = bytes.len() as u64;
        let tail = self.word(self.params[SQ_TAIL]);
        let done = self.word(self.params[CQ_TAIL]);
        let before = done.load(Ordering::Acquire);
        // SAFETY: the ring has one entry, which the kernel does not use now.
        unsafe { self.entries.cast::<[u64; 8]>().write_volatile(entry) };
        self.word(self.params[SQ_ARRAY]).store(0, Ordering::Relaxed);
        tail.store(tail.load(Ordering::Relaxed) + 1, Ordering::Release);
        let fd = self.fd.as_raw_fd();
        // SAFETY: plain numbers: one entry goes in, one comes out.
        let answer = unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, 1, 1, 1, 0, 0) };
        assert_eq!(answer, 1, "{}", std::io::Error::last_os_error());
        assert_eq!(done.load(Ordering::Acquire), before + 1);
        let result = self.params[CQES] + 16 * (before % self.params[CQ_ENTRIES]) + 8;
        assert_eq!(self.word(result).load(Ordering::Relaxed), bytes.len() as u32);
    }
}
