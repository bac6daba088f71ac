//! Recorded programs, run again as processes of a modelled machine: their references, and their system calls.
//!
//! * [`recorded`]: a trace, read once, and what its process has to have mapped.
//! * [`calls`]: what of its system calls is made again.
//! * [`shadow`]: what its memory must hold.
//! * [`process`]: one recorded program as a process. [`files`]: the files that it has, where they are its own.
//! * [`image`]: its file, where it execs that.
//! * [`compile`]: the compile of a kernel (PPC paper): `make`, a shell, and what the compiler's driver starts.
//! * [`copies`]: one program, by itself or several times at once.
//! * [`stage`]: room, files, a process for each, and the results.
//! * [`screen`]: a program that paints into the frame buffer, beside compilers.
//!
//! What the programs compute is not recorded: a store stores a number of its own, and each load must find what was
//! stored last, what the file has, or nothing. What they refer to, in which order, how many instructions they execute
//! between, and what they ask of the kernel, is theirs.

mod by_use;
mod calls;
pub(crate) mod compile;
mod compile_plots;
mod compile_worth;
pub(crate) mod copies;
mod files;
mod image;
pub(crate) mod process;
pub(crate) mod recorded;
pub(crate) mod screen;
mod shadow;
mod stage;

use crate::error::LabError;

/// The built-in machines that the trace of this name or file can be replayed on: those on which all addresses that the
/// program refers to are the user's.
///
/// # Errors
/// When the trace cannot be read, or is not one that can be replayed.
pub fn machines_that_fit(trace: &str) -> Result<Vec<&'static str>, LabError> {
    Ok(recorded::recorded(trace)?.machines_that_fit())
}
