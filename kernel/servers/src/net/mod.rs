//! The protocol server and the driver's server: two processes that have the Internet protocols and the network card of
//! a kernel whose servers are processes (Yamauchi et al., 3.1 and 4.3).
//!
//! # The model
//! A kernel that is configured so ([`pageferry_ispc::NetServiceConfig`]) runs its protocols ([`pageferry_net::inet`])
//! in a process, and its card is another's. The first socket begins both. Programs make the same system calls as under
//! any kernel; for those on sockets the kernel makes requests of the protocol server, from the calling process: what is
//! to be done in a control piece, bytes in a data piece.
//!
//! * *Waiting.* The server never waits for one client. It answers what would wait with
//!   [`WouldBlock`](crate::Errno::WouldBlock); the client's call sleeps until something changes for its socket, and
//!   asks again.
//! * *Frames out.* The protocols put frames in a queue. Behind each request, and when it is told that there is work,
//!   the server copies them to pieces of its own, holding no lock, and makes requests of the driver's server, which has
//!   the card read the piece where it is and answers when that is sent. Several frames may be on their way; where
//!   threads cross into servers it is one after the other.
//! * *Frames in.* The driver's server gives the card pieces to receive into. A piece with a frame goes with a request
//!   to the protocol server, which copies it into its buffers and answers; then the card gets the piece again.
//! * *Time and interrupts.* What is due is done by the server: the callout only tells it that there is work. So does
//!   the card's interrupt with the driver's server.
//!
//! Neither waits for the other, so they cannot wait for each other: both directions are posted. Where threads cross,
//! the driver's own thread has nothing of its server's when it goes to the protocol server, and whoever comes to the
//! driver waits for the card only.
//!
//! # Files
//! `words`: what requests look like. `service`: who serves, one request, and those who wait; `client`: the kernel's
//! view of it. `socket`: a socket of the server's, as processes have it. `protocols`: what the protocol server does
//! with a request; `frames`: what it has on its way to the driver. `driver`: the other one.
//!
//! # Who owns what
//! The protocol server has the sockets, by handle; the kernel has descriptors, and who the server is. A socket belongs
//! to the server that made it: one that is begun later knows nothing of it
//! ([`ConnectionReset`](crate::Errno::ConnectionReset)). When the server dies all its connections are forgotten; the
//! other ends are told when they next say something. A driver's server that dies is replaced by the protocol server;
//! frames that it had are lost, as on a wire, and what the card receives into stays with the card. Buffers (mbufs) are
//! of the kernel's pool, which the protocol server uses as a library of its own: without system calls.
//!
//! # What can fail
//! All that fails in the protocols; the server, by its end. The server does not wait for memory: where a kernel would,
//! a call fails with [`NoMemory`](crate::Errno::NoMemory).

mod client;
mod driver;
mod frames;
mod protocols;
mod service;
mod socket;
mod waiters;
mod words;

pub(crate) use client::Network;
