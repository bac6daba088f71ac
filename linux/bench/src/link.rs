//! What the two processes tell each other outside of what is timed: packets of JSON over a socket, with
//! descriptors.

use crate::cell::{Line, Method, Pattern, Wait};
use crate::error::{BenchError, Calls as _, Result};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Sender to receiver.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Where to run.
    Start { cpu: Option<usize>, realtime: bool },
    /// Memory and channels for messages of one size. Brings the turn, the slots, the pipe and the stream.
    Open { bytes: usize, wait: Wait, pid: u32, own: u64, lines: Vec<Line> },
    /// So many messages will come.
    Receive { method: Method, pattern: Pattern, rounds: u32, check: Option<u64> },
    /// The memory and channels are done with.
    Close,
}

/// Receiver to sender.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The order is carried out, or is about to be.
    Ready,
    /// The channels are there, but for those that are not; and why not.
    Opened { missing: Vec<(usize, String)> },
    /// All messages came: the sum of what was read, and whether what was checked was right.
    Received { sum: u64, right: bool },
    /// Something went wrong.
    Failed(String),
}

/// One end.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
}

const MAX_FDS: usize = 4;
/// Longer than anything that is measured takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

impl Link {
    /// An end, and what the other process is to inherit.
    pub fn pair() -> Result<(Link, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .call("socketpair")?;
        set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE)).call("SO_RCVTIMEO")?;
        Ok((Link { socket: ours }, theirs))
    }

    /// Over what the other process has inherited.
    pub fn of(socket: OwnedFd) -> Link {
        Link { socket }
    }

    /// Sends a message with descriptors, of which there are few.
    pub fn send<T: Serialize>(&self, message: &T, fds: &[&OwnedFd]) -> Result<()> {
        let text = serde_json::to_vec(message).expect("plain data can be written as JSON");
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "there is space for them");
        }
        let slice = [IoSlice::new(&text)];
        rustix::net::sendmsg(&self.socket, &slice, &mut control, SendFlags::NOSIGNAL).call("sendmsg")?;
        Ok(())
    }

    /// The next message; `None` when the other side is gone.
    pub fn recv<T: for<'a> Deserialize<'a>>(&self) -> Result<Option<(T, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; 64 << 10];
        let got = rustix::io::retry_on_intr(|| {
            let mut slice = [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&self.socket, &mut slice, &mut control, RecvFlags::CMSG_CLOEXEC)
        });
        let got = match got {
            Err(rustix::io::Errno::AGAIN) => return Err(BenchError::Silent(PATIENCE.as_secs())),
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => other.call("recvmsg")?,
        };
        if got.bytes == 0 {
            return Ok(None);
        }
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        let message = serde_json::from_slice(&bytes[..got.bytes]);
        let message =
            message.map_err(|error| BenchError::Peer(format!("it sent something else: {error}")))?;
        Ok(Some((message, fds)))
    }

    /// An answer, which must come.
    pub(crate) fn answer(&self) -> Result<Answer> {
        match self.recv::<Answer>()? {
            None => Err(BenchError::Peer("it has ended".to_owned())),
            Some((Answer::Failed(why), _)) => Err(BenchError::Peer(why)),
            Some((answer, _)) => Ok(answer),
        }
    }
}
