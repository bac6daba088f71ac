//! Random use of Internet sockets: several connections at a time, over loopback and over a modelled wire that loses,
//! repeats, overtakes, delays and changes frames, with a host at its far end that is smoltcp: it sends all back, or a
//! file.
//!
//! * `steps`: what is done, as plain data.
//! * `hosts`: the machine, its kernel and the wire.
//! * `far_end`: the host at the other end of it.
//! * `talk`: the connections, each beside the bytes that it must say.
//!
//! The reference of a connection is a queue of bytes for each direction. What a call takes goes into it; what a call
//! gives must be what comes out of it, at once or later; nothing may come behind the end of a stream, and the end not
//! before all bytes. Only a connection that was reset, or closed with bytes in it, may lose some, and then only the
//! last ones.

mod far_end;
mod hosts;
mod steps;
mod talk;

pub use steps::{CONNECTIONS, Call, MAX_BYTES, SocketOp, Traffic};
