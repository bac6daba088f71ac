//! What the library asks of the kernel: every system call is made in this folder.
//!
//! # What it holds
//! Thin functions, one a call, that check the arguments which the kernel leaves unchecked, and name the call
//! in their error. They decide nothing. [`map::Region`] owns a range of addresses; [`fork`] owns what has to
//! happen around `fork`.
//!
//! # Safety
//! `unsafe` is allowed here, in `view` and in `ring`. Functions that change what lies behind an address are
//! `unsafe fn`s: their callers are the views, which know who may hold a reference.
//!
//! # What can fail
//! Each call, with [`Failed`]: the call's name and the kernel's error. With the feature `verify` a test can
//! have any of them fail.
#![allow(unsafe_code, reason = "system calls; each block says why it is sound")]

pub(crate) mod confine;
pub(crate) mod copy;
pub(crate) mod fork;
pub(crate) mod lease;
pub(crate) mod map;
pub(crate) mod memfd;
pub(crate) mod nudge;
pub(crate) mod pages;
pub(crate) mod peer;
#[cfg(feature = "tokio")]
pub(crate) mod runtime;
pub(crate) mod socket;
pub(crate) mod spawn;
pub(crate) mod threads;
pub(crate) mod trials;

pub(crate) use rustix::io::Errno;

/// A system call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {errno}")]
pub struct Failed {
    /// The call, as its manual page names it.
    pub call: &'static str,
    /// What the kernel answered.
    pub errno: Errno,
}

pub(crate) type Result<T> = core::result::Result<T, Failed>;

pub(crate) trait Named<T> {
    /// The error carries the name of its call.
    fn of(self, call: &'static str) -> Result<T>;
}

impl<T> Named<T> for rustix::io::Result<T> {
    fn of(self, call: &'static str) -> Result<T> {
        self.map_err(|errno| Failed { call, errno })
    }
}

/// The answer of a call of libc that returns -1 for an error.
pub(crate) fn checked(answer: libc::c_int, call: &'static str) -> Result<libc::c_int> {
    if answer == -1 {
        let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Failed { call, errno: Errno::from_raw_os_error(number) });
    }
    Ok(answer)
}

/// Fails where a test has asked for it; costs nothing without the feature `verify`.
#[inline]
pub(crate) fn may_fail(call: &'static str) -> Result<()> {
    #[cfg(feature = "verify")]
    if let Some(errno) = crate::verify::injected(call) {
        return Err(Failed { call, errno: Errno::from_raw_os_error(errno) });
    }
    let _ = call;
    Ok(())
}

/// Bytes of a page of this host. The C library has been told; rustix would open /proc/self/auxv on kernels before 6.4,
/// and panic where this process can have no more descriptors.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: asks for a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("a page has a size")
}
