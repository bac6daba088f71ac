//! The receiver's end.

use super::loan::Loan;
use super::message::Message;
use super::receive::{RecvCounters, RecvShared};
use crate::error::Error;
use crate::sync::Instant;
use crate::trust::{Same, Trust};
use crate::wire::Level;
use core::cell::RefCell;
use core::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The receiving end of a channel. One thread at a time uses it; it can move to another.
///
/// Messages of this process stay snapshots in a child of `fork` for as long as this process lives; a child that
/// outlives it may see later messages where they were.
#[derive(Debug)]
pub struct Receiver<T: Trust = Same> {
    shared: Arc<RecvShared>,
    /// A message that came and could not be given out as it was asked for.
    kept: RefCell<Option<Message>>,
    _trust: PhantomData<fn() -> T>,
}

impl<T: Trust> Receiver<T> {
    pub(crate) fn new(shared: Arc<RecvShared>) -> Receiver<T> {
        Receiver { shared, kept: RefCell::new(None), _trust: PhantomData }
    }

    /// The next message. Waits for it. When the sender is gone and all of its messages were received:
    /// `Error::Peer(PeerFault::Dead)`. A message that this side cannot take, for want of memory or budget, stays
    /// the next one.
    pub fn recv(&self) -> Result<Loan, Error> {
        self.settled(self.recv_until(None)?)
    }

    /// The next message, if one is there; [`Error::WouldBlock`] otherwise.
    pub fn try_recv(&self) -> Result<Loan, Error> {
        self.settled(self.recv_until(Some(Instant::now()))?)
    }

    /// The next message, waited for `timeout` at most.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Loan, Error> {
        self.settled(self.recv_within(timeout)?)
    }

    /// The next message, with memory that the sender shares as such. ([`Receiver::recv`] copies that: what it
    /// gives never changes.)
    pub fn recv_message(&self) -> Result<Message, Error> {
        self.recv_until(None)
    }

    /// The same, if one is there; [`Error::WouldBlock`] otherwise.
    pub fn try_recv_message(&self) -> Result<Message, Error> {
        self.recv_until(Some(Instant::now()))
    }

    /// The same, waited for `timeout` at most.
    pub fn recv_message_timeout(&self, timeout: Duration) -> Result<Message, Error> {
        self.recv_within(timeout)
    }

    /// For whoever waits by `poll`, beside other descriptors. Does `look`, which is [`Receiver::try_recv`] or
    /// [`Receiver::try_recv_message`]; where nothing is there ([`Error::WouldBlock`]), this end's descriptor
    /// ([`AsFd`]) becomes readable when there is, or when the sender is gone. Look again then, by the same call.
    pub fn watch<R>(&self, mut look: impl FnMut(&Receiver<T>) -> Result<R, Error>) -> Result<R, Error> {
        loop {
            match look(self) {
                Err(Error::WouldBlock) if !self.shared.watch() => return Err(Error::WouldBlock),
                Err(Error::WouldBlock) => (),
                found => return found,
            }
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> &Arc<RecvShared> {
        &self.shared
    }

    fn recv_until(&self, until: Option<Instant>) -> Result<Message, Error> {
        self.shared.check_ours()?;
        if let Some(kept) = self.kept.take() {
            return Ok(kept);
        }
        let arrival = self.shared.recv(until)?.ok_or(Error::WouldBlock)?;
        Ok(Message::of(Loan::new(Arc::clone(&self.shared), arrival)))
    }

    fn recv_within(&self, timeout: Duration) -> Result<Message, Error> {
        let message = self.recv_until(Instant::now().checked_add(timeout));
        message.map_err(|error| if error == Error::WouldBlock { Error::TimedOut(timeout) } else { error })
    }

    /// A message in one piece. Where it cannot be had so, the next call has the message.
    fn settled(&self, message: Message) -> Result<Loan, Error> {
        message.settle().map_err(|(error, message)| {
            self.kept.replace(Some(message));
            error
        })
    }

    /// What loans of this channel promise.
    pub fn level(&self) -> Level {
        self.shared.settled.level
    }

    /// Whether huge pages lie behind the pool.
    pub fn huge_pages(&self) -> bool {
        self.shared.view.huge()
    }

    /// What was done so far.
    pub fn counters(&self) -> RecvCounters {
        self.shared.counters()
    }

    /// Who was at the other end when the connection was made.
    pub fn peer(&self) -> Result<crate::Credentials, Error> {
        self.shared.check_ours()?;
        Ok(crate::sys::peer::credentials(self.shared.socket())?)
    }
}

impl<T: Trust> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.bye();
    }
}

impl<T: Trust> AsFd for Receiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.socket()
    }
}

impl<T: Trust> AsRawFd for Receiver<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.socket().as_raw_fd()
    }
}
