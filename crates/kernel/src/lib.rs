//! Processes and threads, system calls, and what moves data between processes: the kernel over the VM system.
//!
//! A [`Kernel`] is booted on a machine with a [`KernelConfig`]; processes are spawned into it, each with a *program*, a
//! closure that sees the kernel through its [`User`]; [`Kernel::run`] then schedules until none is left. The behaviour is
//! FreeBSD 5's where a paper measured FreeBSD 5: which lock is held, who sleeps, who wakes whom. What the papers compare,
//! such as copying through a buffer, handing over wired pages, or who maps those, is configuration.
//!
//! * [`thread`]: a thread as it sees itself. `queue`: where each is. `sched`: sleep, wakeup, switch, idle CPUs.
//! * `process`, `file`: processes and their descriptors. `user`: system calls and user memory. `copy`: copyin, copyout.
//! * `monitor`: how threads wait and take turns. `pipe`, `pipe_direct`: pipes of their own kind.
//! * `mbuf`, `stream`, `sosend`, `soreceive`, `sotee`: sockets. `user_socket`: their system calls.
//! * `auto`: copy or move, by call. `move_costs`, `handover`: what either costs here.
//! * `vnode`: files on the disk, through the page cache. `file_transfer`: read by page transfer. `user_file`, `user_memory`:
//!   their and their mappings' system calls.
//! * `lending`: what a process has lent, and that it has come back.
//! * `audio`, `audio_io`: the sound device, which plays what is lent to it and records into what is given away.
//! * `invalidate`: a system call that measures invalidations.
//! * `export`: memory offered to other processes. `ptrace`: memory of a child. `user_pass`: their system calls.
//! * `boot`: bringing all of it up, and checking it.
//!
//! # Locks
//! In order: `Process` (the table of processes, a process's descriptors, the table of exports, the directory of files),
//! `Pipe` (the state of a pipe, socket or file), `Mbuf` (the pool of mbufs), then those of the floors below, and `Scheduler`
//! above all. A thread holds none of them when it sleeps or touches user memory.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod audio;
mod audio_io;
mod auto;
mod boot;
mod config;
mod copy;
mod error;
mod export;
mod file;
mod file_transfer;
mod handover;
mod invalidate;
mod lending;
mod mbuf;
mod monitor;
mod move_costs;
mod pid;
mod pipe;
mod pipe_direct;
mod process;
mod ptrace;
mod queue;
mod sched;
mod soreceive;
mod sosend;
mod sotee;
mod stream;
pub mod thread;
mod user;
mod user_file;
mod user_memory;
mod user_pass;
mod user_socket;
mod vnode;

pub use auto::Carrier;
pub use config::{
    Fault, ForwardWakeup, KernelConfig, KernelPaths, PipeConfig, PipeKind, PipeMapping, SchedConfig,
    SocketConfig,
};
pub use error::{BootError, Errno};
pub use export::{ExportId, ExportTo, Imported, MAX_EXPORTS};
pub use file::Fd;
pub use invalidate::InvalidateKind;
pub use move_costs::{Linear, MoveCosts};
pub use pid::Pid;
pub use pipe::ATOMIC_WRITE_BYTES;
pub use process::Killed;
pub use soreceive::{ReceiveMode, Received};
pub use sosend::SendMode;
pub use thread::Thread;
pub use user::{Program, User};
pub use user_file::OpenFlags;

use alloc::sync::Arc;
use pageferry_ephemeral::Ephemeral;
use pageferry_hal::Machine;
use pageferry_vm::Vm;

/// A running kernel. See the [crate](self).
pub struct Kernel<M: Machine> {
    machine: M,
    config: KernelConfig,
    vm: Arc<Vm<M>>,
    ephemeral: Ephemeral<M, Vm<M>>,
    sched: Arc<sched::Sched<M>>,
    mbufs: mbuf::Pool<M>,
    moves: move_costs::Moves<M>,
    processes: M::Lock<process::Processes<M>>,
    exports: M::Lock<export::Exports<M>>,
    files: vnode::FileSystem<M>,
    audio: Arc<audio::Audio<M>>,
    lenders: Arc<lending::Lenders<M>>,
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
    /// Its ephemeral mappings.
    pub fn ephemeral(&self) -> &Ephemeral<M, Vm<M>> {
        &self.ephemeral
    }
}
