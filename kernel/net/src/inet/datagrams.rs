//! Datagrams that a socket has not received yet.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::net::SocketAddrV4;
use pageferry_core::mbuf::Chain;

/// A datagram that was not received yet.
pub(super) struct Datagram {
    pub(super) from: SocketAddrV4,
    pub(super) bytes: Chain,
    pub(super) memory_bytes: usize,
}

/// What a block of UDP has.
pub(super) struct Udp {
    pub(super) waiting: VecDeque<Datagram>,
    pub(super) memory_bytes: usize,
    /// The process receives no more.
    pub(super) ended: bool,
    pub(super) limit_bytes: usize,
}

impl Udp {
    pub(super) fn new(limit_bytes: usize) -> Udp {
        Udp { waiting: VecDeque::new(), memory_bytes: 0, ended: false, limit_bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// No more are received: those that wait are the caller's to free.
    pub(super) fn end(&mut self) -> VecDeque<Datagram> {
        (self.ended, self.memory_bytes) = (true, 0);
        core::mem::take(&mut self.waiting)
    }

    pub(super) fn take(&mut self) -> Option<Datagram> {
        let datagram = self.waiting.pop_front()?;
        self.memory_bytes -= datagram.memory_bytes;
        Some(datagram)
    }

    /// Tests that what is counted is there.
    ///
    /// # Errors
    /// What is broken, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let there: usize = self.waiting.iter().map(|d| d.memory_bytes).sum();
        match there == self.memory_bytes && there <= self.limit_bytes.max(there.min(self.limit_bytes)) {
            true => Ok(()),
            false => Err(format!("a socket counts {} bytes of datagrams and has {there}", self.memory_bytes)),
        }
    }
}
