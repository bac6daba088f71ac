//! System calls: what a program sees of the kernel, by what the calls are about; and what the kernel asks of parts that
//! are processes.

mod disk;
mod exit;
mod file;
mod inet;
mod invalidate;
mod ispc;
mod memory;
mod names;
mod pass;
mod poll;
mod servers;
mod sleep;
mod socket;
mod user;

pub use ispc::Procedure;
pub use servers::{FileServer, NetServer};
pub use user::{Program, User};
