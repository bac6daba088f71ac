//! Wired frames as a value that a caller holds.
//!
//! Each frame in it has one wire more in the table of frames, which [`crate::Vm::unwire`] takes off. The value owns
//! nothing else, and takes no lock.

use alloc::vec::Vec;
use pageferry_hal::Pfn;

/// Frames wired for the kernel's use, in order of their addresses; the data begins `offset` bytes into the first.
#[must_use = "wired frames must be unwired"]
#[derive(Debug)]
pub struct Wired {
    pub(crate) frames: Vec<Pfn>,
    offset: usize,
    len_bytes: usize,
    /// A recorder was told that the frames are on their way to a reader.
    pub(crate) sent: bool,
}

impl Wired {
    /// Frames that the caller has wired.
    pub(crate) fn of(frames: Vec<Pfn>, offset: usize, len_bytes: usize) -> Wired {
        Wired { frames, offset, len_bytes, sent: false }
    }

    /// The frames.
    pub fn frames(&self) -> &[Pfn] {
        &self.frames
    }
    /// Where in the first frame the data begins, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }
    /// Length of the data.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}
