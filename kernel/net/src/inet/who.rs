//! Whoever has the protocols: what the system calls of Internet sockets ask, of the kernel's own or of a server's
//! ([`crate::served`]).
//!
//! # What can fail
//! As Unix has it; of a server also the server itself ([`Errno::ConnectionReset`]).

use super::socket::InetSocket;
use super::stack::Net;
use crate::Supply;
use crate::sendfile::FileSupply;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use pageferry_abi::{Errno, Placed, Shutdown, SocketKind, SocketOption};
use pageferry_core::fs::{File, FilePart, NewSocket, Rights, SocketOps, VnodeOps};
use pageferry_core::mbuf::AreaId;
use pageferry_core::proc::{Syscall, Uio, UioRw, WaitFlag, outcome};
use pageferry_hal::{Machine, StructVa};

/// Where sockets are made.
pub trait Protocols<M: Machine> {
    /// A socket that is bound to nothing.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    fn socket(&self, call: &Syscall<'_, M>, kind: SocketKind) -> Result<File<M>, Errno>;
}

impl<M: Machine> Protocols<M> for Arc<Net<M>> {
    fn socket(&self, call: &Syscall<'_, M>, kind: SocketKind) -> Result<File<M>, Errno> {
        Ok(File::socket(Box::new(self.create(call, kind)?), Rights::READ_WRITE))
    }
}

impl<M: Machine> SocketOps<M> for InetSocket<M> {
    fn kind(&self) -> Result<SocketKind, Errno> {
        Ok(self.kind)
    }

    fn bind(&self, call: &Syscall<'_, M>, name: SocketAddrV4) -> Result<(), Errno> {
        self.net().bind(call, self.id, name)
    }

    fn listen(&self, call: &Syscall<'_, M>, backlog: usize) -> Result<(), Errno> {
        self.net().listen(call, self.id, backlog)
    }

    fn accept(&self, call: &Syscall<'_, M>, wait: WaitFlag) -> Result<NewSocket<M>, Errno> {
        let (socket, from) = self.net().accept(call, self.id, wait)?;
        Ok((Box::new(socket), from))
    }

    fn connect(&self, call: &Syscall<'_, M>, to: SocketAddrV4, wait: WaitFlag) -> Result<(), Errno> {
        self.net().connect(call, self.block(), to, wait)
    }

    fn shutdown(&self, call: &Syscall<'_, M>, how: Shutdown) -> Result<(), Errno> {
        self.shut_down(call, how)
    }

    fn names(&self, _: &Syscall<'_, M>) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno> {
        self.net().names(self.id)
    }

    fn set_option(&self, call: &Syscall<'_, M>, option: SocketOption) -> Result<(), Errno> {
        self.net().set_option(call.thread, self.block(), option)
    }

    fn take_error(&self, _: &Syscall<'_, M>) -> Result<Option<Errno>, Errno> {
        Ok(self.due_error())
    }

    fn send_to(&self, call: &Syscall<'_, M>, uio: &mut Uio, to: Option<SocketAddrV4>) -> Result<(), Errno> {
        self.send_datagram(call, uio, to)
    }

    fn receive_from(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<SocketAddrV4, Errno> {
        self.receive_datagram(call, uio)
    }

    fn send_file(
        &self,
        call: &Syscall<'_, M>,
        file: &dyn VnodeOps<M>,
        part: FilePart,
        wait: WaitFlag,
    ) -> Result<usize, Errno> {
        let mut supply = FileSupply::new(call, file, part, wait);
        call.machine().execute(call.core.config.paths.sosend);
        let result = self.send_from(call, &mut supply, wait);
        outcome(UioRw::Write, supply.done(), result)
    }

    fn tee(
        &self,
        call: &Syscall<'_, M>,
        to: &dyn SocketOps<M>,
        len: usize,
        wait: WaitFlag,
    ) -> Result<usize, Errno> {
        self.tee_stream(call, to.peer_buffer()?, len, wait)
    }

    fn set_receive_area(&self, call: &Syscall<'_, M>, area: AreaId) -> Result<bool, Errno> {
        self.receive_in(call, area)
    }

    fn receive_placed(
        &self,
        call: &Syscall<'_, M>,
        back: &[Placed],
        uio: &mut Uio,
    ) -> Result<Vec<Placed>, Errno> {
        self.receive_stream(call, uio, |buffer, uio| buffer.receive_placed(call, back, uio))
    }

    fn peer_buffer(&self) -> Result<StructVa, Errno> {
        self.send_buffer()
    }
}
