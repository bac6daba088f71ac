//! Messages through a socket: what goes as a block and what as bytes, and that nothing is lost between the two.

use super::arrived::{ArrivedPickle, Memory, broken, copy_of};
use super::blocks::ARENA;
use super::envelope::{BLOCK, Envelope, Kind, LAID_OUT, LONG, TRUSTED};
use super::pickle::{Pickle, Piece};
use crate::errors::raise;
use crate::export::bytes_of;
use pageferry::{Counted, Handle};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyEOFError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The socket of a connection, which keeps it open while one of its calls runs.
pub(super) fn socket(fd: RawFd) -> PyResult<BorrowedFd<'static>> {
    if fd < 0 {
        return Err(PyOSError::new_err("handle is closed"));
    }
    // SAFETY: a number that is not -1. Whoever closes it in the midst of a call has the call fail, or go to what is
    // opened next under the number, as with every call of the module `os`.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

pub(super) fn os_error(errno: Errno) -> PyErr {
    std::io::Error::from(errno).into()
}

/// Does a call until no signal ends it early.
pub(super) fn retry<T: Send>(
    py: Python<'_>,
    mut call: impl FnMut() -> rustix::io::Result<T> + Send,
) -> PyResult<Result<T, Errno>> {
    loop {
        match py.detach(&mut call) {
            Err(Errno::INTR) => py.check_signals()?,
            other => return Ok(other),
        }
    }
}

/// Sends bytes, or a pickle that [`PickleWriter::finish`] gave. `threshold`: longer bytes go by a block.
#[pyfunction]
pub fn send_message(py: Python<'_>, fd: RawFd, message: &Bound<'_, PyAny>, threshold: usize) -> PyResult<()> {
    let socket = socket(fd)?;
    if let Ok(pickle) = message.cast::<Pickle>() {
        let pickle = pickle.get();
        if let Some((handle, envelope)) = pickle.lend()? {
            match send_block(py, socket, &handle, envelope) {
                Ok(true) => return Ok(()),
                Ok(false) => pickle.not_sent(handle, envelope),
                Err(error) => {
                    pickle.not_sent(handle, envelope);
                    return Err(error);
                }
            }
        }
        send_all(py, socket, &[], &pickle.to_bytes(py)?)?;
        pickle.was_sent();
        return Ok(());
    }
    let buffer = PyBuffer::<u8>::get(message)?;
    let bytes = bytes_of(&buffer)?;
    if bytes.len() >= threshold {
        let all = Piece::of(bytes);
        let handle = py.detach(|| {
            let mut block = ARENA.load().block(all.len).ok()?;
            // SAFETY: the buffer keeps its bytes.
            unsafe { all.copy_to(&mut block, 0) };
            block.lend().ok()
        });
        let envelope = Envelope { kind: Kind::Bytes, used: bytes.len() as u64 };
        if let Some(handle) = handle
            && send_block(py, socket, &handle, envelope)?
        {
            return Ok(());
        }
    }
    send_bytes(py, socket, bytes)
}

/// Bytes, as the kernel counts them, that were sent by a socket and that nobody has received.
pub(super) fn waits_unread(socket: BorrowedFd<'_>) -> rustix::io::Result<c_int> {
    // SAFETY: the call of this number writes one `int`.
    unsafe { rustix::ioctl::ioctl(socket, rustix::ioctl::Getter::<{ SIOCOUTQ }, c_int>::new()) }
}

/// `SIOCOUTQ` of linux/sockios.h, which is `TIOCOUTQ`.
pub(super) const SIOCOUTQ: rustix::ioctl::Opcode = 0x5411;

/// Sends a block. `false`: its descriptor cannot be sent, and nothing was.
pub(super) fn send_block(
    py: Python<'_>,
    socket: BorrowedFd<'_>,
    handle: &Handle,
    envelope: Envelope,
) -> PyResult<bool> {
    let wire = envelope.to_wire(BLOCK);
    // A number that another socket has later says at worst that what waits there was received: it is left too early.
    let way = socket.as_raw_fd() as u64;
    if matches!(waits_unread(socket), Ok(0)) {
        ARENA.load().received(way);
    }
    let sent = retry(py, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [handle.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::TOOMANYREFS);
        }
        rustix::net::sendmsg(socket, &[IoSlice::new(&wire)], &mut control, SendFlags::NOSIGNAL)
    })?;
    match sent {
        Ok(sent) if sent == wire.len() => {
            handle.went(way);
            Ok(true)
        }
        // The kernel keeps so few bytes in one piece, or takes none.
        Ok(_) => Err(PyOSError::new_err("the socket took a part of an envelope")),
        Err(
            Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM | Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP,
        ) => Ok(false),
        Err(errno) => Err(os_error(errno)),
    }
}

/// Sends a length and so many bytes.
pub(super) fn send_bytes(py: Python<'_>, socket: BorrowedFd<'_>, bytes: &[u8]) -> PyResult<()> {
    match i32::try_from(bytes.len()) {
        Ok(len) => send_all(py, socket, &len.to_be_bytes(), bytes),
        Err(_) => {
            let long = (bytes.len() as u64).to_be_bytes();
            send_all(py, socket, &[&LONG.to_be_bytes()[..], &long].concat(), bytes)
        }
    }
}

/// Sends one after the other.
pub(super) fn send_all(py: Python<'_>, socket: BorrowedFd<'_>, head: &[u8], bytes: &[u8]) -> PyResult<()> {
    let mut sent = 0;
    while sent < head.len() + bytes.len() {
        let rest = [
            IoSlice::new(&head[sent.min(head.len())..]),
            IoSlice::new(&bytes[sent.saturating_sub(head.len())..]),
        ];
        sent += retry(py, || {
            rustix::net::sendmsg(socket, &rest, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        })?
        .map_err(os_error)?;
    }
    Ok(())
}

/// What waits at a socket.
pub(super) struct Peek {
    bytes: [u8; Envelope::LEN],
    len: usize,
    fds: Vec<OwnedFd>,
    /// There was no room for the descriptors that come with it.
    cut: bool,
}

pub(super) fn peek(socket: BorrowedFd<'_>) -> rustix::io::Result<Peek> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; Envelope::LEN];
    let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
    let came = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(Peek { bytes, len: came.bytes, fds, cut: came.flags.contains(ReturnFlags::CTRUNC) })
}

/// Looks after blocks of this process that may have come home, for as long as it has nothing else to do: until a
/// message waits, or no more is kept than is to be.
pub(super) fn tidy_while_waiting(py: Python<'_>, socket: BorrowedFd<'_>) -> PyResult<()> {
    const LONGEST: Duration = Duration::from_secs(5);
    let mut pause = Duration::from_millis(200);
    while ARENA.load().has_excess() {
        let waits = retry(py, || {
            let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
            let time = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
            rustix::event::poll(&mut fds, Some(&time))
        })?;
        if waits != Ok(0) {
            break;
        }
        py.detach(|| ARENA.load().tidy());
        pause = (2 * pause).min(LONGEST);
    }
    Ok(())
}

/// Fills `to` from the socket; it is at a place within a message.
pub(super) fn fill(py: Python<'_>, socket: BorrowedFd<'_>, to: &mut [u8]) -> PyResult<()> {
    let mut at = 0;
    while at < to.len() {
        let rest = &mut to[at..];
        match retry(py, || Ok(rustix::net::recv(socket, &mut *rest, RecvFlags::empty())?.1))?
            .map_err(os_error)?
        {
            0 => return Err(PyOSError::new_err("got end of file during message")),
            n => at += n,
        }
    }
    Ok(())
}

/// Takes the next message: bytes, or what came on a block. `None`: it is longer than `limit`, and is not taken.
/// `pickled`: it is a pickle also where it was sent as bytes, and is not copied.
#[pyfunction]
#[pyo3(signature = (fd, limit=None, pickled=false))]
pub fn recv_message<'py>(
    py: Python<'py>,
    fd: RawFd,
    limit: Option<u64>,
    pickled: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let socket = socket(fd)?;
    tidy_while_waiting(py, socket)?;
    let mut peeked = retry(py, || peek(socket))?.map_err(os_error)?;
    if peeked.len == 0 {
        return Err(PyEOFError::new_err(()));
    }
    let mut head = [0; 4];
    fill_head(py, socket, &peeked, &mut head)?;
    let too_long = |len: u64| limit.is_some_and(|limit| len > limit);
    let len = match i32::from_be_bytes(head) {
        BLOCK => {
            if peeked.fds.is_empty() && peeked.cut {
                return Err(PyOSError::new_err((
                    Errno::MFILE.raw_os_error(),
                    "no descriptor is left for the memory of the next message, which waits: raise RLIMIT_NOFILE \
                     (`ulimit -n`), or close some",
                )));
            }
            let (Some(fd), true) = (peeked.fds.pop(), peeked.fds.is_empty() && peeked.len == Envelope::LEN)
            else {
                return Err(broken("a block comes with one descriptor"));
            };
            let Some(envelope) = Envelope::from_wire(&peeked.bytes) else {
                return Err(broken("more parts than a message has"));
            };
            if too_long(envelope.used) {
                return Ok(None);
            }
            // A block that cannot be mapped for want of memory stays where it is.
            let counted = Counted::open(fd, isize::MAX as u64 / 4).map_err(raise)?;
            // The kernel closes the descriptor that it has still got: there is no room for it here.
            fill(py, socket, &mut [0; Envelope::LEN])?;
            return open(py, counted, envelope, pickled).map(Some);
        }
        LAID_OUT => {
            let mut wire = [0; Envelope::LEN];
            fill(py, socket, &mut wire)?;
            let Some(envelope) = Envelope::from_wire(&wire) else {
                return Err(broken("more parts than a message has"));
            };
            if too_long(envelope.used) {
                return Ok(None);
            }
            let bytes = fill_new(py, socket, envelope.used)?;
            return Ok(Some(Bound::new(py, ArrivedPickle::new(Memory::of(bytes), envelope)?)?.into_any()));
        }
        LONG => {
            fill(py, socket, &mut head)?;
            let mut long = [0; 8];
            fill(py, socket, &mut long)?;
            u64::from_be_bytes(long)
        }
        len => {
            let len = u64::try_from(len).map_err(|_| broken("a length is negative"))?;
            if !too_long(len) {
                fill(py, socket, &mut head)?;
            }
            len
        }
    };
    // Descriptors are of a message behind this one, which is looked at in its turn.
    drop(peeked);
    if too_long(len) {
        return Ok(None);
    }
    if len <= TRUSTED {
        return PyBytes::new_with(py, len as usize, |to| fill(py, socket, to))
            .map(|bytes| Some(bytes.into_any()));
    }
    Ok(Some(PyBytes::new(py, &fill_new(py, socket, len)?).into_any()))
}

/// So many bytes from the socket. A peer that says more than it sends takes no memory for that.
pub(super) fn fill_new(py: Python<'_>, socket: BorrowedFd<'_>, len: u64) -> PyResult<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| broken("a length is beyond all memory"))?;
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let at = bytes.len();
        bytes.resize((at + at.max(TRUSTED as usize)).min(len), 0);
        fill(py, socket, &mut bytes[at..])?;
    }
    Ok(bytes)
}

/// The length of the next message, which is left where it is.
pub(super) fn fill_head(
    py: Python<'_>,
    socket: BorrowedFd<'_>,
    peeked: &Peek,
    head: &mut [u8; 4],
) -> PyResult<()> {
    if peeked.len >= head.len() {
        head.copy_from_slice(&peeked.bytes[..4]);
        return Ok(());
    }
    // The peer has sent it in pieces.
    let got = retry(py, || {
        let flags = RecvFlags::PEEK | RecvFlags::WAITALL;
        Ok(rustix::net::recv(socket, &mut head[..], flags)?.1)
    })?;
    match got.map_err(os_error)? {
        4 => Ok(()),
        _ => Err(PyOSError::new_err("got end of file during message")),
    }
}

/// What lies on a block.
pub(super) fn open<'py>(
    py: Python<'py>,
    counted: Counted,
    envelope: Envelope,
    pickled: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if envelope.used > counted.len() as u64 {
        return Err(broken("the message is shorter than was said"));
    }
    match envelope.kind {
        Kind::Bytes if pickled => {
            let parts = vec![(0, envelope.used as usize)];
            Ok(Bound::new(py, ArrivedPickle { memory: Arc::new(Memory::new(counted)), parts })?.into_any())
        }
        Kind::Bytes => Ok(copy_of(py, &counted, 0, envelope.used as usize)?.into_any()),
        Kind::Pickle(_) => {
            Ok(Bound::new(py, ArrivedPickle::new(Memory::new(counted), envelope)?)?.into_any())
        }
    }
}
