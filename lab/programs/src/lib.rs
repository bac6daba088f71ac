//! Small programs of system calls that measure a kernel, apart from what judges them.
//!
//! A program makes the calls of [`Os`] and no others, so it runs wherever a kernel has them. What it measures, and
//! whether every byte is right, is the matter of a judge, which is told at each step; a judge has a trait in the file
//! of its program. A judge is told a process by its number, and an address is one of the process that tells of it. A
//! program fails by a system call alone: [`CallError`] says which and why.
//!
//! # Why `Os` is here
//! `pageferry-abi` has the words of system calls: plain values, which hold nothing and cannot fail, and which a kernel
//! and its programs have to agree on. [`Os`] is no agreement but a need: the few calls of these programs, with a child
//! that is a closure, which no kernel has, and with words of `pageferry-costs`, which is above the words. Another set
//! of programs needs other calls, and changes nothing below.
//!
//! # What is where
//! `os`: the calls. `choice`: what is left to the kernel. `link`: a connection of two processes, and loops over
//! buffers. `checked`: all programs by their names, with a judge of every byte. The other files have a program each.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod checked;
mod choice;
pub mod invalidate;
mod link;
pub mod mixed;
pub mod null_read;
pub mod null_write;
mod os;
pub mod ping_pong;
pub mod pipe;
pub mod pipeline;
pub mod uvm_pipe;

pub use choice::{By, Pin, measure_first};
pub use link::Link;
pub use os::{CallError, Child, Os, named};
