//! Ports and requests: what is queued for a process, and how far each request is.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use pageferry_abi::{Errno, Pid};
use pageferry_hal::{Channel, StructVa};

/// Services of the kernel's own processes: files,
pub(crate) const FILES: u32 = u32::MAX;
/// what is measured to choose by,
pub(crate) const MEASURED: u32 = u32::MAX - 1;
/// protocols, the driver of the network card,
pub(crate) const PROTOCOLS: u32 = u32::MAX - 2;
pub(crate) const DRIVER: u32 = u32::MAX - 3;
/// and the least of them.
pub(crate) const LEAST_OWN: u32 = DRIVER;

/// The number of a request; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What is queued for a process.
pub(crate) struct Port {
    pub(crate) at: StructVa,
    /// What it serves, if it is a server.
    pub(crate) service: Option<u32>,
    /// Its permanent reserved entries.
    pub(crate) entries: Vec<usize>,
    /// Requests made of it.
    pub(crate) requests: VecDeque<RequestId>,
    /// Its own requests that are done.
    pub(crate) results: VecDeque<RequestId>,
    /// It sleeps for a reserved entry.
    pub(crate) wants_entry: bool,
    /// There is work for it that no request asks for ([`super::events`]).
    pub(crate) notice: bool,
}

impl Port {
    pub(crate) fn new(at: StructVa) -> Port {
        Port {
            at,
            service: None,
            entries: Vec::new(),
            requests: VecDeque::new(),
            results: VecDeque::new(),
            wants_entry: false,
            notice: false,
        }
    }

    /// What its process sleeps on.
    pub(crate) fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In its server's queue.
    Queued,
    /// Taken by its server.
    Served,
    /// Its maker's thread is in the server.
    Crossed,
    /// Answered, or its server is dead.
    Done(Result<(), Errno>),
}

/// A request.
pub(crate) struct Request {
    pub(crate) at: StructVa,
    /// Its maker; `None` when that has ended.
    pub(crate) from: Option<Pid>,
    pub(crate) to: Pid,
    /// The piece with what is asked, and what is answered; `None` when a dead server had handed it on.
    pub(crate) control: Option<usize>,
    /// The piece with the data, as well.
    pub(crate) data: Option<usize>,
    /// Its maker waits in the call.
    pub(crate) synchronous: bool,
    pub(crate) stage: Stage,
}

impl Request {
    /// What its maker sleeps on.
    pub(crate) fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// Its pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = usize> + use<> {
        self.control.into_iter().chain(self.data)
    }
}
