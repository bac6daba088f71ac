//! Random programs of system calls: processes with files of both file systems, pipes and pairs of sockets, memory of
//! their own and shared, and mapped files, each used as the buffer of the others; under a whole kernel.
//!
//! * `steps`: what is done, as plain data.
//! * `reference`: the plain copying model: what files, streams and memory hold.
//! * `process`: a process, which makes its steps and compares every answer.
//! * `world`: the machine, its kernel, and the processes, which take turns.
//!
//! Processes take turns by the steps' order, so the model is exact: of a file or of memory it says every byte, of a
//! stream which bytes come next and whether any are to come. How much of a stream a call takes is the kernel's choice.

mod process;
mod reference;
mod steps;
mod world;

pub use steps::{CallOp, CallStep, Calls, MAX_CALL_BYTES, MAX_REGION_PAGES};
