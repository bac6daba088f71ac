//! System calls: what a program sees of the kernel, by what the calls are about.

mod file;
mod invalidate;
mod memory;
mod pass;
mod sleep;
mod socket;
mod user;

pub use file::OpenFlags;
pub use invalidate::InvalidateKind;
pub(crate) use user::running;
pub use user::{Program, User};
