//! Channels: two ends, and the messages between them.
//!
//! # What it holds
//! [`Channel`] makes ends: both in one process, or one over a socket that leads to another. [`Sender`] and
//! [`Receiver`] are the ends, [`Buffer`], [`Lent`] and [`Loan`] the memory of a message in its three states:
//! being filled, lent, received. `handshake` agrees on a channel, `admit` judges each descriptor that comes,
//! `send` and `receive` hold the state that an end shares with its memory, `prepare` makes sealed memory ahead.

mod admit;
mod buffer;
mod config;
mod confined;
mod gap;
mod greet;
mod handshake;
mod leased;
mod loan;
mod message;
mod pass;
mod passed;
mod place;
mod prepare;
mod receive;
mod receiver;
mod send;
mod sender;
mod settled;
mod shared;
mod spawn;
mod spin;

use crate::sync::Instant;
pub(crate) use buffer::Store;
pub use buffer::{Buffer, Lent, Sharing, Zeroed};
pub use config::Config;
pub use confined::Confined;
pub use gap::Gap;
pub use loan::{Loan, Owned};
pub use message::Message;
pub use pass::{PassMode, Passing, Range};
pub use passed::Passed;
pub use receive::RecvCounters;
pub use receiver::Receiver;
pub use send::SendCounters;
pub(crate) use send::{FannedSlots, Outgoing, SendShared, SharedMemory};
pub use sender::Sender;
pub use shared::Shared;
pub use spawn::{Child, Command, Parent};

use crate::error::{Error, Usage};
use crate::sys::fork;
use crate::sys::socket::{self, Socket};
use crate::trust::{Guarded, Same, Trust};
pub(crate) use handshake::{Offer, Offered, Welcomed};
pub(crate) use leased::Peer;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Makes channels.
#[derive(Debug)]
pub enum Channel {}

impl Channel {
    /// Both ends in this process, for two of its threads.
    pub fn pair(config: Config) -> Result<(Sender, Receiver), Error> {
        let (ours, theirs) = Socket::pair()?;
        let offered = Offered::hello(ours, config.clone(), Same::TRUSTS)?;
        let welcomed = Welcomed::welcome(theirs, config, Peer::Same)?;
        let concluded = offered.settle()?;
        let receive = welcomed.ready()?;
        let send = concluded.finish()?;
        Ok((Sender::new(send), Receiver::new(receive)))
    }

    /// Two sockets that are each other's peer: one for [`Channel::sender`], one for [`Channel::receiver`],
    /// usually in another process.
    pub fn sockets() -> Result<(OwnedFd, OwnedFd), Error> {
        Ok(socket::pair()?)
    }

    /// The sending end, over a socket whose other end becomes the receiver. Waits for it. It may be hostile.
    pub fn sender(socket: OwnedFd, config: Config) -> Result<Sender<Guarded>, Error> {
        sender_over(socket, config)
    }

    /// The receiving end, over a socket whose other end becomes the sender. Waits for it. It may be hostile.
    pub fn receiver(socket: OwnedFd, config: Config) -> Result<Receiver<Guarded>, Error> {
        receiver_over(socket, config)
    }

    /// As [`Channel::sender`], to a receiver that this process trusts as itself.
    ///
    /// # Safety
    /// The receiver is a program that uses this library, and is trusted not to write to memory that it has given
    /// back: this process reads that through references.
    #[allow(unsafe_code, reason = "a promise of the caller; nothing unsafe is done here")]
    pub unsafe fn trusted_sender(socket: OwnedFd, config: Config) -> Result<Sender<Same>, Error> {
        sender_over(socket, config)
    }

    /// As [`Channel::receiver`], from a sender that this process trusts as itself.
    ///
    /// # Safety
    /// The sender is a program that uses this library, and is trusted to keep no other way to write to the memory
    /// that it lends: this process reads that through references.
    #[allow(unsafe_code, reason = "a promise of the caller; nothing unsafe is done here")]
    pub unsafe fn trusted_receiver(socket: OwnedFd, config: Config) -> Result<Receiver<Same>, Error> {
        receiver_over(socket, config)
    }

    /// A socket to whoever listens at `path`: see [`Listener`]. It is for [`Channel::sender`] or
    /// [`Channel::receiver`], whichever the other side is not.
    pub fn connect(path: impl AsRef<Path>) -> Result<OwnedFd, Error> {
        Ok(socket::connect(path.as_ref())?)
    }
}

pub(crate) fn sender_over<T: Trust>(socket: OwnedFd, config: Config) -> Result<Sender<T>, Error> {
    Ok(Sender::new(Offered::hello(own(socket)?, config, T::TRUSTS)?.settle()?.finish()?))
}

pub(crate) fn receiver_over<T: Trust>(socket: OwnedFd, config: Config) -> Result<Receiver<T>, Error> {
    receiver_from(socket, config, if T::TRUSTS { Peer::Same } else { Peer::Stranger })
}

fn receiver_from<T: Trust>(socket: OwnedFd, config: Config, peer: Peer) -> Result<Receiver<T>, Error> {
    Ok(Receiver::new(Welcomed::welcome(own(socket)?, config, peer)?.ready()?))
}

pub(crate) fn own(socket: OwnedFd) -> Result<Socket, Error> {
    Socket::new(socket).map_err(|_| Usage::NotASocket.into())
}

/// Waits for others to connect.
///
/// The path is a name for the time of connecting and nothing more: no memory hangs on it, and what a killed process
/// has left there is replaced. Whoever may write to the socket file may connect; its mode is by the umask.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    generation: u32,
}

impl Listener {
    /// Listens at `path`. `EADDRINUSE`: somebody does already.
    pub fn bind(path: impl AsRef<Path>) -> Result<Listener, Error> {
        let path = path.as_ref().to_owned();
        Ok(Listener { socket: socket::listen(&path)?, path, generation: fork::generation() })
    }

    /// Waits for the next connection: a socket for [`Channel::sender`] or [`Channel::receiver`].
    pub fn accept(&self) -> Result<OwnedFd, Error> {
        self.accept_until(None)?.ok_or(Error::WouldBlock)
    }

    /// The same, waiting for `timeout` at most.
    pub fn accept_timeout(&self, timeout: Duration) -> Result<OwnedFd, Error> {
        self.accept_until(Instant::now().checked_add(timeout))?.ok_or(Error::TimedOut(timeout))
    }

    fn accept_until(&self, until: Option<Instant>) -> Result<Option<OwnedFd>, Error> {
        loop {
            if let Some(socket) = socket::accept(self.socket.as_fd())? {
                return Ok(Some(socket));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(None);
            }
            socket::wait_readable(&[self.socket.as_fd()], until)?;
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A child has the same socket and the same path.
        if self.generation == fork::generation() {
            let _ = std::fs::remove_file(&self.path);
            socket::close_listening(self.socket.as_fd());
        }
    }
}
