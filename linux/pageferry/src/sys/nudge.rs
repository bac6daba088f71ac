//! Wakes a thread that waits for descriptors, from within its own process.
//!
//! # What it holds
//! An eventfd that never leaves the process, and whether somebody wants to be told. Who waits says so with
//! [`Nudge::want`], looks once more, and then polls the descriptor beside its others. Who has news calls
//! [`Nudge::tell`] *after* what it tells of is there to be seen. The two go by one SeqCst flag and by the lock around
//! what is looked at, so one of them sees the other. A system call is made only where somebody wants to be told.

use super::{Named, Result, may_fail};
use crate::sync::AtomicBool;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// An eventfd, and whether somebody waits by it.
#[derive(Debug)]
pub(crate) struct Nudge {
    fd: OwnedFd,
    wanted: AtomicBool,
}

impl Nudge {
    pub(crate) fn new() -> Result<Nudge> {
        may_fail("eventfd")?;
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).of("eventfd")?;
        Ok(Nudge { fd, wanted: AtomicBool::new(false) })
    }

    /// The next news wakes whoever polls. Look once more, then poll.
    pub(crate) fn want(&self) {
        // Whoever has just cleared it tells.
        if !self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(true, Ordering::SeqCst);
        }
    }

    /// Whoever wanted to be told is awake, and looks by itself: to tell it would be a system call for nothing. Called
    /// by the thread that wanted it.
    pub(crate) fn withdraw(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// There is news.
    pub(crate) fn tell(&self) {
        if self.wanted.swap(false, Ordering::SeqCst) && !planted!(NoNudge) {
            self.wake();
        }
    }

    /// Wakes whoever polls, wanted or not.
    pub(crate) fn wake(&self) {
        // It fails only where the count is full, and then it wakes already.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// What was told is seen: polling waits again.
    pub(crate) fn seen(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

impl AsFd for Nudge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
