//! What is beyond the network card: a wire, and something at its far end.
//!
//! Frames are bytes, from the first of the address they go to, to the last before the checksum that every link adds and
//! takes away again. Time is the machine's, in nanoseconds since it was switched on: everything here is as
//! deterministic as the machine, as long as the far end is.
//!
//! * [`far_end`]: what can be at the far end, and simple things that are: [`Reflector`], [`Sink`].
//! * `line`: a host that sends and takes whatever the wire can carry, and costs nothing, behind the feature of that
//!   name, which is on unless default features are off.
//! * [`wire`]: what happens to frames on their way.
//! * `smol`: a host with a TCP/IP stack, behind the feature `smoltcp`.
//! * `pcap`: what goes over the wire, as a file that other tools read.

pub mod far_end;
#[cfg(feature = "line")]
pub mod line;
pub(crate) mod pcap;
#[cfg(feature = "smoltcp")]
pub mod smol;
pub mod wire;

pub use far_end::{FarEnd, Reflector, Sink, Sunk};
#[cfg(feature = "line")]
pub use line::{LineConfig, LineHost};
pub use wire::Wire;
