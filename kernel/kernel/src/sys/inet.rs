//! The system calls of Internet sockets.

use super::user::User;
use pageferry_abi::SendMode;
use pageferry_core::fs::{File, Rights, SocketOps};
use pageferry_core::proc::Uio;
use pageferry_core::proc::WaitFlag;

use alloc::sync::Arc;
use core::net::SocketAddrV4;
use pageferry_abi::{Errno, Fd, Shutdown, SocketKind, SocketOption};
use pageferry_core::proc::Syscall;
use pageferry_hal::{Machine, SpinLock, Va};

impl<M: Machine> User<M> {
    /// Makes a socket of TCP or UDP.
    ///
    /// # Errors
    /// [`Errno::NotSupported`] by a kernel without these protocols, [`Errno::TooManyFiles`], [`Errno::NoMemory`].
    pub fn socket(&self, kind: SocketKind) -> Result<Fd, Errno> {
        self.system_call(|call| {
            let protocols = self.kernel.protocols().ok_or(Errno::NotSupported)?;
            self.room_for_one()?;
            let file = protocols.socket(call, kind)?;
            Ok(self.process.files.lock().insert(file))
        })
    }

    fn room_for_one(&self) -> Result<(), Errno> {
        if self.process.files.lock().has_room(1) { Ok(()) } else { Err(Errno::TooManyFiles) }
    }

    /// Does something with an Internet socket.
    fn with_inet<R>(
        &self,
        fd: Fd,
        work: impl FnOnce(&Syscall<'_, M>, &dyn SocketOps<M>, WaitFlag) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.system_call(|call| {
            let file: Arc<File<M>> = self.get(fd)?;
            work(call, file.as_socket()?, file.wait())
        })
    }

    /// Gives a socket a name: an address of this host, or 0.0.0.0 for all of them, and a port, or 0 for one that is
    /// free.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when it has one; [`Errno::AddressNotAvailable`], [`Errno::AddressInUse`].
    pub fn bind(&self, fd: Fd, name: SocketAddrV4) -> Result<(), Errno> {
        self.with_inet(fd, |call, socket, _| socket.bind(call, name))
    }

    /// Has a stream socket take connections, of which up to `backlog` may wait for [`User::accept`].
    ///
    /// # Errors
    /// [`Errno::NotSupported`] for datagrams, [`Errno::Invalid`] for a socket that is connected.
    pub fn listen(&self, fd: Fd, backlog: usize) -> Result<(), Errno> {
        self.with_inet(fd, |call, socket, _| socket.listen(call, backlog))
    }

    /// Takes a connection to a socket that listens; and the address that it comes from.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when it does not listen; [`Errno::WouldBlock`], [`Errno::Interrupted`],
    /// [`Errno::TooManyFiles`].
    pub fn accept(&self, fd: Fd) -> Result<(Fd, SocketAddrV4), Errno> {
        self.with_inet(fd, |call, socket, wait| {
            self.room_for_one()?;
            let (accepted, from) = socket.accept(call, wait)?;
            Ok((self.process.files.lock().insert(File::socket(accepted, Rights::READ_WRITE)), from))
        })
    }

    /// Connects to `to`. A datagram socket sends there from now on, and receives from there only.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`], [`Errno::TimedOut`], [`Errno::NetUnreachable`], [`Errno::AddressNotAvailable`],
    /// [`Errno::AddressInUse`], [`Errno::IsConnected`], [`Errno::InProgress`] (at once, of a non-blocking socket: it is
    /// writable when it is connected), [`Errno::AlreadyInProgress`], [`Errno::NoMemory`], [`Errno::Interrupted`].
    pub fn connect(&self, fd: Fd, to: SocketAddrV4) -> Result<(), Errno> {
        self.with_inet(fd, |call, socket, wait| socket.connect(call, to, wait))
    }

    /// Ends one or both directions of a connection.
    ///
    /// # Errors
    /// [`Errno::NotConnected`].
    pub fn shutdown(&self, fd: Fd, how: Shutdown) -> Result<(), Errno> {
        self.with_inet(fd, |call, socket, _| socket.shutdown(call, how))
    }

    /// The names of a socket's two ends (`getsockname`, `getpeername`).
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub fn socket_names(&self, fd: Fd) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno> {
        self.with_inet(fd, |call, socket, _| socket.names(call))
    }

    /// Sets an option of a socket.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a value out of bounds, or an option that the protocol does not have.
    pub fn set_socket_option(&self, fd: Fd, option: SocketOption) -> Result<(), Errno> {
        self.with_inet(fd, |call, socket, _| socket.set_option(call, option))
    }

    /// What ended a connection, if anything did; asked once (`SO_ERROR`).
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub fn socket_error(&self, fd: Fd) -> Result<Option<Errno>, Errno> {
        self.with_inet(fd, |call, socket, _| socket.take_error(call))
    }

    /// Sends a datagram to `to`.
    ///
    /// # Errors
    /// [`Errno::MessageSize`], [`Errno::IsConnected`], [`Errno::NetUnreachable`], [`Errno::NoMemory`], or a bad
    /// address; [`Errno::NotSupported`] for a stream.
    pub fn send_to(&self, fd: Fd, from: Va, len_bytes: usize, to: SocketAddrV4) -> Result<usize, Errno> {
        self.with_inet(fd, |call, socket, wait| match socket.kind()? {
            SocketKind::Datagram => {
                call.check_buffer(from, len_bytes)?;
                let mut uio = Uio::write(from, len_bytes, SendMode::Copy).waiting(wait);
                socket.send_to(call, &mut uio, Some(to))?;
                Ok(uio.done())
            }
            SocketKind::Stream => Err(Errno::NotSupported),
        })
    }

    /// Receives a datagram, or as much of it as there is room for; and where it comes from.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`], [`Errno::Interrupted`], or a bad address: the datagram is lost then.
    /// [`Errno::NotSupported`] for a stream.
    pub fn receive_from(&self, fd: Fd, to: Va, len_bytes: usize) -> Result<(usize, SocketAddrV4), Errno> {
        self.with_inet(fd, |call, socket, wait| {
            call.check_buffer(to, len_bytes)?;
            let mut uio = Uio::read(to, len_bytes).waiting(wait);
            let from = socket.receive_from(call, &mut uio)?;
            Ok((uio.done(), from))
        })
    }
}
