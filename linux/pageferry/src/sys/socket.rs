//! The channel's socket: SOCK_SEQPACKET, for the handshake, for descriptors, and to wake a peer that sleeps.
//!
//! Every call says `MSG_DONTWAIT` itself, and none relies on a flag of the descriptor: the peer shares an
//! eventfd's flags, but not a socket end's. `MSG_NOSIGNAL` keeps a dead peer from killing this process.

use super::{Errno, Failed, Named, Result, may_fail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

/// Descriptors in one message, at most.
pub(crate) const MAX_FDS: usize = 8;

/// Two ends that are each other's peer.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    may_fail("socketpair")?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).of("socketpair")
}

/// A socket that listens at `path`. A socket file at which nobody listens any more is replaced.
pub(crate) fn listen(path: &Path) -> Result<OwnedFd> {
    let socket = new()?;
    let address = SocketAddrUnix::new(path).of("bind")?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if is_deserted(path) => {
            rustix::fs::unlink(path).of("unlink")?;
            rustix::net::bind(&socket, &address)
        }
        other => other,
    }
    .of("bind")?;
    rustix::net::listen(&socket, 16).of("listen")?;
    Ok(socket)
}

fn is_deserted(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && connect(path).is_err_and(|failed| failed.errno == Errno::CONNREFUSED)
}

/// A socket to whoever listens at `path`.
pub(crate) fn connect(path: &Path) -> Result<OwnedFd> {
    let socket = new()?;
    let address = SocketAddrUnix::new(path).of("connect")?;
    rustix::net::connect(&socket, &address).of("connect")?;
    Ok(socket)
}

fn new() -> Result<OwnedFd> {
    may_fail("socket")?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).of("socket")
}

/// The next connection, if one waits.
pub(crate) fn accept(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>> {
    may_fail("accept")?;
    match rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        other => other.of("accept").map(Some),
    }
}

/// Whether the descriptor is a SOCK_SEQPACKET socket of the Unix domain.
pub(crate) fn is_seqpacket(fd: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_type(fd) == Ok(SocketType::SEQPACKET)
        && rustix::net::sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

/// Sends one message. `EAGAIN`: the peer has not read what was sent before.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    may_fail("sendmsg")?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Failed { call: "sendmsg", errno: Errno::TOOMANYREFS });
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags))
        .of("sendmsg")?;
    Ok(())
}

/// Sends a message that wakes the peer, and whose loss nobody would make up for. Where its socket is full, one
/// waits there already; what the kernel refuses otherwise is tried again some times.
pub(crate) fn wake(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<()> {
    let mut tries = 16;
    loop {
        match send(socket, bytes, &[]) {
            Err(failed) if failed.errno == Errno::AGAIN => return Ok(()),
            Err(failed) if tries > 0 && !matches!(failed.errno, Errno::PIPE | Errno::CONNRESET) => {
                tries -= 1;
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

/// The peer sees the end of what this side sends. This side still hears the peer.
pub(crate) fn say_no_more(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
}

/// One message that came.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) len: usize,
    pub(crate) fds: Vec<OwnedFd>,
    /// The message was longer than the buffer.
    pub(crate) cut: bool,
    /// Descriptors are missing: they were too many, or this process's limit is reached.
    pub(crate) fds_cut: bool,
    /// There was a descriptor of something else than memory that can be read. It is closed already.
    pub(crate) strange: bool,
}

/// Takes one message, and of its descriptors those of memory; `None` when none waits. A length of 0 is the end: the
/// peer is gone.
pub(crate) fn recv(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Option<Packet>> {
    let Some(mut packet) = recv_any(socket, bytes)? else { return Ok(None) };
    let (memory, strange): (Vec<_>, Vec<_>) = packet.fds.drain(..).partition(super::memfd::is_memory);
    packet.fds = memory;
    packet.strange = !strange.is_empty();
    discard(strange);
    Ok(Some(packet))
}

/// Closes descriptors of a peer in another thread: to close a file system of its own, or a socket that waits for its
/// other end, takes as long as the peer likes.
fn discard(fds: Vec<OwnedFd>) {
    if !fds.is_empty() {
        let _ = std::thread::Builder::new().name("pageferry-close".to_owned()).spawn(move || drop(fds));
    }
}

/// The same, with descriptors of whatever kind: from a peer that is trusted.
pub(crate) fn recv_any(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Option<Packet>> {
    may_fail("recvmsg")?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)
    });
    let got = match got {
        Err(Errno::AGAIN) => return Ok(None),
        // The peer went and left unread what we had sent.
        Err(Errno::CONNRESET) => {
            return Ok(Some(Packet { len: 0, fds: Vec::new(), cut: false, fds_cut: false, strange: false }));
        }
        other => other.of("recvmsg")?,
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let cut = got.flags.contains(ReturnFlags::TRUNC);
    let fds_cut = got.flags.contains(ReturnFlags::CTRUNC);
    Ok(Some(Packet { len: got.bytes, fds, cut, fds_cut, strange: false }))
}

/// Waits until one of the descriptors can be read or is closed, or `until` has come. Says which.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], until: Option<Instant>) -> Result<Vec<bool>> {
    may_fail("poll")?;
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match rustix::event::poll(&mut polled, left.map(timespec).as_ref()) {
            Err(Errno::INTR) => (),
            other => {
                other.of("poll")?;
                return Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect());
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    // A year is for ever.
    let seconds = duration.as_secs().min(365 * 24 * 3600) as i64;
    Timespec { tv_sec: seconds, tv_nsec: i64::from(duration.subsec_nanos()) }
}
