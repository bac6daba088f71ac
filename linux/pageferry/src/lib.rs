//! Big buffers between processes on Linux, without a copy where that is cheaper.
//!
//! A *loan* lets another process read a buffer where it is. The sender's own view is frozen by the MMU first,
//! so what the receiver sees is a snapshot: neither side's later writes reach the other. When the receiver
//! drops the loan, the memory comes home and is used again.
//!
//! ```
//! use pageferry::{Channel, Config};
//!
//! let (tx, rx) = Channel::pair(Config::new().slots(4).slot_bytes(2 << 20))?;
//! let worker = std::thread::spawn(move || {
//!     let frame = rx.recv()?; // derefs to &[u8]; dropping it gives the memory back
//!     Ok::<u64, pageferry::Error>(frame.iter().map(|&byte| u64::from(byte)).sum())
//! });
//!
//! let mut frame = tx.buffer(1_000_000)?;
//! frame.fill(7);
//! let lent = tx.loan(frame)?; // derefs to &[u8] as well
//! assert_eq!(lent[0], 7);
//! let frame = lent.wait()?; // home again, to be filled anew
//!
//! assert_eq!(worker.join().unwrap()?, 7_000_000);
//! # Ok::<(), pageferry::Error>(())
//! ```
//!
//! # From here
//! * Between processes: [`Command`] and [`Parent`] for a program that you start, [`Listener`] and
//!   [`Channel::connect`] for programs that find each other.
//! * A peer that you do not trust: [`trust`]. Its messages are copies or sealed memory.
//! * Giving memory away, sharing it, passing ranges, letting the library choose: [`Sender`].
//! * Memory without a channel, for sockets of one's own: [`Arena`].
//! * One sender, many readers: [`Fanout`]. Tasks instead of threads: the feature `tokio`.
//! * What is promised of the bytes: [`Level`]. What went wrong, and who is to blame: [`Error`].
#![deny(unsafe_code)]

macro_rules! planted {
    ($defect:ident) => {{
        #[cfg(feature = "verify")]
        let planted = $crate::verify::planted($crate::verify::Defect::$defect);
        #[cfg(not(feature = "verify"))]
        let planted = false;
        planted
    }};
}

/// Makes the moment a long one in which a planted defect shows; nothing without the feature `verify`.
macro_rules! widen {
    ($defect:ident) => {
        #[cfg(feature = "verify")]
        $crate::verify::widen($crate::verify::Defect::$defect);
    };
}

mod arena;
mod channel;
pub mod choose;
mod error;
mod fanout;
pub mod host;
mod ring;
#[cfg(all(test, shuttle, feature = "verify"))]
mod schedules;
mod sync;
mod sys;
#[cfg(feature = "tokio")]
pub mod tasks;
pub mod trust;
#[cfg(feature = "verify")]
pub mod verify;
mod view;
pub mod wire;

pub use arena::{Arena, ArenaStats, Limits};
pub use channel::{
    Buffer, Channel, Child, Command, Config, Confined, Gap, Lent, Listener, Loan, Message, Owned, Parent,
    PassMode, Passed, Passing, Range, Receiver, RecvCounters, SendCounters, Sender, Shared, Sharing, Zeroed,
};
pub use choose::Arrived;
pub use error::{Broken, Error, HostFault, PeerFault, Usage};
pub use fanout::{Fan, FanBuffer, Fanout, Slow};
pub use ring::RingFault;
pub use sys::Failed;
pub use sys::copy::Stores;
pub use sys::peer::Credentials;
pub use view::{Block, Counted, Handle};
pub use wire::{Level, Verb};

/// The example of README.md, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
