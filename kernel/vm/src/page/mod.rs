//! Frames of memory and where they go: the table of frames and its free list, the paging queues, the page daemon, the
//! swap area, and requests to the disk.

mod colour;
mod demand;
mod frame;
mod free;
mod hash;
mod heads;
mod io;
mod lent;
mod pdaemon;
mod queues;
mod rows;
mod shown;
mod swap;
mod swap_slot;
mod tabled;
mod wired;

pub(crate) use demand::Demand;
pub(crate) use frame::{Frame, Frames, Owner, WantedFrame};
pub use frame::{FrameInfo, FrameState, KernelUse, Queue};
pub(crate) use io::Io;
pub(crate) use lent::Lender;
pub use swap::SwapCensus;
pub(crate) use swap::{Holder, Swap};
pub(crate) use swap_slot::SwapSlot;
pub use wired::Wired;
