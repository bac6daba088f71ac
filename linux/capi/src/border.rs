//! What C hands over, before anything believes in it.
//!
//! # What it holds
//! Readers for the arguments that are addresses, and `Out` for those that are written to. An address may be
//! NULL, which is found; that it leads to memory of the right kind otherwise is the caller's promise, and
//! nothing can check it. Addresses need no alignment.

use crate::fault::Fault;
use core::ffi::{CStr, c_char, c_int, c_void};
use pageferry::Error;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::os::fd::{FromRawFd as _, IntoRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

/// Waits for as long as it takes.
pub const PF_WAIT: c_int = -1;
/// Does not wait: PF_EWOULDBLOCK instead.
pub const PF_NOWAIT: c_int = 0;

/// Where an answer goes.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Until there is an answer, `before` stands there: a caller that does not look at the code finds no old
    /// handle.
    ///
    /// # Safety
    /// The address is NULL, or of memory for a `T` that nobody else uses as long as the value lives.
    pub(crate) unsafe fn new(address: *mut T, name: &'static str, before: T) -> Result<Out<T>, Fault> {
        if address.is_null() {
            return Err(Fault::usage(format!("`{name}` is NULL: there is no place for the answer")));
        }
        // SAFETY: by the caller's promise.
        unsafe { address.write_unaligned(before) };
        Ok(Out(address))
    }

    pub(crate) fn set(&mut self, answer: T) {
        // SAFETY: as promised to `new`.
        unsafe { self.0.write_unaligned(answer) };
    }
}

impl<T> Out<*mut T> {
    /// For a handle.
    ///
    /// # Safety
    /// As for `Out::new`.
    pub(crate) unsafe fn handle(address: *mut *mut T, name: &'static str) -> Result<Out<*mut T>, Fault> {
        // SAFETY: by the caller's promise.
        unsafe { Out::new(address, name, core::ptr::null_mut()) }
    }

    pub(crate) fn set_handle(&mut self, handle: *mut c_void) {
        self.set(handle.cast());
    }
}

/// Bytes that the caller has.
///
/// # Safety
/// The address is NULL, or of `len` bytes that nobody writes as long as they are looked at.
pub(crate) unsafe fn bytes<'a>(address: *const c_void, len: usize, name: &str) -> Result<&'a [u8], Fault> {
    if address.is_null() {
        return Err(Fault::usage(format!("`{name}` is NULL")));
    }
    if isize::try_from(len).is_err() || address.addr().checked_add(len).is_none() {
        return Err(Fault::usage(format!("`{name}` has {len} bytes, more than a process can have")));
    }
    // SAFETY: by the caller's promise; bytes have any alignment, and the length is one that a slice can have.
    Ok(unsafe { core::slice::from_raw_parts(address.cast(), len) })
}

/// A path.
///
/// # Safety
/// The address is NULL, or of a text that ends with a zero byte, and that nobody writes as long as it is
/// looked at.
pub(crate) unsafe fn path<'a>(address: *const c_char, name: &str) -> Result<&'a Path, Fault> {
    if address.is_null() {
        return Err(Fault::usage(format!("`{name}` is NULL")));
    }
    // SAFETY: by the caller's promise.
    let text = unsafe { CStr::from_ptr(address) };
    Ok(Path::new(std::ffi::OsStr::from_bytes(text.to_bytes())))
}

/// Does something with a socket of the caller's, which is the library's where that has succeeded, and the
/// caller's as before where it has not. It works with a second descriptor of the same socket, for the first
/// cannot be given back.
///
/// # Safety
/// Where it succeeds nobody uses the number any more.
pub(crate) unsafe fn with_socket<R>(
    number: c_int,
    does: impl FnOnce(OwnedFd) -> Result<R, Error>,
) -> Result<R, Fault> {
    if number < 0 {
        return Err(Fault::usage(format!("`fd` is {number}, and no descriptor")));
    }
    // SAFETY: what is done with it is one call, which looks whether it is open.
    let theirs = unsafe { BorrowedFd::borrow_raw(number) };
    let ours = rustix::io::fcntl_dupfd_cloexec(theirs, 3).map_err(|errno| match errno {
        rustix::io::Errno::BADF => Fault::usage(format!("`fd` is {number}, which is not open")),
        errno => Fault::host("F_DUPFD_CLOEXEC", errno),
    })?;
    let done = does(ours)?;
    // SAFETY: it is open, and the caller has given it up.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(done)
}

/// A descriptor for the caller.
pub(crate) fn give_fd(fd: OwnedFd) -> c_int {
    fd.into_raw_fd()
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    Not,
    For(Duration),
}

impl Wait {
    pub(crate) fn from_ms(timeout_ms: c_int) -> Result<Wait, Fault> {
        match timeout_ms {
            PF_WAIT => Ok(Wait::Forever),
            PF_NOWAIT => Ok(Wait::Not),
            _ => u64::try_from(timeout_ms).map(|ms| Wait::For(Duration::from_millis(ms))).map_err(|_| {
                Fault::usage(format!(
                    "`timeout_ms` is {timeout_ms}; expected PF_WAIT (-1), PF_NOWAIT (0), or milliseconds"
                ))
            }),
        }
    }

    pub(crate) fn at_most(self) -> Duration {
        match self {
            Wait::Forever => Duration::MAX,
            Wait::Not => Duration::ZERO,
            Wait::For(time) => time,
        }
    }

    /// An error of a call that had so much time.
    pub(crate) fn fault(self, error: Error) -> Fault {
        match error {
            Error::TimedOut(_) if self == Wait::Not => Error::WouldBlock.into(),
            error => error.into(),
        }
    }
}
