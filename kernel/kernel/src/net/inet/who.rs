//! Whoever has the protocols: what the system calls of Internet sockets ask, of the kernel's own or of a server's
//! ([`crate::served`]).
//!
//! # What can fail
//! As Unix has it; of a server also the server itself ([`Errno::ConnectionReset`]).

use super::{InetSocket, Net};
use crate::fs::{File, Regular};
use crate::proc::Syscall;
use core::net::SocketAddrV4;
use pageferry_abi::{Errno, SendMode, Shutdown, SocketKind, SocketOption};
use pageferry_hal::{Machine, Va};

/// Where sockets are made.
pub(crate) trait Protocols<M: Machine> {
    /// A socket that is bound to nothing.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    fn socket(&self, call: &Syscall<'_, M>, kind: SocketKind) -> Result<File<M>, Errno>;
}

/// A part of a file that is to be sent, and how.
pub(crate) struct FilePart<'a, M: Machine> {
    pub(crate) file: &'a Regular<M>,
    pub(crate) from: u64,
    pub(crate) len: usize,
    pub(crate) mode: SendMode,
}

/// What can be asked of an Internet socket, beside what can of any open file. Errors are those of the system calls of
/// the same name.
pub(crate) trait InetOps<M: Machine> {
    fn kind(&self) -> SocketKind;
    fn bind(&self, call: &Syscall<'_, M>, name: SocketAddrV4) -> Result<(), Errno>;
    fn listen(&self, call: &Syscall<'_, M>, backlog: usize) -> Result<(), Errno>;
    fn accept(&self, call: &Syscall<'_, M>, nonblocking: bool) -> Result<(File<M>, SocketAddrV4), Errno>;
    fn connect(&self, call: &Syscall<'_, M>, to: SocketAddrV4, nonblocking: bool) -> Result<(), Errno>;
    fn shutdown(&self, call: &Syscall<'_, M>, how: Shutdown) -> Result<(), Errno>;
    fn names(&self, call: &Syscall<'_, M>) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno>;
    fn set_option(&self, call: &Syscall<'_, M>, option: SocketOption) -> Result<(), Errno>;
    fn take_error(&self, call: &Syscall<'_, M>) -> Result<Option<Errno>, Errno>;
    fn send_to(
        &self,
        call: &Syscall<'_, M>,
        buffer: (Va, usize),
        to: Option<SocketAddrV4>,
        nonblocking: bool,
    ) -> Result<usize, Errno>;
    fn receive_from(
        &self,
        call: &Syscall<'_, M>,
        buffer: (Va, usize),
        nonblocking: bool,
    ) -> Result<(usize, SocketAddrV4), Errno>;
    fn send_file(
        &self,
        call: &Syscall<'_, M>,
        part: FilePart<'_, M>,
        nonblocking: bool,
    ) -> Result<usize, Errno>;
}

impl<M: Machine> Protocols<M> for Net<M> {
    fn socket(&self, call: &Syscall<'_, M>, kind: SocketKind) -> Result<File<M>, Errno> {
        let id = self.create(call, kind)?;
        Ok(File::new(InetSocket::new(id, kind)))
    }
}

impl<M: Machine> InetOps<M> for InetSocket {
    fn kind(&self) -> SocketKind {
        self.kind
    }

    fn bind(&self, call: &Syscall<'_, M>, name: SocketAddrV4) -> Result<(), Errno> {
        self.net(call).bind(call, self.id, name)
    }

    fn listen(&self, call: &Syscall<'_, M>, backlog: usize) -> Result<(), Errno> {
        self.net(call).listen(call, self.id, backlog)
    }

    fn accept(&self, call: &Syscall<'_, M>, nonblocking: bool) -> Result<(File<M>, SocketAddrV4), Errno> {
        let (id, from) = self.net(call).accept(call, self.id, nonblocking)?;
        Ok((File::new(InetSocket::new(id, SocketKind::Stream)), from))
    }

    fn connect(&self, call: &Syscall<'_, M>, to: SocketAddrV4, nonblocking: bool) -> Result<(), Errno> {
        self.net(call).connect(call, self.id, to, nonblocking)
    }

    fn shutdown(&self, call: &Syscall<'_, M>, how: Shutdown) -> Result<(), Errno> {
        self.shut_down(call, how)
    }

    fn names(&self, call: &Syscall<'_, M>) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno> {
        self.net(call).names(self.id)
    }

    fn set_option(&self, call: &Syscall<'_, M>, option: SocketOption) -> Result<(), Errno> {
        self.net(call).set_option(self.id, option)
    }

    fn take_error(&self, call: &Syscall<'_, M>) -> Result<Option<Errno>, Errno> {
        Ok(self.net(call).take_error(self.id))
    }

    fn send_to(
        &self,
        call: &Syscall<'_, M>,
        (from, len): (Va, usize),
        to: Option<SocketAddrV4>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        self.send_datagram(call, from, len, to, nonblocking)
    }

    fn receive_from(
        &self,
        call: &Syscall<'_, M>,
        (to, len): (Va, usize),
        nonblocking: bool,
    ) -> Result<(usize, SocketAddrV4), Errno> {
        self.receive_datagram(call, to, len, nonblocking)
    }

    fn send_file(
        &self,
        call: &Syscall<'_, M>,
        part: FilePart<'_, M>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        let mut supply = part.file.supply(call, part.from, part.len, part.mode, nonblocking);
        call.machine().execute(call.kernel.config.paths.sosend);
        self.send_from(call, &mut supply, nonblocking)
    }
}
