//! The ends of a channel for the runtime tokio. Only with the feature `tokio`.
//!
//! # What it holds
//! [`AsyncReceiver`] and [`AsyncSender`] put an end's socket into the runtime's poll. A task that waits
//! sleeps as a thread would: it says in the ring that it sleeps, looks once more, and waits for the socket.
//!
//! # Sealed memory
//! It goes over the socket, which can be full where the ring is not. So a sender of such memory also waits for room
//! there: the kernel tells when three quarters of it are free, and a receiver that has nothing left to receive has
//! emptied it.
//!
//! # Cancelling
//! A future that is dropped while it waits has taken nothing. The peer sends one needless wake-up at most.
//!
//! ```
//! use pageferry::tasks::{AsyncReceiver, AsyncSender};
//! use pageferry::{Channel, Config, Error};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! let (tx, rx) = Channel::pair(Config::new().slots(2).slot_bytes(2 << 20))?;
//! let (mut tx, mut rx) = (AsyncSender::new(tx)?, AsyncReceiver::new(rx)?);
//! let worker = tokio::spawn(async move { rx.recv().await.map(|frame| frame.len()) });
//!
//! let frame = tx.buffer(1_000_000).await?;
//! let lent = tx.loan(frame).await?;
//! let frame = tx.home(lent).await?;
//! assert_eq!(worker.await.unwrap()?, frame.len());
//! # Ok(())
//! # }
//! ```

use crate::channel::{Buffer, Lent, Loan, Receiver, SendShared, Sender};
use crate::error::Error;
use crate::sync::Instant;
use crate::sys::runtime::{self, End};
use crate::trust::{Same, Trust};
use crate::wire::Level;
use core::task::{Context, Poll, ready};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The receiving end.
#[derive(Debug)]
pub struct AsyncReceiver<T: Trust = Same> {
    end: AsyncFd<Receiver<T>>,
}

impl<T: Trust> AsyncReceiver<T> {
    /// Within a runtime; panics outside of one, as all of tokio does.
    pub fn new(receiver: Receiver<T>) -> Result<AsyncReceiver<T>, Error> {
        Ok(AsyncReceiver { end: runtime::enter(receiver, None)? })
    }

    /// The next message: see [`Receiver::recv`].
    pub async fn recv(&mut self) -> Result<Loan, Error> {
        core::future::poll_fn(|context| self.poll_recv(context)).await
    }

    /// The same, for futures of one's own.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Loan, Error>> {
        loop {
            match self.end.get_ref().try_recv() {
                Err(Error::WouldBlock) => (),
                found => return Poll::Ready(found),
            }
            if self.end.get_ref().shared().begin_sleep() {
                let _ = self.end.get_ref().shared().end_sleep();
                continue;
            }
            let mut guard = match ready!(self.end.poll_read_ready_mut(context)) {
                Ok(guard) => guard,
                Err(error) => return Poll::Ready(Err(failed(&error))),
            };
            if guard.get_inner().shared().end_sleep() {
                guard.clear_ready();
            }
        }
    }

    /// The end itself.
    pub fn get_ref(&self) -> &Receiver<T> {
        self.end.get_ref()
    }

    /// The end itself, out of the runtime.
    pub fn into_inner(self) -> Receiver<T> {
        self.end.into_inner()
    }
}

fn failed(error: &std::io::Error) -> Error {
    let errno = crate::sys::Errno::from_io_error(error).unwrap_or(crate::sys::Errno::IO);
    crate::Failed { call: "epoll_wait", errno }.into()
}

/// Tells of slots that other tasks of this process give back.
#[derive(Debug)]
pub(crate) struct Freed(Arc<SendShared>);

impl AsFd for Freed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.view.freed().as_fd()
    }
}

impl AsRawFd for Freed {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

// SAFETY: the channel's state has the socket, and lives as long as the end.
#[allow(unsafe_code, reason = "a promise of the end; nothing unsafe is done here")]
unsafe impl<T: Trust> End for Sender<T> {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a promise of the end; nothing unsafe is done here")]
unsafe impl<T: Trust> End for Receiver<T> {}
// SAFETY: it shares the sender's state, which has the descriptor.
#[allow(unsafe_code, reason = "a promise of the end; nothing unsafe is done here")]
unsafe impl End for Freed {}

/// The sending end.
#[derive(Debug)]
pub struct AsyncSender<T: Trust = Same> {
    end: AsyncFd<Sender<T>>,
    freed: AsyncFd<Freed>,
}

impl<T: Trust> AsyncSender<T> {
    /// Within a runtime; panics outside of one, as all of tokio does.
    pub fn new(sender: Sender<T>) -> Result<AsyncSender<T>, Error> {
        let freed = runtime::enter(Freed(Arc::clone(sender.shared())), None)?;
        // Elsewhere each note that the peer takes would wake the runtime for nothing.
        let room = (sender.level() == Level::Sealed).then_some(Interest::WRITABLE);
        Ok(AsyncSender { end: runtime::enter(sender, room)?, freed })
    }

    /// Memory for a message: see [`Sender::buffer`].
    pub async fn buffer(&mut self, len: usize) -> Result<Buffer, Error> {
        self.until(false, |sender| {
            sender.shared().view.freed().want();
            match sender.try_buffer(len) {
                Err(Error::WouldBlock) => Ok(None),
                found => found.map(Some),
            }
        })
        .await
    }

    /// Lends a buffer: see [`Sender::loan`].
    pub async fn loan(&mut self, buffer: Buffer) -> Result<Lent, Error> {
        let len = buffer.len();
        match self.end.get_ref().seal(buffer)? {
            Ok(snapshot) => self.until(true, |sender| sender.try_send_sealed(&snapshot, len)).await,
            Err(buffer) => {
                self.room().await?;
                self.end.get_ref().loan(buffer)
            }
        }
    }

    /// Sends bytes by copy: see [`Sender::copy`].
    pub async fn copy(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.until(false, |sender| match sender.try_copy(bytes) {
            Err(Error::WouldBlock) => Ok(None),
            found => found.map(Some),
        })
        .await
    }

    /// Waits until lent memory is home: see [`Lent::wait`].
    pub async fn home(&mut self, lent: Lent) -> Result<Buffer, Error> {
        let mut lent = Some(lent);
        self.until(false, |_| match lent.take() {
            None => Ok(None),
            Some(token) => match token.wait_until(Some(Instant::now())) {
                Ok(buffer) => Ok(Some(buffer)),
                Err((Error::WouldBlock, token)) => {
                    lent = Some(token);
                    Ok(None)
                }
                Err((error, _)) => Err(error),
            },
        })
        .await
    }

    /// Waits until one more message can be sent. The calls of the end itself ([`AsyncSender::get_ref`]) do
    /// not wait for the ring then. Those that send sealed memory may still wait for the socket or the budget.
    pub async fn room(&mut self) -> Result<(), Error> {
        self.until(false, |sender| Ok(sender.shared().has_room()?.then_some(()))).await
    }

    /// Waits until `ready` gives something. `socket`: it may also have found no room in the socket.
    async fn until<R>(
        &mut self,
        socket: bool,
        mut ready: impl FnMut(&Sender<T>) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        loop {
            if let Some(found) = ready(self.end.get_ref())? {
                return Ok(found);
            }
            if self.end.get_ref().shared().begin_sleep() {
                let _ = self.end.get_ref().shared().end_sleep();
                continue;
            }
            // Another thread may have taken from the ring what came back before this said that it sleeps.
            if let Some(found) = ready(self.end.get_ref()).transpose() {
                let _ = self.end.get_ref().shared().end_sleep();
                return found;
            }
            core::future::poll_fn(|context| self.poll_woken(context, socket)).await?;
        }
    }

    /// Waits for the peer, or for slots that this process gives back, or for room in the socket.
    fn poll_woken(&mut self, context: &mut Context<'_>, socket: bool) -> Poll<Result<(), Error>> {
        let peer = self.end.poll_read_ready(context).map_err(|error| failed(&error))?;
        let room = match socket {
            true => self.end.poll_write_ready(context).map_err(|error| failed(&error))?,
            false => Poll::Pending,
        };
        let freed = self.freed.poll_read_ready_mut(context).map_err(|error| failed(&error))?;
        if peer.is_pending() && freed.is_pending() && room.is_pending() {
            return Poll::Pending;
        }
        if let Poll::Ready(mut guard) = room {
            // What room there is now, the next try finds.
            guard.clear_ready();
        }
        if let Poll::Ready(mut guard) = freed {
            guard.get_inner().0.view.freed().seen();
            guard.clear_ready();
        }
        match peer {
            Poll::Ready(mut guard) => {
                if guard.get_inner().shared().end_sleep() {
                    guard.clear_ready();
                }
            }
            Poll::Pending => {
                let _ = self.end.get_ref().shared().end_sleep();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The end itself.
    pub fn get_ref(&self) -> &Sender<T> {
        self.end.get_ref()
    }

    /// The end itself, out of the runtime.
    pub fn into_inner(self) -> Sender<T> {
        self.end.into_inner()
    }
}
