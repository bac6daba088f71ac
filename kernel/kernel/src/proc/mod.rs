//! Processes, a system call in progress, copies between the kernel and a process, and the window through
//! which the kernel sees frames.

mod copyio;
mod exec;
mod process;
mod registry;
mod window;

pub(crate) use copyio::{Stopped, Syscall, moved};
pub use process::Killed;
pub(crate) use process::{Body, Process, Processes, Role};
pub(crate) use window::{Shown, Window};
