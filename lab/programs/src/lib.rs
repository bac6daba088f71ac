//! Small programs of system calls that measure a kernel, apart from what judges them.
//!
//! A program makes the calls of [`Os`] and no others, so it runs wherever a kernel has them. What it measures, and
//! whether every byte is right, is the matter of a judge, which is told at each step; a judge has a trait in the file
//! of its program. A program fails by a system call alone: [`CallError`] says which and why.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod null_read;
pub mod null_write;
mod os;
pub mod pipe;

pub use os::{CallError, Child, Os, named};
