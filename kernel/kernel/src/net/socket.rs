//! Sockets as open files: connected ones, each end of a pair a buffer to receive from and one to send to; and those of
//! the null protocol, which discards what is sent and answers with pages as they are.
//!
//! A socket owns its buffers together with the one that it is connected to. A buffer's structure is in the table of
//! processes, under that table's lock (class `Process`).
//!
//! # Locks
//! Those of the buffers, one at a time.
//!
//! # What can fail
//! Making a buffer, for want of a structure; all else as in `sosend` and `soreceive`.

use super::inet::PcbId;
use super::sockbuf::{SockBuf, Socket};
use crate::Kernel;
use crate::fs::FileOps;
use crate::proc::Syscall;
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::{Errno, Readiness, ReceiveMode, Received, SendMode};
use pageferry_hal::{Cause, Machine, SpinLock, Va};

impl<M: Machine> FileOps<M> for Socket<M> {
    fn is_readable(&self) -> bool {
        self.receive.is_some()
    }

    fn is_writable(&self) -> bool {
        self.send.is_some()
    }

    fn read(
        &self,
        call: &Syscall<'_, M>,
        to: Va,
        len_bytes: usize,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        let buffer = self.receive.as_ref().ok_or(Errno::BadFd)?;
        buffer.receive(call, to, len_bytes, nonblocking)
    }

    fn read_transfer(
        &self,
        call: &Syscall<'_, M>,
        mode: ReceiveMode,
        at: Option<Va>,
        len_bytes: usize,
        nonblocking: bool,
    ) -> Result<Received, Errno> {
        let buffer = self.receive.as_ref().ok_or(Errno::BadFd)?;
        buffer.receive_transfer(call, mode, at, len_bytes, nonblocking)
    }

    fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        let buffer = self.send.as_ref().ok_or(Errno::BadFd)?;
        buffer.send(call, from, len_bytes, mode, nonblocking)
    }

    fn as_socket(&self) -> Option<&Socket<M>> {
        Some(self)
    }

    fn readiness(&self, _call: &Syscall<'_, M>) -> Readiness {
        Readiness {
            readable: self.receive.as_ref().is_some_and(|buffer| buffer.is_readable()),
            writable: self.send.as_ref().is_some_and(|buffer| buffer.is_writable()),
            hung_up: false,
        }
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        let (kernel, threads) = (call.kernel, call.thread);
        self.receive.into_iter().for_each(|buffer| {
            kernel.end_of_sockbuf(&buffer, || buffer.close_reader(&kernel.mbufs, threads));
        });
        self.send.into_iter().for_each(|buffer| {
            kernel.end_of_sockbuf(&buffer, || buffer.close_writer(threads));
        });
    }
}

/// A socket of the null protocol.
pub(crate) struct NullSocket;

impl<M: Machine> FileOps<M> for NullSocket {
    fn read(&self, call: &Syscall<'_, M>, to: Va, len_bytes: usize, _: bool) -> Result<usize, Errno> {
        Ok(call.receive_from_null(ReceiveMode::Copy, Some(to), len_bytes)?.len_bytes)
    }

    fn read_transfer(
        &self,
        call: &Syscall<'_, M>,
        mode: ReceiveMode,
        at: Option<Va>,
        len_bytes: usize,
        _: bool,
    ) -> Result<Received, Errno> {
        call.receive_from_null(mode, at, len_bytes)
    }

    fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
        _: bool,
    ) -> Result<usize, Errno> {
        call.send_to_null(from, len_bytes, mode)
    }

    fn release(self: Box<Self>, _: &Syscall<'_, M>) {}
}

impl<M: Machine> Kernel<M> {
    /// Makes one direction of a pair of connected sockets, with a buffer of `high_water_bytes`.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: too many are open.
    pub(crate) fn create_sockbuf(&self, high_water_bytes: usize) -> Result<Arc<SockBuf<M>>, Errno> {
        self.create_sockbuf_of(high_water_bytes, None)
    }

    /// The same, for a connection of TCP's.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(crate) fn create_sockbuf_of(
        &self,
        high_water_bytes: usize,
        connection: Option<PcbId>,
    ) -> Result<Arc<SockBuf<M>>, Errno> {
        let mut table = self.processes.lock();
        let at = table.sockets.alloc().ok_or(Errno::NoMemory)?;
        let buffer = Arc::new(SockBuf::new(self, at, high_water_bytes, connection));
        table.sockets.insert(at, &buffer);
        Ok(buffer)
    }

    /// Gives back a direction that was never used, or whose ends are both gone.
    pub(crate) fn discard_sockbuf(&self, buffer: &SockBuf<M>) {
        self.processes.lock().sockets.remove(buffer.at());
    }

    /// Closes an end by `close`, which answers whether it was the last.
    pub(super) fn end_of_sockbuf(&self, buffer: &SockBuf<M>, close: impl FnOnce() -> bool) {
        let _c = self.machine.scope(Cause::Protocol);
        if close() {
            self.discard_sockbuf(buffer);
        }
    }
}
