//! What a kernel asks of parts that are processes: the file system, the protocols and the driver of the network card.
//!
//! Who brings such servers says how they are made ([`crate::Servers`]); the kernel tells them of the ends of processes.
//!
//! # Locks
//! Calls may sleep, but for those of a [`ProtocolHost`]: no spin lock is held before and after.

use alloc::string::String;
use alloc::sync::Arc;
use pageferry_abi::Pid;
use pageferry_core::fs::Volumes;
use pageferry_core::proc::Syscall;
use pageferry_hal::{Machine, Threads};
use pageferry_net::{ProtocolHost, Protocols};

/// A file system that is a process's.
pub trait FileServer<M: Machine>: Volumes<M> {
    /// The process, if there is one.
    fn server(&self) -> Option<Pid>;

    /// The last process that is no server ends: the server is to end, too.
    fn end(&self, call: &Syscall<'_, M>);

    /// The server has ended.
    fn ended(&self, threads: &dyn Threads);
}

/// Protocols and a card's driver that are processes'.
pub trait NetServer<M: Machine>: Protocols<M> {
    /// Who is told of what is to be done.
    fn host(&self) -> Arc<dyn ProtocolHost>;

    /// The processes that have the protocols, and the card.
    fn servers(&self) -> (Option<Pid>, Option<Pid>);

    /// The last process that is no server ends: the servers are to end, too.
    fn end(&self, call: &Syscall<'_, M>);

    /// The server of this service has ended.
    fn ended(&self, threads: &dyn Threads, service: u32);

    /// Tests that nobody waits.
    ///
    /// # Errors
    /// What is left, in words.
    fn check_quiescent(&self) -> Result<(), String>;
}
