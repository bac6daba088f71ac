//! The two ends of a channel.
//!
//! # Waiting
//! A call that waits does so without the interpreter's lock, and looks for signals ten times a second: Ctrl-C ends it,
//! and nothing is lost by that. What is sent waits for room before it gives up its buffer.
//!
//! # Locks
//! Each end has one, for a call of the library's; a call that waits takes it anew for each tenth of a second.

use crate::arrival::{Arrival, Mode};
use crate::errors::{raise, usage};
use crate::export::bytes_of;
use crate::ledger;
use crate::loan::HeldMessage;
use crate::slot::{Slot, State};
use pageferry::{Arrived, Channel, Error, Lent, Level, Message};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use std::net::Shutdown;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Between two looks for signals.
const SLICE: Duration = Duration::from_millis(100);

/// What a channel is to be.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Config {
    config: pageferry::Config,
    timeout: Duration,
}

#[pymethods]
impl Config {
    #[new]
    #[pyo3(signature = (*, slots, slot_bytes, level, budget, capacity, inline_bytes, timeout, spin_us=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named")]
    fn new(
        slots: u32,
        slot_bytes: usize,
        level: &str,
        budget: u64,
        capacity: u32,
        inline_bytes: u32,
        timeout: f64,
        spin_us: Option<u64>,
    ) -> PyResult<Config> {
        let level = match level {
            "mmu" => Level::Mmu,
            "sealed" => Level::Sealed,
            "copy" => Level::Copy,
            other => {
                return Err(usage(format!("level is {other:?}; expected \"mmu\", \"sealed\" or \"copy\"")));
            }
        };
        let timeout = seconds(Some(timeout))?.unwrap_or(SLICE);
        let mut config = pageferry::Config::new()
            .slots(slots)
            .slot_bytes(slot_bytes)
            .level(level)
            .budget(budget)
            .capacity(capacity)
            .inline_bytes(inline_bytes)
            .handshake_timeout(timeout)
            // Python has pointers to what it has lent, and may store there.
            .copy_on_write(true);
        if let Some(micros) = spin_us {
            config = config.spin(Duration::from_micros(micros));
        }
        config.check().map_err(raise)?;
        Ok(Config { config, timeout })
    }
}

/// A time that Python gives: none is for ever.
fn seconds(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(timeout) = timeout else { return Ok(None) };
    match Duration::try_from_secs_f64(timeout) {
        Ok(timeout) => Ok(Some(timeout)),
        Err(_) => Err(usage(format!("timeout is {timeout}; expected seconds from 0 on, or None"))),
    }
}

/// Does what waits, a slice at a time, without the interpreter's lock.
fn patiently<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    mut attempt: impl FnMut(Duration) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let timeout = seconds(timeout)?;
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()));
        match py.detach(|| attempt(left.min(SLICE))) {
            Err(Error::TimedOut(_) | Error::WouldBlock) => {
                py.check_signals()?;
                if until.is_some_and(|until| until <= Instant::now()) {
                    return Err(raise(Error::TimedOut(timeout.unwrap_or(SLICE))));
                }
            }
            other => return other.map_err(raise),
        }
    }
}

/// Makes an end over a socket, in a thread: the peer may take its time, and Ctrl-C is to end that.
fn bind<T: Send + 'static>(
    py: Python<'_>,
    socket: OwnedFd,
    timeout: Duration,
    make: impl FnOnce(OwnedFd) -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let stop = UnixStream::from(socket.try_clone()?);
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("pageferry-bind".into());
    thread.spawn(move || tell.send(make(socket)))?;
    // The library's steps have their own end; this is for the sum of them.
    let until = Instant::now().checked_add(timeout.saturating_mul(4));
    let told = Mutex::new(told);
    loop {
        let news = py.detach(|| told.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SLICE));
        match news {
            Ok(made) => return made.map_err(raise),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(usage("the end could not be made")),
            Err(mpsc::RecvTimeoutError::Timeout) => (),
        }
        let interrupted = py.check_signals();
        let late = until.is_some_and(|until| until <= Instant::now());
        if interrupted.is_err() || late {
            let _ = stop.shutdown(Shutdown::Both);
            interrupted?;
            return Err(raise(Error::TimedOut(timeout)));
        }
    }
}

/// Two sockets that are each other's peer, as descriptors that the caller owns.
#[pyfunction]
pub fn sockets() -> PyResult<(RawFd, RawFd)> {
    let (ours, theirs) = Channel::sockets().map_err(raise)?;
    Ok((ours.into_raw_fd(), theirs.into_raw_fd()))
}

/// Both ends in this process.
#[pyfunction]
pub fn pair(py: Python<'_>, config: &Config) -> PyResult<(Sender, Receiver)> {
    let config = config.config.clone();
    let (sender, receiver) = py.detach(|| Channel::pair(config)).map_err(raise)?;
    let channel = ledger::channel();
    Ok((Sender::new(sender, channel), Receiver::new(receiver, channel)))
}

/// Takes a descriptor over.
fn own(fd: RawFd) -> PyResult<OwnedFd> {
    if fd < 0 {
        return Err(usage(format!("{fd} is no descriptor")));
    }
    // SAFETY: the caller gives the descriptor up: it is said so of each function that takes one.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The sending end.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Sender {
    end: Mutex<Option<pageferry::Sender>>,
    channel: u64,
}

/// A piece of a message: where in it, and the bytes.
type Piece = (usize, PyBuffer<u8>);

impl Sender {
    fn new(end: pageferry::Sender, channel: u64) -> Sender {
        Sender { end: Mutex::new(Some(end)), channel }
    }

    fn lock(&self) -> MutexGuard<'_, Option<pageferry::Sender>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, call: impl FnOnce(&pageferry::Sender) -> Result<T, Error>) -> Result<T, Error> {
        match &*self.lock() {
            Some(end) => call(end),
            None => Err(pageferry::Usage::Verb("the end is closed").into()),
        }
    }

    /// Waits until a message can be sent without waiting.
    fn wait_room(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        patiently(py, timeout, |slice| self.with(|end| end.wait_room(slice)))
    }

    fn filled(
        &self,
        py: Python<'_>,
        pieces: &[Piece],
        len: usize,
        timeout: Option<f64>,
    ) -> PyResult<pageferry::Buffer> {
        let mut bytes = Vec::with_capacity(pieces.len());
        for (offset, piece) in pieces {
            bytes.push((*offset, bytes_of(piece)?));
        }
        let mut buffer = patiently(py, timeout, |slice| self.with(|end| end.buffer_timeout(len, slice)))?;
        py.detach(|| bytes.iter().try_for_each(|(offset, piece)| buffer.write_at(*offset, piece)))
            .map_err(raise)?;
        Ok(buffer)
    }

    /// Sends a buffer that nobody in Python has the address of.
    fn send_buffer(
        &self,
        py: Python<'_>,
        buffer: pageferry::Buffer,
        how: &str,
        tag: u64,
        timeout: Option<f64>,
    ) -> PyResult<&'static str> {
        self.wait_room(py, timeout)?;
        let sent = py.detach(|| {
            self.with(|end| match how {
                "donate" => end.donate_tagged(buffer, tag).map(|()| "donate"),
                "loan" => end.loan_tagged(buffer, tag).map(|lent| verb(&lent)),
                _ => end.auto_tagged(buffer, Arrived::Touched, tag).map(|lent| verb(&lent)),
            })
        });
        sent.map_err(raise)
    }
}

fn verb(lent: &Lent) -> &'static str {
    match lent.verb() {
        pageferry::Verb::Copy => "copy",
        _ => "loan",
    }
}

#[pymethods]
impl Sender {
    /// The sending end over a socket, which it takes over; the peer is trusted as this program.
    #[staticmethod]
    fn over(py: Python<'_>, fd: RawFd, config: &Config) -> PyResult<Sender> {
        let (socket, settings) = (own(fd)?, config.config.clone());
        // SAFETY: both ends of a pair are given to this program's own processes: that is what a pair is for, and its
        // documentation says so.
        let end =
            bind(py, socket, config.timeout, |socket| unsafe { Channel::trusted_sender(socket, settings) })?;
        Ok(Sender::new(end, ledger::channel()))
    }

    /// Memory for a message.
    #[pyo3(signature = (nbytes, timeout=None, whence=None))]
    fn buffer(
        &self,
        py: Python<'_>,
        nbytes: usize,
        timeout: Option<f64>,
        whence: Option<String>,
    ) -> PyResult<Slot> {
        let buffer = patiently(py, timeout, |slice| self.with(|end| end.buffer_timeout(nbytes, slice)))?;
        Ok(Slot::new(buffer, self.channel, whence))
    }

    /// The same, with bytes copied in.
    #[pyo3(signature = (pieces, nbytes, timeout=None, whence=None))]
    fn buffer_of(
        &self,
        py: Python<'_>,
        pieces: Vec<Piece>,
        nbytes: usize,
        timeout: Option<f64>,
        whence: Option<String>,
    ) -> PyResult<Slot> {
        Ok(Slot::new(self.filled(py, &pieces, nbytes, timeout)?, self.channel, whence))
    }

    /// Sends bytes of elsewhere: they are copied into a buffer, which goes as `how` says. What was done.
    #[pyo3(signature = (pieces, nbytes, how, tag, timeout=None))]
    fn send_pieces(
        &self,
        py: Python<'_>,
        pieces: Vec<Piece>,
        nbytes: usize,
        how: &str,
        tag: u64,
        timeout: Option<f64>,
    ) -> PyResult<&'static str> {
        let buffer = self.filled(py, &pieces, nbytes, timeout)?;
        self.send_buffer(py, buffer, how, tag, timeout)
    }

    /// Sends bytes by copy.
    #[pyo3(signature = (data, tag, timeout=None))]
    fn send_bytes(
        &self,
        py: Python<'_>,
        data: PyBuffer<u8>,
        tag: u64,
        timeout: Option<f64>,
    ) -> PyResult<&'static str> {
        let bytes = bytes_of(&data)?;
        patiently(py, timeout, |slice| self.with(|end| end.copy_tagged_timeout(bytes, tag, slice)))?;
        Ok("copy")
    }

    /// Sends a slot as `how` says. What was done.
    #[expect(clippy::result_large_err, reason = "the error brings the buffer back")]
    #[pyo3(signature = (slot, how, tag, timeout=None))]
    fn send_slot(
        &self,
        py: Python<'_>,
        slot: &Bound<'_, Slot>,
        how: &str,
        tag: u64,
        timeout: Option<f64>,
    ) -> PyResult<&'static str> {
        let slot = slot.get();
        if slot.channel() != self.channel {
            return Err(usage("the memory belongs to another channel"));
        }
        if matches!(*slot.lock(), State::Donated { .. }) {
            return Err(usage("the memory was given away by send(how=\"donate\"), and reads as zeros since"));
        }
        self.wait_room(py, timeout)?;
        let frozen = py.detach(|| self.with(|end| Ok(end.level() == Level::Mmu))).map_err(raise)?;
        let state = core::mem::replace(&mut *slot.lock(), State::Busy);
        let buffer = match state {
            State::Filling(buffer) => buffer,
            // Unchanged since, and home: the same again.
            State::Lent(lent) if how != "donate" && how != "share" && again(&lent) => {
                let sent = py.detach(|| self.with(|end| end.loan_again_tagged(lent, tag)));
                return self.lent(slot, sent);
            }
            other => {
                *slot.lock() = other;
                return self.copied(py, slot, how, tag, timeout);
            }
        };
        let sent = py.detach(|| match &*self.lock() {
            None => Err((pageferry::Usage::Verb("the end is closed").into(), buffer)),
            Some(end) => match how {
                "donate" => end
                    .donate_zero_or_return(buffer, tag)
                    .map(|zeros| ("donate", State::Donated { _zeros: zeros })),
                "share" => end
                    .share_or_return(buffer, tag)
                    .map(|sharing| ("share", State::Shared { _sharing: sharing })),
                // Of what is not frozen, a copy goes.
                _ if !frozen => Ok(("", State::Filling(buffer))),
                _ => end.loan_or_return(buffer, tag).map(|lent| ("loan", State::Lent(lent))),
            },
        });
        match sent {
            Ok(("", state)) => {
                *slot.lock() = state;
                self.copied(py, slot, how, tag, timeout)
            }
            Ok((how, state)) => {
                slot.becomes(state);
                Ok(how)
            }
            Err((error, buffer)) => {
                *slot.lock() = State::Filling(buffer);
                Err(raise(error))
            }
        }
    }

    /// The number of the channel.
    #[getter]
    fn channel(&self) -> u64 {
        self.channel
    }

    /// What loans promise here.
    #[getter]
    fn level(&self) -> PyResult<String> {
        self.with(|end| Ok(end.level().to_string())).map_err(raise)
    }

    /// Whether huge pages lie behind the pool.
    #[getter]
    fn huge_pages(&self) -> PyResult<bool> {
        self.with(|end| Ok(end.huge_pages())).map_err(raise)
    }

    /// Messages sent, messages that the receiver holds, slots taken, pages that the receiver wrote.
    fn counters(&self) -> PyResult<(u64, u64, u32, u64)> {
        let counters = self.with(|end| Ok(end.counters())).map_err(raise)?;
        Ok((counters.sent, counters.out, counters.slots_taken, counters.pages_written))
    }

    /// Sends no more. The receiver still gets what was sent.
    fn close(&self) {
        self.lock().take();
    }
}

/// Whether lent memory can be lent again as it is.
fn again(lent: &Lent) -> bool {
    matches!((lent.is_home(), lent.is_written()), (Ok(true), Ok(false)))
}

impl Sender {
    fn lent(&self, slot: &Slot, sent: Result<Lent, Error>) -> PyResult<&'static str> {
        match sent {
            Ok(lent) => {
                slot.becomes(State::Lent(lent));
                Ok("loan")
            }
            // The channel is at its end: its slots go to nobody else.
            Err(error) => Err(raise(error)),
        }
    }

    /// Sends a copy of what is in the slot now.
    fn copied(
        &self,
        py: Python<'_>,
        slot: &Slot,
        how: &str,
        tag: u64,
        timeout: Option<f64>,
    ) -> PyResult<&'static str> {
        if how == "share" {
            return Err(usage("memory is shared before it was sent otherwise, and once"));
        }
        let bytes = slot.bytes();
        let mut buffer =
            patiently(py, timeout, |slice| self.with(|end| end.buffer_timeout(bytes.len(), slice)))?;
        py.detach(|| buffer.write_at(0, bytes)).map_err(raise)?;
        self.send_buffer(py, buffer, how, tag, timeout)
    }
}

/// The receiving end.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Receiver {
    end: Mutex<Option<pageferry::Receiver>>,
    /// A message that came and could not be given out.
    kept: Mutex<Option<Message>>,
    channel: u64,
}

impl Receiver {
    fn new(end: pageferry::Receiver, channel: u64) -> Receiver {
        Receiver { end: Mutex::new(Some(end)), kept: Mutex::new(None), channel }
    }

    fn with<T>(&self, call: impl FnOnce(&pageferry::Receiver) -> Result<T, Error>) -> Result<T, Error> {
        match &*self.end.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(end) => call(end),
            None => Err(pageferry::Usage::Verb("the end is closed").into()),
        }
    }

    fn next(&self, slice: Duration) -> Result<Message, Error> {
        self.with(|end| {
            // A child of `fork` is refused here, too.
            match self.kept.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(kept) => Ok(kept),
                None => end.recv_message_timeout(slice),
            }
        })
    }
}

#[pymethods]
impl Receiver {
    /// The receiving end over a socket, which it takes over; the peer is trusted as this program.
    #[staticmethod]
    fn over(py: Python<'_>, fd: RawFd, config: &Config) -> PyResult<Receiver> {
        let (socket, settings) = (own(fd)?, config.config.clone());
        // SAFETY: as for a sender.
        let make = |socket| unsafe { Channel::trusted_receiver(socket, settings) };
        Ok(Receiver::new(bind(py, socket, config.timeout, make)?, ledger::channel()))
    }

    /// The next message. One that cannot be given out for want of memory stays the next.
    #[pyo3(signature = (mode, timeout=None, whence=None))]
    fn recv(
        &self,
        py: Python<'_>,
        mode: Mode,
        timeout: Option<f64>,
        whence: Option<String>,
    ) -> PyResult<HeldMessage> {
        let message = patiently(py, timeout, |slice| self.next(slice))?;
        match py.detach(|| Arrival::new(message, mode, self.channel, whence)) {
            Ok(inner) => Ok(HeldMessage::new(inner)),
            Err(failed) => {
                let (error, message) = *failed;
                self.kept.lock().unwrap_or_else(PoisonError::into_inner).replace(message);
                Err(raise(error))
            }
        }
    }

    /// What loans promise here.
    #[getter]
    fn level(&self) -> PyResult<String> {
        self.with(|end| Ok(end.level().to_string())).map_err(raise)
    }

    /// Messages received, slots held, bytes held, loans that wait for the end of a child.
    fn counters(&self) -> PyResult<(u64, u32, u64, usize)> {
        let counters = self.with(|end| Ok(end.counters())).map_err(raise)?;
        Ok((counters.received, counters.slots_held, counters.bytes_held, counters.retired))
    }

    /// Takes no more. What was received stays valid.
    fn close(&self) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
