//! What a disk is: numbered blocks of a page each, moved to and from frames while the CPUs go on.
//!
//! A request is handed over with [`crate::Machine::disk_submit`]; when it is done the machine raises
//! [`crate::Interrupt::Disk`] on CPU 0, and whoever looks takes the answer with [`crate::Machine::disk_done`]. The device
//! moves the bytes by itself, to and from physical memory, at some moment between the two: until the answer is taken the
//! frames belong to it. Requests are served in the order in which they come.

use crate::addr::Pfn;
use alloc::vec::Vec;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// From the device to memory.
    Read,
    /// From memory to the device.
    Write,
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
