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
use super::sendfile::FileSupply;
use super::sockbuf::{SockBuf, Socket};
use super::sosend::Supply;
use crate::Kernel;
use crate::fs::{File, FileOps, FilePart, Rights, SocketOps, VnodeOps};
use crate::proc::{Syscall, Uio, UioRw, WaitFlag, outcome};
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::{Errno, Readiness};
use pageferry_hal::{Cause, Machine, SpinLock};

impl<M: Machine> Socket<M> {
    /// It as an open file.
    pub(crate) fn open(self) -> File<M> {
        let (readable, writable) = (self.receive.is_some(), self.send.is_some());
        File::socket(self, Rights { readable, writable, appends: false })
    }
}

impl<M: Machine> FileOps<M> for Socket<M> {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        self.receive.as_ref().ok_or(Errno::BadFd)?.receive(call, uio)
    }

    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        self.send.as_ref().ok_or(Errno::BadFd)?.send(call, uio)
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

impl<M: Machine> SocketOps<M> for Socket<M> {
    fn send_file(
        &self,
        call: &Syscall<'_, M>,
        file: &dyn VnodeOps<M>,
        part: FilePart,
        wait: WaitFlag,
    ) -> Result<usize, Errno> {
        let buffer = self.send.as_ref().ok_or(Errno::NotSupported)?;
        let mut supply = FileSupply::new(call, file, part, wait);
        call.machine().execute(call.kernel.config.paths.sosend);
        let result = buffer.send_from(call, &mut supply, wait);
        outcome(UioRw::Write, supply.done(), result)
    }

    fn tee(
        &self,
        call: &Syscall<'_, M>,
        to: &dyn SocketOps<M>,
        len: usize,
        wait: WaitFlag,
    ) -> Result<usize, Errno> {
        let target = to.peer_buffer()?;
        self.receive.as_ref().ok_or(Errno::BadFd)?.tee(call, target, len, wait)
    }

    fn peer_buffer(&self) -> Result<&SockBuf<M>, Errno> {
        self.send.as_deref().ok_or(Errno::BadFd)
    }
}

/// A socket of the null protocol.
pub(crate) struct NullSocket;

impl<M: Machine> FileOps<M> for NullSocket {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        call.receive_from_null(uio)
    }

    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        call.send_to_null(uio)
    }

    fn release(self: Box<Self>, _: &Syscall<'_, M>) {}
}

impl<M: Machine> SocketOps<M> for NullSocket {}

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
