//! What the bench asks of the kernel itself: memory that two processes share, a ring of two counters, the calls
//! that methods are made of, and the scheduler.
//!
//! # Who may touch what
//! Memory that is shared has one owner at a time: the sender until it publishes, the receiver from then on
//! until it says that it is done. [`Memory::bytes`] and [`Memory::bytes_mut`] are called by the one whose turn
//! it is.
#![allow(unsafe_code, reason = "mapped memory and calls; each block says why it is sound")]

mod calls;
mod memory;
mod turn;

pub use calls::pin;
pub(crate) use calls::{
    cpus, nonblocking, patience, pipe, readv, realtime, splice_out, stream, streamed_fill,
};
pub(crate) use memory::Memory;
pub use turn::{Cell, Turn};
