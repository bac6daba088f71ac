//! The state of a pipe, and how threads wait for each other at it. What moves bytes is in `pipe` and `pipe_direct`.
//!
//! # What it holds
//! A circular kernel buffer; at most one direct write, whose pages a writer hands over; with
//! [`PipeMapping::WriterRun`](crate::config::PipeMapping::WriterRun), the addresses that the pipe keeps for those; and
//! which ends are gone. The open files of both ends own it together.
//!
//! # The two locks
//! The state is in a [`Monitor`]: under a spin lock (class `Pipe`), and with one sleep lock, `io` (`pipelock`), for the
//! thread that moves bytes.
//!
//! # What can fail
//! Making a pipe, for want of memory; and waits, by a signal.

use crate::base::Core;
use crate::proc::Syscall;
use crate::sched::{self, Monitor, SleepLock};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_ephemeral::KvaRun;
use pageferry_hal::{Machine, PAGE_SIZE, Pfn, StructVa, Threads, Va};
use pageferry_vm::{KernelMemory, Wired};

/// Pipes at a time.
pub const MAX_PIPES: usize = 256;
/// A pipe structure, and what a call uses of it.
pub const PIPE_BYTES: usize = 256;
pub(super) const PIPE_USED_BYTES: usize = 128;

/// Pages that a writer hands over.
pub struct Run {
    pub(super) frames: Vec<Pfn>,
    /// Where the bytes begin in the first frame.
    pub(super) offset: usize,
    /// `None` only where the missing wire is planted.
    pub(super) wired: Option<Wired>,
    /// Where the writer has mapped them.
    pub(super) mapped_at: Option<Va>,
}

/// The direct write of a pipe.
pub enum Direct {
    /// There is none.
    None,
    /// A writer is finding its pages.
    Building,
    /// `left` bytes from `done` on can be read.
    Ready { run: Arc<Run>, done: usize, left: usize },
    /// All is read; the writer has not taken its pages back yet.
    Drained { run: Arc<Run> },
}

impl Direct {
    /// The frames that are in the pipe.
    pub fn frames(&self) -> &[Pfn] {
        match self {
            Direct::None | Direct::Building => &[],
            Direct::Ready { run, .. } | Direct::Drained { run } => &run.frames,
        }
    }
}

/// An end of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where bytes come out.
    Read,
    /// Where bytes go in.
    Write,
}

/// A pipe. See the [module](self).
pub struct Pipe<M: Machine> {
    monitor: Monitor<M, State>,
}

/// What the spin lock protects.
pub struct State {
    /// The kernel buffer; `None` once both ends are gone.
    pub memory: Option<KernelMemory>,
    /// Where the next byte is read from, as an offset into the buffer.
    pub out: usize,
    /// Bytes in the buffer.
    pub count: usize,
    /// At most one; its bytes come behind those in the buffer.
    pub direct: Direct,
    /// Addresses for direct writes, kept from the first one on.
    pub kva: Option<KvaRun>,
    /// Held by the thread that moves bytes.
    pub(super) io: SleepLock,
    /// A reader sleeps for bytes.
    pub want_read: bool,
    /// A writer sleeps for space, or for the end of another write.
    pub want_write: bool,
    /// No process has the end that reads: writes fail ([`Errno::BrokenPipe`]).
    pub reader_gone: bool,
    /// No process has the end that writes: behind what is there the stream ends.
    pub writer_gone: bool,
}

/// The spin lock, held.
pub type PipeGuard<'a, M> = sched::MonitorGuard<'a, M, State>;

impl State {
    fn memory(&self) -> &KernelMemory {
        self.memory.as_ref().expect("a pipe in use has its buffer")
    }
    /// The size of the buffer in bytes.
    pub fn size(&self) -> usize {
        self.memory().len_bytes()
    }
    /// Where the buffer begins.
    pub fn base(&self) -> Va {
        self.memory().va()
    }
}

impl<M: Machine> Pipe<M> {
    /// A pipe with an empty buffer of `buffer_bytes`, whole pages. Waits for the page daemon where frames are short.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    ///
    /// # Errors
    /// [`Errno::NoMemory`], when waiting does not help.
    pub fn new(core: &Core<M>, t: &dyn Threads, at: StructVa) -> Result<Arc<Pipe<M>>, Errno> {
        let memory = core.vm.kernel_alloc_waiting(t, core.config.pipe.buffer_bytes / PAGE_SIZE)?;
        let state = State {
            memory: Some(memory),
            out: 0,
            count: 0,
            direct: Direct::None,
            kva: None,
            io: SleepLock::default(),
            want_read: false,
            want_write: false,
            reader_gone: false,
            writer_gone: false,
        };
        Ok(Arc::new(Pipe { monitor: Monitor::new(&core.machine, at, state) }))
    }

    /// Its structure: what calls touch, and threads sleep on.
    pub fn at(&self) -> StructVa {
        self.monitor.at()
    }

    /// Takes the spin lock.
    pub fn lock(&self) -> PipeGuard<'_, M> {
        self.monitor.lock()
    }

    // ------------------------------------------------------------------------------------------- sleeping and waking

    /// Sleeps on the pipe with the spin lock released, and takes it again.
    ///
    /// # Errors
    /// [`Errno::Interrupted`], with the lock taken again too.
    pub fn wait<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: PipeGuard<'a, M>,
        reason: &'static str,
        interruptible: bool,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        self.monitor.wait(call.thread, held, reason, interruptible)
    }

    /// Wakes all that sleep on the pipe.
    pub fn wake_all(&self, threads: &dyn Threads) {
        self.monitor.wake_all(threads);
    }

    /// Wakes all that sleep on the pipe, if a reader does.
    pub fn wake_reader(&self, call: &Syscall<'_, M>, held: &mut PipeGuard<'_, M>) {
        self.monitor.wake(call.thread, &mut held.want_read);
    }

    /// Wakes all that sleep on the pipe, if a writer does.
    pub fn wake_writer(&self, call: &Syscall<'_, M>, held: &mut PipeGuard<'_, M>) {
        self.monitor.wake(call.thread, &mut held.want_write);
    }

    /// Takes the sleep lock. The spin lock is held before and after.
    ///
    /// # Errors
    /// [`Errno::Interrupted`], only if `interruptible`; the sleep lock is not held.
    pub fn lock_io<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: PipeGuard<'a, M>,
        interruptible: bool,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        self.monitor.acquire(call.thread, held, |state| &mut state.io, "pipelk", interruptible)
    }

    /// Releases the sleep lock.
    pub fn unlock_io(&self, call: &Syscall<'_, M>, held: &mut PipeGuard<'_, M>) {
        self.monitor.release(call.thread, held, |state| &mut state.io);
    }
}
