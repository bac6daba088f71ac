//! Processes, a system call in progress, copies between the kernel and a process, and the window through
//! which the kernel sees frames.

mod copyio;
mod exec;
mod give;
mod process;
mod registry;
mod uio;
mod window;

pub use copyio::Syscall;
pub use process::{Body, Process, Processes, Role, Table};
pub use process::{Killed, Listed};
pub use registry::Registry;
pub use uio::{PagesCame, Uio, UioMode, UioRw, WaitFlag, outcome};
pub use window::{Visibility, Window};
