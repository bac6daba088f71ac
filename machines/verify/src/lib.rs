//! What runs on the modelled machine and on metal alike: the board, the kernel's configuration, and the programs.
//!
//! * [`selection`]: what is run, as words of a command line; both machines read the same line.
//! * [`kernel`]: the board, and the kernel that is booted on it.
//! * [`programs`]: what its first process does; [`random`]: programs of system calls that nobody wrote; `edges`: what
//!   a program may not use. [`process`]: a process as they see it. [`verdict`]: whether every byte was right.
//! * [`schedule`]: the turns of a run as a file. [`counts`]: what is counted of a run that nobody conducts.
//!
//! The program of this package runs the modelled machine, writes down its turns and events, and compares them with
//! those of a run on metal that was conducted by them (`pageferry_hal::tap`).
//!
//! Nothing here fails but what reads a line or a file; such an error says what was found and what was expected.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod counts;
mod edges;
pub mod kernel;
pub mod process;
pub mod programs;
pub mod random;
pub mod schedule;
pub mod selection;
pub mod verdict;

pub use selection::Selection;
pub use verdict::Verdict;
