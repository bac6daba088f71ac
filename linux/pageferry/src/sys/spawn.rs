//! What a new process gets of this one.

use super::confine::Cage;
use super::{Failed, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

/// Starts a program that keeps one descriptor of ours, under the number that it has here, and that may do what
/// the cage lets it.
pub(crate) fn with_descriptor(command: &mut Command, kept: &OwnedFd, cage: Option<Cage>) -> Result<Child> {
    super::may_fail("execve")?;
    let number = kept.as_raw_fd();
    // SAFETY: the closure runs between fork and exec, and makes only calls that may be made there.
    unsafe {
        command.pre_exec(move || {
            if let Some(cage) = &cage {
                cage.enter(number)?;
            }
            if libc::fcntl(number, libc::F_SETFD, 0) == -1 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.spawn().map_err(|error| {
        let errno = super::Errno::from_io_error(&error).unwrap_or(super::Errno::IO);
        Failed { call: "execve", errno }
    })
}

/// A descriptor that this process was started with, by its number. It is closed by `exec` from now on.
pub(crate) fn inherited(number: i32) -> Result<OwnedFd> {
    use std::os::fd::FromRawFd as _;
    // SAFETY: plain numbers.
    super::checked(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) }, "F_SETFD")?;
    // SAFETY: it is open, and was left to this process to own; callers ask once for a number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
