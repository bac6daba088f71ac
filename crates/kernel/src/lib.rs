//! Processes, threads and pipes over the virtual-memory system. Stub: signatures only.
#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, unused_variables, dead_code, clippy::todo)]
extern crate alloc;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::marker::PhantomData;
use pageferry_ephemeral::EphemeralConfig;
use pageferry_hal::{ContextId, Cycles, Instructions, Machine, Prot, Va};
use pageferry_pmap::PmapConfig;
use pageferry_vm::{Inherit, Vm, VmConfig};

/// Path lengths of this floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelPaths {
    /// Dispatch of a system call, behind the hardware's entry.
    pub syscall: Instructions,
    /// Choosing the next thread and switching to it.
    pub switch: Instructions,
    pub sleep: Instructions,
    pub wakeup: Instructions,
    /// One call of pipe_read or pipe_write, without what follows.
    pub pipe_call: Instructions,
    /// Setting up one copy to or from user memory (`uiomove`).
    pub uiomove: Instructions,
    /// Looking up one page of a direct write (`vm_fault_quick`, `pmap_extract_and_hold`), without its memory accesses.
    pub pipe_page: Instructions,
    /// fork and exit, apart from their VM work.
    pub process: Instructions,
}

/// Who maps the pages of a direct pipe write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeMapping {
    /// The writer, as one run into addresses that the pipe keeps (`pmap_qenter`; the original kernel).
    WriterRun,
    /// The reader, page by page, by an ephemeral mapping.
    ReaderPage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeConfig {
    /// False: always copy through the kernel buffer.
    pub direct: bool,
    /// Writes of at least this many bytes go direct (PIPE_MINDIRECT).
    pub min_direct_bytes: usize,
    /// The kernel buffer (PIPE_SIZE), and the size that it grows to for large writes (BIG_PIPE_SIZE).
    pub buffer_bytes: usize,
    pub big_buffer_bytes: usize,
    pub mapping: PipeMapping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    pub pmap: PmapConfig,
    pub vm: VmConfig,
    pub ephemeral: EphemeralConfig,
    pub pipe: PipeConfig,
    pub paths: KernelPaths,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootError {
    #[error("{0}")]
    Pmap(#[from] pageferry_pmap::PmapError),
    #[error("{0}")]
    Vm(#[from] pageferry_vm::VmError),
    #[error("{0}")]
    Ephemeral(#[from] pageferry_ephemeral::ConfigError),
}

/// What a system call returns instead of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Errno {
    #[error("bad file descriptor (EBADF)")]
    BadFd,
    #[error("invalid argument (EINVAL)")]
    Invalid,
    #[error("bad address (EFAULT)")]
    Fault,
    #[error("broken pipe (EPIPE)")]
    BrokenPipe,
    #[error("interrupted (EINTR)")]
    Interrupted,
    #[error("would block (EAGAIN)")]
    WouldBlock,
    #[error("out of memory (ENOMEM)")]
    NoMemory,
    #[error("no such process (ESRCH)")]
    NoProcess,
    #[error("no child to wait for (ECHILD)")]
    NoChild,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pid(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd(pub u32);

/// A running kernel.
pub struct Kernel<M: Machine> {
    machine: M,
}

/// A user program: what runs in a process's only thread.
pub type Program<M> = Box<dyn FnOnce(&User<M>)>;

/// What the custom system call of the sf_buf paper, section 3, measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidateKind {
    /// Local, the page-table entry in the data cache.
    LocalCached,
    /// Local, the entry flushed from the caches before each.
    LocalUncached,
    /// Remote, waiting for all other CPUs.
    Remote,
}

impl<M: Machine> Kernel<M> {
    /// Brings the kernel up on CPU 0, in the boot context.
    pub fn boot(machine: M, config: KernelConfig) -> Result<Arc<Kernel<M>>, BootError> {
        todo!()
    }
    /// Makes a process that will run `program`.
    pub fn spawn(self: &Arc<Self>, name: &str, program: Program<M>) -> Result<Pid, Errno> {
        todo!()
    }
    /// Starts the other CPUs and schedules until no process is left; then every CPU stops. The result is what the boot
    /// context's entry returns.
    pub fn run(self: &Arc<Self>) -> Option<ContextId> {
        todo!()
    }
    pub fn vm(&self) -> &Arc<Vm<M>> {
        todo!()
    }
    pub fn machine(&self) -> &M {
        &self.machine
    }
    /// One line for each thread that sleeps: for reports of deadlocks.
    pub fn sleepers(&self) -> String {
        todo!()
    }
    /// At quiescence: no process, frames as after boot, nothing wired, no mapping held.
    pub fn check_quiescent(&self) -> Result<(), String> {
        todo!()
    }
}

/// The system calls and the memory of one process, as its program sees them.
pub struct User<M: Machine> {
    _m: PhantomData<M>,
}

impl<M: Machine> User<M> {
    pub fn machine(&self) -> &M {
        todo!()
    }
    pub fn pid(&self) -> Pid {
        todo!()
    }
    /// Stores bytes in user memory, faulting as needed; a bad address kills the process (SIGSEGV).
    pub fn store(&self, at: Va, bytes: &[u8]) {
        todo!()
    }
    pub fn load(&self, from: Va, buf: &mut [u8]) {
        todo!()
    }
    /// User-mode computation.
    pub fn compute(&self, path: Instructions) {
        todo!()
    }
    pub fn map(&self, len_bytes: usize, prot: Prot, inherit: Inherit) -> Result<Va, Errno> {
        todo!()
    }
    pub fn unmap(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        todo!()
    }
    /// The child runs `program` in a copy of this address space, with the same descriptors.
    pub fn fork(&self, name: &str, program: Program<M>) -> Result<Pid, Errno> {
        todo!()
    }
    /// Waits for a child to exit.
    pub fn wait(&self) -> Result<Pid, Errno> {
        todo!()
    }
    pub fn pipe(&self) -> Result<(Fd, Fd), Errno> {
        todo!()
    }
    pub fn read(&self, fd: Fd, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        todo!()
    }
    pub fn write(&self, fd: Fd, from: Va, len_bytes: usize) -> Result<usize, Errno> {
        todo!()
    }
    pub fn set_nonblocking(&self, fd: Fd, on: bool) -> Result<(), Errno> {
        todo!()
    }
    pub fn close(&self, fd: Fd) -> Result<(), Errno> {
        todo!()
    }
    /// Sends a signal that interrupts interruptible sleeps.
    pub fn signal(&self, pid: Pid) -> Result<(), Errno> {
        todo!()
    }
    /// Repeats an invalidation; the cycles of all repetitions.
    pub fn invalidate(&self, kind: InvalidateKind, times: u32) -> Result<Cycles, Errno> {
        todo!()
    }
}
