//! What a disk is: numbered blocks of a page each, moved to and from frames while the CPUs go on.
//!
//! Requests are served in the order in which they come; each is answered once. See the [module above](super) for whose
//! the frames are meanwhile.

use crate::addr::Pfn;
use crate::dev::device::{DeviceId, Transfer};
use alloc::vec::Vec;

/// A disk.
pub trait BlockDevice {
    /// The number by which it interrupts.
    fn id(&self) -> DeviceId;
    /// How many blocks it has.
    fn blocks(&self) -> u64;
    /// Hands a request over. Does not wait.
    ///
    /// # Panics
    /// When it has no such blocks, or the request moves nothing.
    fn submit(&self, request: DiskRequest);
    /// The answer to the oldest request that is done and was not answered yet. A call on the machine: not for the tests
    /// of [`Machine::spin_until`](crate::Machine::spin_until) and [`Machine::idle_until`](crate::Machine::idle_until).
    fn take_done(&self) -> Option<DiskDone>;
}

/// Consecutive blocks to be moved from or to as many frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskRequest {
    /// Comes back with the answer; no two requests under way have the same.
    pub tag: u64,
    /// Which way.
    pub transfer: Transfer,
    /// The first block.
    pub block: u64,
    /// One frame for each block; at least one.
    pub frames: Vec<Pfn>,
}

/// A block could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("block {block} of the disk cannot be read or written")]
pub struct DiskError {
    /// The first such block of the request.
    pub block: u64,
}

/// The answer to a request. After an error nothing is known of the frames, or of the blocks that were to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskDone {
    /// The request's.
    pub tag: u64,
    /// How it went.
    pub result: Result<(), DiskError>,
}
