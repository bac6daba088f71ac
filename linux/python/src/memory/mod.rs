//! What the drop-in for `multiprocessing` sends, and what it receives.
//!
//! # The wire
//! A connection is a Unix stream socket. A message is what the interpreter's own connections send, a length and so many
//! bytes, the length as 4 bytes in network order, or -1 and 8 bytes. A big one is a *block* instead: the length is -2,
//! and an [`Envelope`] follows, whose first byte carries one descriptor of the block. All of that is sent by one call,
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
mod connection;
mod pickle;

use arc_swap::ArcSwap;
pub use arrived::{Arrived, Part, Unmarked};
use arrived::{MAX_MAPPED, MAY_BE_MAPPED};
pub use connection::{recv_message, send_message};
use pageferry::{Arena, Limits};
pub use pickle::{Pickle, Pickled};
use pyo3::prelude::*;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

pub(super) static ARENA: LazyLock<ArcSwap<Arena>> = LazyLock::new(|| ArcSwap::from_pointee(Arena::new()));

/// The length that says that a block comes.
pub(super) const BLOCK: i32 = -2;
/// The length that says that what would be in a block comes.
pub(super) const LAID_OUT: i32 = -3;
/// The length that says that a longer one follows.
pub(super) const LONG: i32 = -1;
/// Parts of a block begin at multiples of this: a line of the cache.
pub(super) const ALIGN: usize = 64;
/// Parts, at most: what a peer says is not believed beyond it.
pub(super) const MAX_PARTS: u32 = 1 << 24;
/// Longer bytes that a peer announces are made room for as they come.
pub(super) const TRUSTED: u64 = 16 << 20;

/// What comes with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    kind: Kind,
    /// Bytes of the block that are used.
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As they are.
    Bytes,
    /// A pickle with so many parts, of which the first is its stream.
    Pickle(u32),
}

impl Envelope {
    /// Bytes on the wire, with the length before it.
    const LEN: usize = 16;

    pub(super) fn to_wire(self, word: i32) -> [u8; Envelope::LEN] {
        let parts = if let Kind::Pickle(parts) = self.kind { parts } else { 0 };
        let mut wire = [0; Envelope::LEN];
        wire[..4].copy_from_slice(&word.to_be_bytes());
        wire[4..8].copy_from_slice(&parts.to_be_bytes());
        wire[8..].copy_from_slice(&self.used.to_be_bytes());
        wire
    }

    /// What follows the length.
    pub(super) fn from_wire(wire: &[u8; Envelope::LEN]) -> Option<Envelope> {
        let [_, _, _, _, a, b, c, d, used @ ..] = *wire;
        let kind = match u32::from_be_bytes([a, b, c, d]) {
            0 => Kind::Bytes,
            parts if parts <= MAX_PARTS => Kind::Pickle(parts),
            _ => return None,
        };
        Some(Envelope { kind, used: u64::from_be_bytes(used) })
    }
}

/// Sets what blocks may take, in this process and from now on. What was made before is forgotten when it is home.
#[pyfunction]
#[pyo3(signature = (budget=None, kept=None, mapped=MAX_MAPPED))]
pub fn limit_blocks(budget: Option<u64>, kept: Option<u64>, mapped: usize) {
    MAY_BE_MAPPED.store(mapped, Ordering::Relaxed);
    let mut limits = Limits::default();
    if let Some(budget) = budget {
        limits.bytes = budget;
        limits.kept = budget / 8;
    }
    limits.kept = kept.unwrap_or(limits.kept);
    ARENA.store(Arc::new(Arena::with(limits)));
}

/// Frees all blocks that nobody has.
#[pyfunction]
pub fn trim_blocks(py: Python<'_>) {
    py.detach(|| ARENA.load().trim());
}

/// Frees blocks that nobody has, where more are kept than are to be.
#[pyfunction]
pub fn tidy_blocks(py: Python<'_>) {
    if ARENA.load().has_excess() {
        py.detach(|| ARENA.load().tidy());
    }
}

/// Bytes of all blocks, how many they are, how many of them somebody has, how many were made, how often one was used
/// again, how many were left to their readers.
#[pyfunction]
pub fn held_blocks() -> (u64, usize, usize, u64, u64, u64) {
    let held = ARENA.load().held();
    (held.bytes, held.blocks, held.out, held.made, held.again, held.left)
}
