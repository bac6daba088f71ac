//! A server that threads cross into, and a thread that has.

use super::port::RequestId;
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::Pid;
use pageferry_core::proc::Process;
use pageferry_core::sched::Thread;
use pageferry_hal::{Machine, SpaceId, Va};

/// What a thread runs that has crossed into a server: it gets the server, itself, and the request.
pub type Procedure<M> = Box<dyn Fn(&Arc<Process<M>>, &Thread<M>, &Inquiry)>;

/// A server that threads may cross into.
pub struct Gate<M: Machine> {
    pub(super) process: Arc<Process<M>>,
    pub(super) procedure: Procedure<M>,
}

/// A thread inside a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// For what request,
    pub(super) id: RequestId,
    /// in which server,
    pub(super) to: Pid,
    /// whose space this is.
    pub(super) space: SpaceId,
}

/// A request as its server gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// Its number, for the answer.
    pub id: RequestId,
    /// Its maker.
    pub from: Pid,
    /// Where the control piece is.
    pub control: Va,
    /// Where the data piece is, if there is one, and how long.
    pub data: Option<(Va, usize)>,
}
