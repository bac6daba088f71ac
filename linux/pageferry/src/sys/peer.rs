//! Who is at the other end of a socket.

use super::{Result, checked};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `SO_PEERPIDFD`, from Linux 6.5 on.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process at the other end, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its process number, in this process's namespace; 0 where it has none.
    pub pid: i32,
    /// The user that it ran as when the connection was made.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

pub(crate) fn credentials(socket: BorrowedFd<'_>) -> Result<Credentials> {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `cred`, which is plain data.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    checked(answer, "SO_PEERCRED")?;
    Ok(Credentials { pid: cred.pid, uid: cred.uid, gid: cred.gid })
}

/// A descriptor that can be read when the process that made the connection has ended.
pub(crate) fn pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    super::may_fail("SO_PEERPIDFD")?;
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one descriptor's number.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    checked(answer, "SO_PEERPIDFD")?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
