//! What the drop-in for `multiprocessing` sends, and what it receives.
//!
//! # The wire
//! A connection is a Unix stream socket. A message is what the interpreter's own connections send, a length and so many
//! bytes, the length as 4 bytes in network order, or -1 and 8 bytes. A big one is a *block* instead: the length is -2,
//! and an envelope follows, whose first byte carries one descriptor of the block. All of that is sent by one call,
//! which the kernel keeps in one piece.
//!
//! A block holds bytes, or a pickle and its buffers: first a table of parts, each an offset and a length, the pickle's
//! stream first; then the parts, at multiples of a line of the cache. Where a pickle has buffers and goes by no block,
//! the length is -3, and the envelope and what would be in the block follow.
//!
//! # Nothing is lost
//! Where no block is to be had, or its descriptor cannot be sent, the message goes as bytes. A receiver looks at what
//! waits before it takes it: if it can have no more descriptors, the message stays where it is, and the error says so.
//!
//! # Waiting
//! Calls wait without the interpreter's lock. A signal ends the wait, and its handler runs; the call goes on unless
//! that raises. What was sent or received until then stays so.
//!
//! When the interpreter ends, `multiprocessing` waits for its threads, so they must come back from here until then:
//! other threads than those stay where they are, which is what the bindings see to.
//!
//! # Locks
//! A message has one, which is never held while something is waited for. The arena is the process's; a child makes
//! its own.

mod arrived;
mod blocks;
mod connection;
mod envelope;
mod pickle;

pub use arrived::{ArrivedPickle, Part, Unmarked};
pub use blocks::{held_blocks, limit_blocks, tidy_blocks, trim_blocks};
pub use connection::{recv_message, send_message};
pub use pickle::{Pickle, PickleWriter};
