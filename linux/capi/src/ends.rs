//! What handles of ends stand for.

use core::ffi::c_int;
use pageferry::trust::{Guarded, Same};
use pageferry::{Message, Receiver, Sender};
use std::os::fd::AsRawFd as _;

/// An end, by how far its peer is trusted.
#[derive(Debug)]
pub(crate) enum End<T, G> {
    Trusting(T),
    Guarded(G),
}

/// What a handle of a sender stands for.
pub(crate) type SenderEnd = End<Sender<Same>, Sender<Guarded>>;

/// What a handle of a receiver stands for.
#[derive(Debug)]
pub(crate) struct ReceiverEnd {
    pub(crate) end: End<Receiver<Same>, Receiver<Guarded>>,
    /// A message that came and could not be given out as it was asked for.
    pub(crate) kept: Option<Message>,
}

/// Does the same with either kind of end.
macro_rules! either {
    ($end:expr, $name:ident => $does:expr) => {
        match &$end {
            $crate::ends::End::Trusting($name) => $does,
            $crate::ends::End::Guarded($name) => $does,
        }
    };
}
pub(crate) use either;

impl SenderEnd {
    /// The descriptor to be polled.
    pub(crate) fn fd(&self) -> c_int {
        either!(self, sender => sender.as_raw_fd())
    }
}

impl ReceiverEnd {
    pub(crate) fn new(end: End<Receiver<Same>, Receiver<Guarded>>) -> ReceiverEnd {
        ReceiverEnd { end, kept: None }
    }

    /// The descriptor to be polled.
    pub(crate) fn fd(&self) -> c_int {
        either!(self.end, receiver => receiver.as_raw_fd())
    }
}
