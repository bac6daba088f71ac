//! An end in the poll of the runtime tokio.

use super::{Errno, Failed, Result};
use std::os::fd::{AsFd, AsRawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What has a descriptor to be polled.
///
/// # Safety
/// It owns the descriptor, which stays the same for as long as it lives.
pub(crate) unsafe trait End: AsRawFd + AsFd {}

/// Puts an end into the poll of the runtime that this thread is in, which looks for something to read, and for what
/// else is said.
pub(crate) fn enter<E: End>(end: E, beside: Option<Interest>) -> Result<AsyncFd<E>> {
    let interest = beside.map_or(Interest::READABLE, |beside| beside | Interest::READABLE);
    // SAFETY: the end owns its socket, and closes it when it is dropped, which is after it has left the poll.
    unsafe { AsyncFd::register_with_interest(end, interest) }.map_err(|error| {
        let errno = Errno::from_io_error(&std::io::Error::from(error)).unwrap_or(Errno::IO);
        Failed { call: "epoll_ctl", errno }
    })
}
