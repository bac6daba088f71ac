//! Sockets: mbufs, the buffers that they are in, and the ways in and out, by copy or without; and in [`inet`] the
//! protocols that they go by to other machines.

mod chain;
pub(crate) mod inet;
mod lending;
mod lent;
mod mbuf;
mod sendfile;
mod sockbuf;
mod socket;
mod soreceive;
mod sosend;
mod sotee;

pub(crate) use chain::Chain;
pub use inet::{Counts, clusters_for_card};
pub(crate) use inet::{InetSocket, Net, PcbId, Protocols};
pub(crate) use lending::Lenders;
pub(crate) use mbuf::{CardPage, Mbuf, Pool, SMALL_BYTES};
pub(crate) use sockbuf::{MAX_SOCKETS, SOCKET_BYTES, SockBuf, Socket};
pub(crate) use socket::NullSocket;
pub(crate) use soreceive::{Receiver, deliver};
pub(crate) use sosend::{Sender, Supply, lend_or_copy};
