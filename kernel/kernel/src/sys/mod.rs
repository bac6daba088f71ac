//! System calls: what a program sees of the kernel, by what the calls are about.

mod disk;
mod file;
mod inet;
mod invalidate;
mod ispc;
mod memory;
mod names;
mod pass;
mod poll;
mod sleep;
mod socket;
mod user;

pub(crate) use poll::Select;
pub(crate) use user::running;
pub use user::{Program, User};
