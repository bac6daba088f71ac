//! What a sound device is: samples that are played from frames, or recorded into them, at a rate of its own.
//!
//! Fragments of one direction are served in the order in which they come; the two directions do not wait for each
//! other. Between two fragments that do not follow each other in time there is silence, and what was there to be
//! recorded is lost.

use crate::addr::Pfn;
use crate::dev::device::{DeviceId, Transfer};

/// A sound device.
pub trait Audio {
    /// The number by which it interrupts.
    fn id(&self) -> DeviceId;
    /// Its rate in bytes a second, each way.
    fn bytes_per_s(&self) -> u64;
    /// Pages of memory on the card that it records into; 0 if it records into any frame.
    fn card_pages(&self) -> u64;
    /// Hands a fragment over. Does not wait.
    ///
    /// # Panics
    /// When the fragment is in no frame.
    fn submit(&self, request: AudioRequest);
    /// The answer to the oldest fragment that is done and was not answered yet. A call on the machine: not for the
    /// tests of [`Machine::spin_until`](crate::Machine::spin_until) and
    /// [`Machine::idle_until`](crate::Machine::idle_until).
    fn take_done(&self) -> Option<AudioDone>;
}

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
