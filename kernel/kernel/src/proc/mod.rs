//! Processes, a system call in progress, copies between the kernel and a process, and the window through
//! which the kernel sees frames.

mod copyio;
mod exec;
mod process;
mod registry;
mod uio;
mod window;

pub(crate) use copyio::Syscall;
pub use process::Killed;
pub(crate) use process::{Body, Process, Processes, Role};
pub(crate) use uio::{PagesCame, Uio, UioMode, UioRw, WaitFlag, outcome};
pub(crate) use window::{Shown, Window};
