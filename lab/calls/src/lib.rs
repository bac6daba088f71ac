//! Random programs of system calls: processes with files of both file systems, pipes, pairs of sockets, connections of
//! TCP, memory of their own and shared, and mapped files, each used as the buffer of the others; under a whole kernel.
//!
//! * [`Calls`]: what is done, as plain data; [`Calls::program`]: a process that does it.
//! * `reference`: the plain copying model: what files, streams and memory hold.
//! * `process`: a process, which makes its steps and compares every answer; `memory`: its memory, and what may be done
//!   to that; `others`: what it does to other processes.
//! * `world`: the processes, which take turns.
//!
//! Processes take turns by the steps' order, so the model is exact: of a file or of memory it says every byte, of a
//! stream which bytes come next and whether any are to come. How much of a stream a call takes is the kernel's choice.
//!
//! A process that is answered wrongly panics: what went wrong is the kernel's, and its runner says so. What all
//! processes know is shared without atomics; so one CPU at a time goes on, as on the modelled machine, or on metal
//! where that conducts.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod image;
mod judge;
mod memory;
mod others;
mod process;
mod reference;
mod sound;
mod steps;
mod world;

pub use judge::Judge;
pub use steps::{
    Bytes, CallOp, CallStep, Calls, MAX_CALL_BYTES, MAX_REGION_PAGES, Part, Passage, Protection,
};
