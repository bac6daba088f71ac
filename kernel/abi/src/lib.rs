//! The words between a kernel and its programs: what a program says in a system call, and what it gets back.
//!
//! Plain values: they hold no resource, take no lock and cannot fail. The kernel, its servers and the programs use the
//! same ones, on a modelled machine as on metal. [`call`] numbers the calls, for programs in a privilege of their own.
#![no_std]
#![forbid(unsafe_code)]

pub mod call;
mod data;
mod descriptor;
mod errno;
mod pass;
mod process;
mod socket;

pub use data::{Placed, ReceiveMode, Received, SendMode, ShownPages};
pub use descriptor::{Fd, FileStat, OpenFlags, Polled, Readiness};
pub use errno::Errno;
pub use pass::{ExportId, ExportTo, Imported, PassMode};
pub use process::{InvalidateKind, Pid};
pub use socket::{Shutdown, SocketKind, SocketOption};
