//! Ports and requests: what is queued for a process, and how far each request is.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use pageferry_abi::{Errno, Pid};
use pageferry_hal::{Channel, StructVa};

/// The service of the file server, one of the kernel's own processes.
pub const FILES: u32 = u32::MAX;
/// That of a process that is measured to choose by.
pub const MEASURED: u32 = u32::MAX - 1;
/// That of the protocol server.
pub const PROTOCOLS: u32 = u32::MAX - 2;
/// That of the driver of the network card.
pub const DRIVER: u32 = u32::MAX - 3;
/// The least number of a service of the kernel's own; programs have those below.
pub const MIN_OWN: u32 = DRIVER;

/// The number of a request; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What is queued for a process.
pub struct Port {
    /// Its structure, which its process sleeps on.
    pub at: StructVa,
    /// What it serves, if it is a server.
    pub service: Option<u32>,
    /// Its permanent reserved entries.
    pub entries: Vec<usize>,
    /// Requests made of it.
    pub requests: VecDeque<RequestId>,
    /// Its own requests that are done.
    pub results: VecDeque<RequestId>,
    /// It sleeps for a reserved entry.
    pub wants_entry: bool,
    /// There is work for it that no request asks for ([`super::events`]).
    pub notice: bool,
}

impl Port {
    /// A port of no service, with nothing queued.
    pub fn new(at: StructVa) -> Port {
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
    pub fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
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
pub struct Request {
    /// Its structure, which its maker sleeps on.
    pub at: StructVa,
    /// Its maker; `None` when that has ended.
    pub from: Option<Pid>,
    /// The server that it was made of; that may have ended.
    pub to: Pid,
    /// The piece with what is asked, and what is answered; `None` when a dead server had handed it on.
    pub control: Option<usize>,
    /// The piece with the data, as well.
    pub data: Option<usize>,
    /// Its maker waits in the call.
    pub synchronous: bool,
    /// How far it is.
    pub stage: Stage,
}

impl Request {
    /// What its maker sleeps on.
    pub fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// Its pieces.
    pub fn pieces(&self) -> impl Iterator<Item = usize> + use<> {
        self.control.into_iter().chain(self.data)
    }
}
