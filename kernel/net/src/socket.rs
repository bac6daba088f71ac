//! Connected sockets as open files: each end of a pair is a buffer to receive from and one to send to.
//!
//! A socket owns its buffers together with the one that it is connected to.
//!
//! # Locks
//! Those of the buffers, one at a time.
//!
//! # What can fail
//! Making a buffer, for want of a structure; all else as in `sosend` and `soreceive`.

use super::sendfile::FileSupply;
use super::sockbuf::Socket;
use super::sosend::Supply;
use alloc::boxed::Box;
use alloc::vec::Vec;
use pageferry_abi::{Errno, Placed, Readiness};
use pageferry_core::fs::{File, FileOps, FilePart, Rights, SocketOps, VnodeOps};
use pageferry_core::mbuf::AreaId;
use pageferry_core::proc::{Syscall, Uio, UioRw, WaitFlag, outcome};
use pageferry_hal::{Machine, StructVa};

impl<M: Machine> Socket<M> {
    /// It as an open file.
    pub fn open(self) -> File<M> {
        let (readable, writable) = (self.receive.is_some(), self.send.is_some());
        File::socket(Box::new(self), Rights { readable, writable, appends: false })
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
        let (core, threads) = (call.core, call.thread);
        self.receive.into_iter().for_each(|buffer| {
            buffer.end(core, || buffer.close_reader(&core.mbufs, threads));
        });
        self.send.into_iter().for_each(|buffer| {
            buffer.end(core, || buffer.close_writer(threads));
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
        call.machine().execute(call.core.config.paths.sosend);
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
        let own = self.receive.as_ref().ok_or(Errno::BadFd)?;
        let target = own.other(to.peer_buffer()?).ok_or(Errno::BadFd)?;
        own.tee(call, &target, len, wait)
    }

    fn set_receive_area(&self, _: &Syscall<'_, M>, area: AreaId) -> Result<bool, Errno> {
        self.receive.as_ref().ok_or(Errno::BadFd)?.set_area(area).map(|()| false)
    }

    fn receive_placed(
        &self,
        call: &Syscall<'_, M>,
        back: &[Placed],
        uio: &mut Uio,
    ) -> Result<Vec<Placed>, Errno> {
        self.receive.as_ref().ok_or(Errno::BadFd)?.receive_placed(call, back, uio)
    }

    fn peer_buffer(&self) -> Result<StructVa, Errno> {
        Ok(self.send.as_ref().ok_or(Errno::BadFd)?.at())
    }
}
