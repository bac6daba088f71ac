//! Channels: two ends, and the messages between them.
//!
//! # What it holds
//! [`Channel`] makes ends: both in one process, or one over a socket that leads to another. [`Sender`] and
//! [`Receiver`] are the ends, [`Buffer`], [`Lent`] and [`Loan`] the memory of a message in its three states:
//! being filled, lent, received. `handshake` agrees on a channel, `admit` judges each descriptor that comes,
//! `send` and `receive` hold the state that an end shares with its memory.

mod admit;
mod buffer;
mod config;
mod handshake;
mod loan;
mod receive;
mod receiver;
mod send;
mod sender;

pub use buffer::{Buffer, Lent, Sharing, Zeroed};
pub use config::Config;
pub use loan::{Loan, Message, Owned, Shared};
pub use receive::RecvCounters;
pub use receiver::Receiver;
pub use send::SendCounters;
pub use sender::Sender;

use crate::error::Error;
use crate::sys::socket;
use crate::trust::{Same, Trust};
use handshake::{Offered, Welcomed};
use std::os::fd::OwnedFd;

/// Makes channels.
#[derive(Debug)]
pub enum Channel {}

impl Channel {
    /// Both ends in this process, for two of its threads.
    pub fn pair(config: Config) -> Result<(Sender, Receiver), Error> {
        let (ours, theirs) = socket::pair()?;
        let offered = Offered::hello(ours, config.clone(), Same::TRUSTS)?;
        let welcomed = Welcomed::welcome(theirs, config, Same::TRUSTS)?;
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

    /// The sending end, over a socket whose other end becomes the receiver. Waits for it.
    pub fn sender<T: Trust>(socket: OwnedFd, config: Config) -> Result<Sender<T>, Error> {
        Ok(Sender::new(Offered::hello(socket, config, T::TRUSTS)?.settle()?.finish()?))
    }

    /// The receiving end, over a socket whose other end becomes the sender. Waits for it.
    pub fn receiver<T: Trust>(socket: OwnedFd, config: Config) -> Result<Receiver<T>, Error> {
        Ok(Receiver::new(Welcomed::welcome(socket, config, T::TRUSTS)?.ready()?))
    }
}
