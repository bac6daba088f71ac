//! One message of the handshake over the socket: said, waited for, refused.
//!
//! # What can fail
//! The peer is believed in nothing: a message has the kind and the number of descriptors that are expected, and the
//! wait for it has an end. Whatever ends a step on this side is told to the other ([`told`]), so that both know who is
//! to blame.

use crate::error::{Broken, Error, PeerFault};
use crate::sync::Instant;
use crate::sys;
use crate::sys::socket::{self, Came, Socket};
use crate::wire::{Greeting, Kind};
use rustix::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Sends one message of the handshake.
pub(super) fn send(socket: &Socket, greeting: &Greeting, fds: &[&OwnedFd]) -> Result<(), Error> {
    use zerocopy::IntoBytes as _;
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    socket::send(socket.as_fd(), greeting.as_bytes(), &fds).map_err(|failed| match failed.errno {
        sys::Errno::PIPE | sys::Errno::CONNRESET => PeerFault::Dead.into(),
        _ => failed.into(),
    })
}

/// Tells the peer why no channel will be, as far as it listens.
fn refuse(socket: &Socket, reason: &str) {
    use zerocopy::IntoBytes as _;
    let greeting = Greeting::new(Kind::Refuse, sys::page_bytes());
    let mut bytes = greeting.as_bytes().to_vec();
    bytes.extend_from_slice(reason.as_bytes());
    let _ = socket::send(socket.as_fd(), &bytes, &[]);
}

/// Waits for one message of the handshake, which must be of the kind and bring so many descriptors.
pub(super) fn receive(
    socket: &Socket,
    kind: Kind,
    fds: usize,
    timeout: Duration,
) -> Result<(Greeting, Vec<OwnedFd>), Error> {
    let until = Instant::now().checked_add(timeout);
    let mut bytes = [0; 512];
    let packet = loop {
        match socket::recv(socket.as_fd(), &mut bytes)? {
            Came::Packet(packet) => break packet,
            Came::End => return Err(PeerFault::Dead.into()),
            Came::Nothing => (),
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return Err(Error::TimedOut(timeout));
        }
        socket::wait_readable(&[socket.as_fd()], until)?;
    };
    if packet.cut {
        return Err(Broken::Handshake("a greeting is longer than it may be").into());
    }
    if packet.fds_cut && !planted!(NoControlCheck) {
        return Err(Broken::DescriptorsLost.into());
    }
    let (greeting, reason) = Greeting::parse(&bytes[..packet.len]).map_err(Broken::Handshake)?;
    if greeting.kind == Kind::Refuse as u8 {
        return Err(PeerFault::Refused(reason).into());
    }
    if greeting.kind != kind as u8 {
        return Err(Broken::Handshake(
            "messages come in another order, or both sides are senders, or both receivers",
        )
        .into());
    }
    if packet.strange {
        return Err(Broken::NOT_MEMORY.into());
    }
    if packet.fds.len() != fds {
        return Err(Broken::Handshake("the number of descriptors is another").into());
    }
    Ok((greeting, packet.fds))
}

/// Ends a step; where it has failed, the peer is told why before the error goes up, except where the error is what
/// the peer itself has said.
pub(super) fn told<T>(socket: &Socket, step: Result<T, Error>) -> Result<T, Error> {
    if let Err(error) = &step
        && !matches!(error, Error::Peer(PeerFault::Dead | PeerFault::Refused(_)))
    {
        refuse(socket, &error.to_string());
    }
    step
}
