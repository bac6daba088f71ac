//! Processes, a system call in progress, and copies between the kernel and a process.

mod copyio;
mod pid;
mod process;
mod registry;

pub(crate) use copyio::{Stopped, Syscall, moved};
pub use pid::Pid;
pub use process::Killed;
pub(crate) use process::{Body, Process, Processes};
