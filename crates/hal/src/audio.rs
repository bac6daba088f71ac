//! What a sound device is: samples that are played from frames, or recorded into them, at a rate of its own.
//!
//! A fragment is handed over with [`crate::Machine::audio_submit`]; when it has been played or is full, the machine raises
//! [`crate::Interrupt::Audio`] on CPU 0, and whoever looks takes the answer with [`crate::Machine::audio_done`]. The device
//! moves the bytes by itself at some moment between the two: until the answer is taken they belong to it. Fragments of one
//! direction are served in the order in which they come; the two directions do not wait for each other. Between two
//! fragments that do not follow each other in time there is silence, and what was there to be recorded is lost.

use crate::addr::Pfn;
use crate::disk::Transfer;

/// A fragment of sound: bytes within one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AudioRequest {
    /// Comes back with the answer; no two requests under way have the same.
    pub tag: u64,
    /// Recorded ([`Transfer::Read`]) or played.
    pub transfer: Transfer,
    /// The frame.
    pub frame: Pfn,
    /// Where in the frame the fragment begins, in bytes.
    pub offset: usize,
    /// Its length; at least one byte, and within the frame.
    pub len_bytes: usize,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AudioDone {
    /// The request's.
    pub tag: u64,
}
