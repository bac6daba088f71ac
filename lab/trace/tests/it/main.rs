//! All tests of this crate that stand outside of it, as one program: what they share is compiled and linked once.

mod bytes;
mod common;
mod edges;
mod filtering;
#[cfg(unix)]
mod programs;
mod shipped;
mod strace;
