//! Sockets: mbufs, the buffers that they are in, and the ways in and out, by copy or without.

mod lending;
mod mbuf;
mod sockbuf;
mod soreceive;
mod sosend;
mod sotee;

pub(crate) use lending::Lenders;
pub(crate) use mbuf::{CardPage, Mbuf, Pool};
pub(crate) use sockbuf::{SOCKET_BYTES, Stream};
pub use soreceive::{ReceiveMode, Received};
pub(crate) use soreceive::{Receiver, deliver};
pub use sosend::SendMode;
pub(crate) use sosend::{Sender, lend_or_copy};
