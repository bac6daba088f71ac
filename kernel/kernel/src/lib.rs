//! Processes and threads, system calls, and what moves data between processes: the kernel over the VM system.
//!
//! A [`Kernel`] is booted on a machine with a [`KernelConfig`]; processes are spawned into it, each with a *program*, a
//! closure that sees the kernel through its [`User`]; [`Kernel::run`] then schedules until none is left. The behaviour
//! is FreeBSD 5's where a paper measured FreeBSD 5: which lock is held, which thread sleeps, which one wakes it. What
//! the papers compare, such as copying through a buffer, handing over wired pages, or which side maps those, is
//! configuration.
//!
//! What is where, from the top down:
//!
//! * `boot`: bringing all of it up, and checking it.
//! * `sys`: system calls and user memory, as a program sees them ([`User`]).
//! * `proc`: processes; and beneath all that a call does, the call itself, with copyin and copyout.
//! * `fs`: descriptors, what is behind them, the mount table; the file system in memory, the volume. `ipc`: pipes of
//!   their own kind, export, ptrace. `ispc`: servers that are processes; `served`: a file system, protocols and a
//!   driver that are such. `net`: mbufs, sockets, and the Internet protocols. `dev`: the sound device, memory disks.
//! * `choose`: copy or move, by call. `measure`: what either costs here, at boot or when a program asks for it.
//! * `sched`: threads, and how they wait for each other.
//!
//! # Locks
//! In order: `Network` (the Internet protocols), `Process` (the table of processes, a process's descriptors, the table
//! of exports, the directory of files), `Pipe` (the state of a pipe, socket or file), `Mbuf` (the pool of mbufs), then
//! those of the floors below, and `Scheduler` above all. A thread holds none of them when it sleeps or touches user
//! memory.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod boot;
mod choose;
mod config;
mod counter;
mod defect;
mod dev;
mod error;
mod fs;
mod ipc;
mod ispc;
mod measure;
mod net;
mod proc;
mod sched;
mod served;
mod sys;

pub use config::{
    DiskConfig, DiskPaths, ForwardWakeup, FrameMapping, KernelConfig, KernelPaths, LentMapping, NetConfig,
    NetPaths, PipeConfig, PipeKind, PipeMapping, PtraceBy, Repack, SchedConfig, SocketConfig,
};
pub use counter::{KernelCounter, metrics};
pub use defect::{KernelDefect, NetDefect};
pub use error::BootError;
pub use ipc::{ATOMIC_WRITE_BYTES, ExportId, ExportTo, Imported, MAX_EXPORTS};
pub use ispc::{
    Completed, Inquiry, IspcConfig, IspcDefect, IspcError, IspcPaths, Method, Procedure, RequestId, Wait,
};
pub use net::{Counts as NetCounts, clusters_for_card};
pub use pageferry_abi::{
    Errno, Fd, FileStat, InvalidateKind, OpenFlags, Pid, Polled, Readiness, ReceiveMode, Received, SendMode,
    Shutdown, SocketKind, SocketOption,
};
pub use pageferry_costs::{Arrived, Carrier, MoveCosts, RequestCosts};
pub use pageferry_defects::Planted;
pub use proc::Killed;
pub use sched::{Thread, ThreadId};
pub use served::{FileServiceConfig, FileServiceDefect, NetServiceConfig, NetServiceDefect, NetServicePaths};
pub use sys::{Program, User};

use alloc::sync::Arc;
use pageferry_ephemeral::Ephemeral;
use pageferry_hal::Machine;
use pageferry_vm::Vm;

/// A running kernel. See the [crate](self).
pub struct Kernel<M: Machine> {
    machine: M,
    config: KernelConfig,
    vm: Arc<Vm<M>>,
    ephemeral: Arc<Ephemeral<M, Vm<M>>>,
    sched: Arc<sched::Sched<M>>,
    mbufs: net::Pool<M>,
    net: Option<net::Net<M>>,
    ispc: Option<ispc::Ispc<M>>,
    file_service: Option<Arc<served::FileService<M>>>,
    net_service: Option<served::NetService<M>>,
    select: sys::Select,
    moves: choose::Moves,
    measuring: measure::Measuring<M>,
    processes: M::Lock<proc::Processes<M>>,
    exports: M::Lock<ipc::Exports<M>>,
    files: Arc<fs::MemFs<M>>,
    audio: Arc<dev::Audio<M>>,
    memory_disk: dev::MemoryDisk<M>,
    mount: Arc<fs::Mount<M>>,
    mounts: fs::MountTable<M>,
    /// Who has the volume: the kernel, or a server.
    volumes: Arc<dyn fs::Volumes<M>>,
    lenders: Arc<net::Lenders<M>>,
    softints: Arc<sched::SoftInts<M>>,
    callouts: Arc<sched::Callouts<M>>,
    screen: dev::Screen,
    boot_free_frames: usize,
}

impl<M: Machine> Kernel<M> {
    /// The machine that it runs on.
    pub fn machine(&self) -> &M {
        &self.machine
    }
    /// What it was booted with.
    pub fn config(&self) -> &KernelConfig {
        &self.config
    }
    /// Its VM system.
    pub fn vm(&self) -> &Arc<Vm<M>> {
        &self.vm
    }
    /// Where the free clusters of the mbufs' pool are, the next to be used first. For experiments that put there what a
    /// null socket answers with.
    pub fn free_clusters(&self) -> alloc::vec::Vec<pageferry_hal::Va> {
        self.mbufs.free_clusters()
    }
    /// Blocks of the disk that no file has.
    pub fn free_file_blocks(&self) -> usize {
        self.files.free_blocks()
    }
    /// The process that serves files, under a kernel that has none of its own; nothing before a volume is mounted.
    pub fn file_server(&self) -> Option<Pid> {
        self.file_service.as_ref().and_then(|service| service.server())
    }
    /// The processes that have the protocols and the card, under a kernel whose servers have them; nothing before there
    /// is a socket.
    pub fn net_servers(&self) -> (Option<Pid>, Option<Pid>) {
        self.net_service.as_ref().map_or((None, None), served::NetService::servers)
    }
    /// Who has the protocols, if anybody has.
    fn protocols(&self) -> Option<&dyn net::Protocols<M>> {
        match (&self.net_service, &self.net) {
            (Some(service), _) => Some(service),
            (None, Some(net)) => Some(net),
            (None, None) => None,
        }
    }
    /// What moving data costs here, and what requests of servers do, if that was measured.
    pub fn measured_costs(&self) -> Option<(MoveCosts, RequestCosts)> {
        self.moves.known().copied()
    }
    /// Its ephemeral mappings.
    pub fn ephemeral(&self) -> &Ephemeral<M, Vm<M>> {
        &self.ephemeral
    }
}
