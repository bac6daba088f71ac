//! Messages between a test's own processes, with descriptors: what the library itself would not send.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

const MAX_FDS: usize = 16;

/// Two ends that are each other's peer.
pub fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// Says something; `false`: nobody listens any more.
pub fn say(socket: &OwnedFd, what: &impl Serialize, fds: &[&OwnedFd]) -> bool {
    let bytes = serde_json::to_vec(what).unwrap();
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
    let slices = [IoSlice::new(&bytes)];
    retry_on_intr(|| rustix::net::sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL)).is_ok()
}

/// Hears something; `None`: the other side is gone.
pub fn hear<T: DeserializeOwned>(socket: &OwnedFd) -> Option<(T, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 1 << 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let got =
        retry_on_intr(|| rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC));
    let len = got.map_or(0, |got| got.bytes);
    if len == 0 {
        return None;
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Some((serde_json::from_slice(&bytes[..len]).unwrap(), fds))
}
