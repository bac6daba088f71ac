//! The channel's socket: SOCK_SEQPACKET, for the handshake, for descriptors, and to wake a peer that sleeps.
//!
//! # What a peer can do to it
//! Whoever made a pair of sockets may have kept a copy of this end, which is the same socket: it can set options,
//! change flags, and take packets. So every call says `MSG_DONTWAIT` itself, and none relies on a flag of the
//! descriptor or on an option. `MSG_NOSIGNAL` keeps a dead peer from killing this process.
//!
//! # Descriptors that come
//! The last one who closes a file may have to wait for as long as its maker likes: a socket that lingers, a file
//! system of the peer's own. The kernel closes what it does not hand over, in the thread that receives, and what
//! still waits in a socket, in the thread that closes it. So there is room for as many descriptors as a packet can
//! have, whatever else an option adds to it ([`Control`]), and an end is emptied before it is closed ([`Socket`]).
//! All that came and is no memory is closed by another thread. What is left is a process that is at its limit of
//! descriptors: there the kernel closes the rest where this side receives.

use super::{Errno, Failed, Named, Result, fork, may_fail};
use crate::sync::{self, Instant};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    let address = address(path).of("bind")?;
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

/// An empty path is none, as for all other calls: the kernel would take it for a wish for any name that is free.
fn address(path: &Path) -> rustix::io::Result<SocketAddrUnix> {
    if path.as_os_str().is_empty() { Err(Errno::NOENT) } else { SocketAddrUnix::new(path) }
}

fn is_deserted(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && connect(path).is_err_and(|failed| failed.errno == Errno::CONNREFUSED)
}

/// A socket to whoever listens at `path`.
pub(crate) fn connect(path: &Path) -> Result<OwnedFd> {
    let socket = new()?;
    let address = address(path).of("connect")?;
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

/// Nobody connects any more, and who waits to be accepted is turned away.
pub(crate) fn close_listening(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
    // What they have sent would be closed with the socket.
    while let Ok(fd) = rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
        drop(Socket::new(fd));
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
    sync::sent();
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

/// Sends the last note of this side. Where its socket is full, the peer sees the end of what this side sends instead.
pub(crate) fn send_last(socket: BorrowedFd<'_>, bytes: &[u8]) {
    if send(socket, bytes, &[]).is_err_and(|failed| failed.errno == Errno::AGAIN) {
        say_no_more(socket);
    }
}

/// The peer sees the end of what this side sends. This side still hears the peer.
pub(crate) fn say_no_more(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// An end of a channel. Closing it never waits for what the peer has sent and nobody has received.
#[derive(Debug)]
pub(crate) struct Socket {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    generation: u32,
}

/// Packets that are taken from an end before it is closed, at most: more than an honest peer leaves there.
const LEFT: usize = 1024;

impl Socket {
    /// Owns a socket; gives it back where it is not a SOCK_SEQPACKET socket of the Unix domain.
    pub(crate) fn new(fd: OwnedFd) -> core::result::Result<Socket, OwnedFd> {
        match is_seqpacket(fd.as_fd()) {
            true => Ok(Socket { fd: Some(fd), generation: fork::generation() }),
            false => Err(fd),
        }
    }

    /// Both ends.
    pub(crate) fn pair() -> Result<(Socket, Socket)> {
        let (ours, theirs) = pair()?;
        let own = |fd| Socket { fd: Some(fd), generation: fork::generation() };
        Ok((own(ours), own(theirs)))
    }

    /// It stays open for as long as this process lives.
    pub(crate) fn leave_open(&mut self) {
        if let Some(fd) = self.fd.take() {
            let _ = fd.into_raw_fd();
        }
    }

    fn fd(&self) -> &OwnedFd {
        self.fd.as_ref().expect("an end is there until it is dropped")
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd().as_raw_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        // In a child the number leads to something else.
        if self.generation != fork::generation() {
            return;
        }
        // Nothing comes any more. What is there says who has sent it, so that an empty packet is none.
        let _ = rustix::net::sockopt::set_socket_passcred(&fd, true);
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        let mut strange = Vec::new();
        for _ in 0..LEFT {
            match receive(fd.as_fd(), &mut [0]) {
                Err(failed) if failed.errno == Errno::CONNRESET => (),
                Ok(Incoming { len: 0, bare: true, .. }) | Err(_) => return discard(strange),
                Ok(received) => {
                    strange.extend(received.fds.into_iter().filter(|fd| !super::memfd::is_memory(fd)));
                }
            }
        }
        strange.push(fd);
        discard(strange);
    }
}

/// What came.
#[derive(Debug)]
pub(crate) enum Came {
    /// Nothing waits.
    Nothing,
    /// The peer is gone, or says that it sends no more, and all that it had sent was taken.
    End,
    /// One message.
    Packet(Packet),
}

/// One message that came. It may be an empty one, which has no meaning.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) len: usize,
    pub(crate) fds: Vec<OwnedFd>,
    /// The message was longer than the buffer.
    pub(crate) cut: bool,
    /// Descriptors are missing: this process's limit is reached.
    pub(crate) fds_cut: bool,
    /// There was a descriptor of something else than memory that can be read. It is closed already.
    pub(crate) strange: bool,
}

/// Takes one message, and of its descriptors those of memory.
pub(crate) fn recv(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Came> {
    let mut packet = match recv_any(socket, bytes)? {
        Came::Packet(packet) => packet,
        other => return Ok(other),
    };
    let (memory, strange): (Vec<_>, Vec<_>) = packet.fds.drain(..).partition(super::memfd::is_memory);
    packet.fds = memory;
    packet.strange = !strange.is_empty();
    discard(strange);
    Ok(Came::Packet(packet))
}

/// Closes descriptors of a peer, each in a thread of its own: one that waits would keep the others open. They are no
/// more than one packet has, for a channel ends by the first; where no thread is to be had, they are closed later.
fn discard(fds: Vec<OwnedFd>) {
    static LATER: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    if fds.is_empty() {
        return;
    }
    let mut later = LATER.lock().unwrap_or_else(PoisonError::into_inner);
    later.extend(fds);
    while let Some(fd) = later.pop() {
        let number = fd.into_raw_fd();
        // SAFETY: nobody else has the number.
        let own = move || unsafe { OwnedFd::from_raw_fd(number) };
        if super::threads::start("pageferry-close", move || drop(own())).is_err() {
            return later.push(own());
        }
    }
}

/// The same as [`recv`], with descriptors of whatever kind: from a peer that is trusted.
pub(crate) fn recv_any(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Came> {
    may_fail("recvmsg")?;
    let mut received = receive(socket, bytes);
    if received.as_ref().is_err_and(|failed| failed.errno == Errno::CONNRESET) {
        // The peer went and left unread what this side had sent. What it had sent before waits behind that error.
        received = receive(socket, bytes);
    }
    let received = match received {
        Err(failed) if failed.errno == Errno::AGAIN => return Ok(Came::Nothing),
        Err(failed) if failed.errno == Errno::CONNRESET => return Ok(Came::End),
        other => other?,
    };
    // An empty message and the end look the same, but a peer that is there has not hung up.
    if received.len == 0 && received.fds.is_empty() && !received.fds_cut && has_hung_up(socket)? {
        return Ok(Came::End);
    }
    let Incoming { len, fds, cut, fds_cut, .. } = received;
    Ok(Came::Packet(Packet { len, fds, cut, fds_cut, strange: false }))
}

fn has_hung_up(socket: BorrowedFd<'_>) -> Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&now))).of("poll")?;
    Ok(polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP))
}

/// Room for what comes beside the bytes of a packet: all the descriptors that it can have (253), and what options of
/// the socket add: a pidfd, credentials, times, the label of a security module.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; 4096]);

/// What the kernel gives for one `recvmsg`.
struct Incoming {
    len: usize,
    cut: bool,
    fds_cut: bool,
    fds: Vec<OwnedFd>,
    /// Nothing came beside the bytes.
    bare: bool,
}

/// Takes what waits. Owns every descriptor that comes with it.
fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Incoming> {
    let mut control = Control([MaybeUninit::uninit(); 4096]);
    let mut slice = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a message of zeros and null pointers has no bytes and no control buffer.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let len = loop {
        // SAFETY: the message names two buffers that live through the call, with their lengths.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        match rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()) {
            _ if len >= 0 => break len as usize,
            Some(Errno::INTR) => (),
            errno => return Err(Failed { call: "recvmsg", errno: errno.unwrap_or(Errno::IO) }),
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel has written headers into the buffer, and how many bytes of it it has used.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let bare = at.is_null();
    while !at.is_null() {
        // SAFETY: a header lies there whole, and as many bytes behind it as it says.
        let (header, data) = unsafe { (at.read_unaligned(), libc::CMSG_DATA(at)) };
        /// Of a socket with `SO_PASSPIDFD`: a descriptor of the process that has sent the packet.
        const SCM_PIDFD: libc::c_int = 4;
        if header.cmsg_level == libc::SOL_SOCKET && matches!(header.cmsg_type, libc::SCM_RIGHTS | SCM_PIDFD) {
            let bytes = header.cmsg_len.saturating_sub(data as usize - at as usize);
            for index in 0..bytes / size_of::<RawFd>() {
                // SAFETY: within the bytes of this header.
                let fd = unsafe { data.cast::<RawFd>().add(index).read_unaligned() };
                // The kernel puts an error number in the place of a pidfd that it could not make.
                if fd >= 0 {
                    // SAFETY: the kernel has just made it for this process.
                    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                    // A pidfd was not sent by the peer, and closes at once.
                    if header.cmsg_type == libc::SCM_RIGHTS {
                        fds.push(fd);
                    }
                }
            }
        }
        // SAFETY: as for the first.
        at = unsafe { libc::CMSG_NXTHDR(&raw const message, at) };
    }
    let flag = |flag| message.msg_flags & flag != 0;
    Ok(Incoming { len, cut: flag(libc::MSG_TRUNC), fds_cut: flag(libc::MSG_CTRUNC), fds, bare })
}

/// What a side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Something to read, or the end.
    Reading,
    /// The same, or room to send.
    Both,
}

/// Waits until one of the descriptors can be read or is closed, or `until` has come. Says which.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], until: Option<Instant>) -> Result<Vec<bool>> {
    wait(&fds.iter().map(|&fd| (fd, For::Reading)).collect::<Vec<_>>(), until)
}

/// How often a side that waits for room looks for it by itself: the kernel tells only when three quarters are free.
pub(crate) const ROOM_POLL: Duration = Duration::from_millis(20);

/// Waits until one of the descriptors is as it should be, or `until` has come. Says which. A wait for room may end
/// early.
pub(crate) fn wait(fds: &[(BorrowedFd<'_>, For)], until: Option<Instant>) -> Result<Vec<bool>> {
    may_fail("poll")?;
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|&(fd, what)| match what {
            For::Reading => PollFd::from_borrowed_fd(fd, PollFlags::IN),
            For::Both => PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::OUT),
        })
        .collect();
    let soon = fds.iter().any(|&(_, what)| what == For::Both).then(|| Instant::now() + ROOM_POLL);
    let until = [until, soon].into_iter().flatten().min();
    loop {
        let left = sync::patience(until);
        match rustix::event::poll(&mut polled, left.map(timespec).as_ref()) {
            Err(Errno::INTR) => (),
            other => {
                other.of("poll")?;
                let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
                if ready.contains(&true) || !sync::waits_again(until) {
                    return Ok(ready);
                }
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    // A year is for ever.
    let seconds = duration.as_secs().min(365 * 24 * 3600) as i64;
    Timespec { tv_sec: seconds, tv_nsec: i64::from(duration.subsec_nanos()) }
}
