//! The programs of the experiments: what the modelled processes do, and what is measured of it.
//!
//! Each has a `program` that gives the first process's program. Its processes are coroutines of one host thread and
//! leave what they found in a shared [`Outcome`]. Two are no experiments: [`stream`] carries bytes from outside through
//! a pipe or a socket of the machine, and out again; [`strace`] makes the calls of a real program, as they were
//! recorded.

pub mod bw_pipe;
pub mod cost_growth;
pub(crate) mod disk;
pub mod ephemeral_hit;
pub mod file_read;
pub mod invalidate;
pub mod ispc;
pub mod ispc_clients;
mod link;
pub mod message;
pub mod mixed;
pub(crate) mod mode;
pub(crate) mod net;
pub mod null_read;
pub mod null_write;
mod outcome;
pub(crate) mod packet;
pub(crate) mod payload;
pub mod ping_pong;
pub mod pipeline;
pub(crate) mod process;
pub(crate) mod replay;
pub mod sound;
mod stopwatch;
pub mod strace;
pub mod stream;
pub mod uvm_pipe;

pub(crate) use outcome::{Failed, named};
pub use outcome::{Outcome, OutcomeCell};
pub(crate) use payload::{Payload, differs_behind};
