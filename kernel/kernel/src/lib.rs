//! A kernel over the VM system: system calls, devices, and the assembly of all its parts.
//!
//! A [`Kernel`] is booted on a machine with a [`KernelConfig`]; processes are spawned into it, each with a *program*, a
//! closure that sees the kernel through its [`User`]; [`Kernel::run`] then schedules until none is left. The behaviour
//! is FreeBSD 5's where a paper measured FreeBSD 5. What the papers compare is configuration.
//!
//! What is where, from the top down:
//!
//! * `boot`: bringing all of it up; `check`: the laws that hold in it.
//! * `sys`: system calls and user memory, as a program sees them ([`User`]); the end of a process; what the kernel asks
//!   of parts that are processes ([`Servers`]).
//! * `measure`: what copying and moving costs here, at boot or when a program asks for it.
//! * `dev`: the sound device, its driver and its calls; the console.
//! * `kernel`: the parts, and who owns them: `pageferry_core` (threads, processes, files, pipes, mbufs),
//!   `pageferry_net` (sockets, the Internet protocols), `pageferry_ispc` (memory that is attached to one process at a
//!   time).
//!
//! # Locks
//! In order: `Network` (the Internet protocols), then those of `pageferry_core`, and of the floors below. A thread
//! holds none of them when it sleeps or touches user memory.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod boot;
mod check;
mod config;
mod dev;
mod error;
mod kernel;
mod measure;
mod sys;

pub use boot::Servers;
pub use config::{KernelConfig, lock_classes};
pub use error::BootError;
pub use kernel::Kernel;
pub use pageferry_abi::{
    Errno, ExportId, ExportTo, Fd, FileStat, Imported, InvalidateKind, OpenFlags, Pid, Placed, Polled,
    Readiness, ReceiveMode, Received, SendMode, ShownPages, Shutdown, SocketKind, SocketOption,
};
pub use pageferry_core::config::{
    ByTlb, DiskConfig, DiskPaths, ForwardWakeup, FrameMapping, KernelPaths, KernelStack, LentMapping,
    NullAnswers, PipeConfig, PipeKind, PipeMapping, PtraceBy, SchedConfig, SocketConfig, SyncerDelays,
};
pub use pageferry_core::counter::{KernelCounter, metrics};
pub use pageferry_core::defect::{KernelDefect, NetDefect, SchedDefect};
pub use pageferry_core::ipc::{ATOMIC_WRITE_BYTES, MAX_EXPORTS};
pub use pageferry_core::mbuf::MAX_MBUFS;
pub use pageferry_core::proc::{Killed, Listed};
pub use pageferry_core::sched::{Thread, ThreadId};
pub use pageferry_costs::{Arrived, Carrier, MoveCosts, RequestCosts};
pub use pageferry_defects::Planted;
pub use pageferry_fs::Format as VolumeFormat;
pub use pageferry_ispc::{
    Completed, FileServiceConfig, FileServiceDefect, Inquiry, IspcConfig, IspcDefect, IspcError, IspcPaths,
    Method, NetServiceConfig, NetServiceDefect, NetServicePaths, RequestId, Wait,
};
pub use pageferry_net::{
    Counts as NetCounts, NetConfig, NetPaths, ReceiveMapping, Repack, clusters_for_card, mbufs_for_card,
};
pub use sys::{FileServer, NetServer, Procedure, Program, User};
