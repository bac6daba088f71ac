//! Threads of the library's own.

use super::{Errno, Failed, Result, may_fail};
use core::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Starts a thread. It gets no signals: handlers are the program's, and run in the program's threads.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    may_fail("clone")?;
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets live through the calls, and the first call fills `all`. A thread inherits the mask of the one
    // that starts it.
    let masked = unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let started = Builder::new().name(name.to_owned()).stack_size(64 << 10).spawn(run);
    if masked {
        // SAFETY: the call above has filled the set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    }
    started.map_err(|error| Failed {
        call: "clone",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
    })
}
