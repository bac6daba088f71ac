//! File leases: the kernel's word that nobody can write to a file.
//!
//! A lease for reading is granted on a descriptor that was opened for reading, when nobody has the file open for
//! writing, by whatever descriptor or mapping, in whatever process or socket queue. While it is held, an open for
//! writing fails or waits; the holder is told, and has `fs.lease-break-time` seconds to give it up, after which the
//! kernel takes it away.
//!
//! A lease for writing is granted on a descriptor that can write, when nobody else has the file open at all. So the
//! owner of memory learns that the last of its readers is gone ([`is_alone`]).
//!
//! A lease belongs to an *open file*, which is shared by all who have a copy of its descriptor. So a descriptor that
//! is leased goes to nobody else. The descriptor of `memfd_create` itself can write and is not counted, so it is
//! closed before anything is leased.

use super::{Errno, Result, checked, may_fail};
use rustix::fd::OwnedFd;
use std::os::fd::AsRawFd;

const F_SETSIG: libc::c_int = 10;
const F_SETLEASE: libc::c_int = 1024;
const F_GETLEASE: libc::c_int = 1025;

fn fcntl(
    fd: &OwnedFd,
    command: libc::c_int,
    argument: libc::c_int,
    call: &'static str,
) -> Result<libc::c_int> {
    // SAFETY: a descriptor of ours and plain numbers.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) }, call)
}

/// Takes a lease for reading; whether the kernel has granted it. If not, somebody can write to the file.
pub(crate) fn take(fd: &OwnedFd) -> Result<bool> {
    may_fail("F_SETLEASE")?;
    // Who tries to break a lease has the holder sent SIGIO, which kills it. SIGURG is ignored by default. Giving a
    // lease up undoes this, so it comes before each.
    fcntl(fd, F_SETSIG, libc::SIGURG, "F_SETSIG")?;
    match fcntl(fd, F_SETLEASE, libc::F_RDLCK, "F_SETLEASE") {
        Err(failed) if failed.errno == Errno::AGAIN => Ok(false),
        other => other.map(|_| true),
    }
}

/// Whether this descriptor, which can write, is the only one of its file anywhere: no other is open, mapped, or queued
/// in a socket, not even for reading. Copies of the descriptor are the same one, and so are mappings that were made by
/// it.
pub(crate) fn is_alone(fd: &OwnedFd) -> Result<bool> {
    may_fail("F_SETLEASE")?;
    // The lease is held for so short a time that nobody breaks it, as a rule; who does so gets this process no signal
    // that ends it.
    fcntl(fd, F_SETSIG, libc::SIGURG, "F_SETSIG")?;
    match fcntl(fd, F_SETLEASE, libc::F_WRLCK, "F_SETLEASE") {
        Err(failed) if failed.errno == Errno::AGAIN => Ok(false),
        Err(failed) => Err(failed),
        Ok(_) => {
            give_up(fd);
            Ok(true)
        }
    }
}

/// Whether the lease is held and nobody has tried to break it.
pub(crate) fn is_whole(fd: &OwnedFd) -> bool {
    fcntl(fd, F_GETLEASE, 0, "F_GETLEASE") == Ok(libc::F_RDLCK)
}

/// Gives a lease up.
pub(crate) fn give_up(fd: &OwnedFd) {
    // It fails where the kernel has taken the lease away already.
    let _ = fcntl(fd, F_SETLEASE, libc::F_UNLCK, "F_SETLEASE");
}

/// Seconds that a holder must have, at least, for leases to be used.
pub(crate) const MIN_BREAK_SECONDS: u64 = 10;

/// How long a holder has before the kernel takes its lease away, in seconds.
pub(crate) fn break_seconds() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/fs/lease-break-time").ok()?.trim().parse().ok()
}
