//! Sockets: the buffers that they are in, and the ways in and out, by copy or without; and in `inet` the
//! protocols that they go by to other machines.
//!
//! # Locks
//! `Network` (the Internet protocols) comes before those of `pageferry_core`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod inet;
mod null;
mod sendfile;
mod sockbuf;
mod socket;
mod soreceive;
mod sosend;
mod sotee;

pub use config::{NetConfig, NetPaths, ReceiveMapping, Repack};
pub use inet::{Counts, clusters_for_card, mbufs_for_card};
pub use inet::{InetSocket, LOCK_CLASSES, Net, Parts, PcbId, ProtocolHost, Protocols};
pub use null::NullSocket;
pub use sockbuf::{MAX_SOCKETS, SOCKET_BYTES, SockBuf, SockBufs, Socket};
pub use soreceive::{Receiver, deliver};
pub use sosend::{Sender, Supply, lend_or_copy};
