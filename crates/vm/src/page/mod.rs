//! Frames of memory and where they go: the table of frames and its free list, the paging queues, the page daemon, the swap
//! area, and requests to the disk.

mod frame;
mod io;
mod pdaemon;
mod queues;
mod swap;

pub(crate) use frame::{Frame, Frames, Owner};
pub use frame::{FrameInfo, FrameState, KernelUse, Queue};
pub(crate) use io::Io;
pub(crate) use pdaemon::Daemon;
pub use swap::SwapCensus;
pub(crate) use swap::{Holder, Swap, SwapSlot};
