//! What calls of a kernel stand on, above the VM system: threads, processes, open files, pipes and mbufs.
//!
//! The behaviour is FreeBSD 5's where a paper measured FreeBSD 5: which lock is held, which thread sleeps, which one
//! wakes it. What the papers compare, such as copying through a buffer, handing over wired pages, or which side maps
//! those, is configuration.
//!
//! What is where, from the top down:
//!
//! * [`fs`]: descriptors, what is behind them, the mount table; the file system in memory, the volume, which is on
//!   [`disk`]. [`ipc`]: pipes of their own kind, export, ptrace.
//! * [`proc`]: processes; and beneath all that a call does, the call itself, with copyin and copyout. [`choose`]: copy
//!   or move, by call.
//! * [`base`]: what every call needs, whatever it is about. It knows of no file, no process and no protocol: what is
//!   open holds what it needs of those itself.
//! * [`mbuf`]: pieces of data on their way. They are here and not with the sockets, because files that are read by page
//!   transfer gather bytes in them, and the sound device has them, too.
//! * [`sched`]: threads, and how they wait for each other.
//!
//! # Locks
//! In order: `Process` (the table of processes, a process's descriptors, the table of exports, the directory of
//! files), `Pipe` (the state of a pipe, socket or file), `Mbuf` (the pool of mbufs), then those of the floors below,
//! and `Scheduler` above all. A thread holds none of them when it sleeps or touches user memory.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod base;
pub mod choose;
pub mod config;
pub mod counter;
pub mod defect;
pub mod disk;
pub mod fs;
pub mod ipc;
pub mod mbuf;
pub mod proc;
pub mod sched;
