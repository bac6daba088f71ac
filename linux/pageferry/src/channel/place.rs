//! Where a message lies that a receiver has taken.
//!
//! [`Arrival`] is a message that was taken from the ring and is not given back: whoever has it owes the sender its
//! slots, and [`super::Loan`] gives them back when it is dropped.

use crate::view::{Anonymous, Run, Snapshot};
use crate::wire::{Descriptor, Extent};
use std::sync::Arc;

/// A message as it was taken from the ring.
#[derive(Debug)]
#[must_use = "its memory is given back by a loan alone"]
pub(crate) struct Arrival {
    pub(super) descriptor: Descriptor,
    pub(super) place: Place,
    /// Forks that this process had made when it came.
    pub(super) born: u64,
}

/// Where the bytes are. A run is taken out only by `drop`.
#[derive(Debug)]
pub(crate) enum Place {
    /// On the heap: they came in the ring.
    Inline(Box<[u8]>),
    /// In memory of this process: they were copied out.
    Copied(Anonymous),
    /// In the sender's pool, by a private view. `own`: it was made writable.
    Lent { run: Option<Run>, own: bool },
    /// In the sender's pool, and nobody else's for now.
    Donated { run: Option<Run> },
    /// In the sender's pool, and the sender's too.
    Shared { run: Option<Run> },
    /// In memory that is sealed.
    Sealed(Arc<Snapshot>),
    /// In several runs of the sender's pool.
    Pieces(Vec<Piece>),
}

/// One of a message's runs, as the receiver has it.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(super) run: Option<Run>,
    /// It was made writable.
    pub(super) own: bool,
    /// Where in the message it starts.
    pub(super) at: u64,
    /// Where in the run its bytes start, and how many they are.
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl Piece {
    pub(super) fn new(extent: &Extent, run: Run) -> Piece {
        Piece {
            run: Some(run),
            own: false,
            at: extent.at,
            offset: extent.offset as usize,
            len: extent.len as usize,
        }
    }
}
