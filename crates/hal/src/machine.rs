//! The machine: everything that a back end provides and the floors above may use.
//!
//! A `Machine` value is a *handle*: cheap to clone, the same machine behind every clone. On bare metal it is a
//! zero-sized type. Code above never asks which of the two it runs on.
//!
//! # What a back end must get right
//! * **Translation.** [`Machine::load`], [`Machine::store`] and [`Machine::copy`] go through the executing CPU's TLB
//!   and page tables; there is no other way to a data page.
//! * **Order.** Calls of one CPU happen in program order. A store to a page-table entry is seen by every later walk of
//!   any CPU; an entry already in a TLB stays until it is invalidated or displaced.
//! * **Interrupts.** They are taken between calls, also while spinning or holding locks; handlers therefore take no
//!   locks. [`Machine::idle_until`] loses none.
//! * **Accounting.** [`Machine::scope`], [`Machine::execute`], [`Machine::count`], [`Machine::touch`] and
//!   [`Machine::cross`] only account. On bare metal they are empty: the instructions themselves take the time.

use crate::addr::{Pa, Va};
use crate::arena::StructVa;
use crate::audio::{AudioDone, AudioRequest};
use crate::cause::{Cause, Counter};
use crate::cpu::{CpuId, CpuSet};
use crate::disk::{DiskDone, DiskRequest};
use crate::flow::{Flow, FlowStep};
use crate::lock::{LockClass, SpinLock};
use crate::time::{Cycles, Instructions};
use crate::trap::{Access, CopyFault, Mode};
use alloc::boxed::Box;

/// The instruction set, as far as the VM system cares.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arch {
    /// 32-bit x86: two-level page tables, 3 GB user, 1 GB kernel.
    I386,
    /// 64-bit x86: four-level page tables, and room for a direct map.
    Amd64,
}

/// What is on the board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Instruction set.
    pub arch: Arch,
    /// Logical CPUs, numbered from 0. A machine with one runs a uniprocessor kernel: locks without atomics.
    pub cpus: usize,
    /// Frames of physical memory, numbered from 0.
    pub frames: usize,
}

/// A thread of control: a stack and saved registers. What it means is the scheduler's business.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContextId(pub u32);

/// An interrupt, as its handler sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Interrupt {
    /// Another CPU asks for invalidations (`IPI_INVLPG`, `IPI_INVLRNG`).
    Shootdown,
    /// Another CPU has put a thread on the run queue.
    Reschedule,
    /// The disk has done a request; comes to CPU 0.
    Disk,
    /// The sound device has done a fragment; comes to CPU 0.
    Audio,
}

/// The hardware's part of entering or leaving the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Crossing {
    /// User to kernel by a system call.
    SyscallEnter,
    /// Kernel to user after a system call.
    SyscallExit,
    /// User or kernel to the fault handler.
    TrapEnter,
    /// Back from the fault handler.
    TrapExit,
}

/// The size of a page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PteWidth {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

impl PteWidth {
    /// Bytes of one entry.
    pub const fn bytes(self) -> usize {
        match self {
            PteWidth::Four => 4,
            PteWidth::Eight => 8,
        }
    }
}

/// A machine, seen from the CPU that executes the call. See the [module](self) for the contract.
pub trait Machine: Clone + 'static {
    /// The spin lock of this machine.
    type Lock<T: 'static>: SpinLock<T>;
    /// Keeps a [`Cause`] in force until it is dropped; scopes nest, the innermost counts.
    type Scope;
    /// Stands for a change of mappings whose stale translations are still to be invalidated.
    type Window;

    /// True when accounting calls do something; lets callers skip work that only feeds them.
    const ACCOUNTING: bool;

    /// What is on the board.
    fn topology(&self) -> Topology;
    /// The executing CPU. The answer stays true only while the thread is pinned or holds a spin lock.
    fn cpu(&self) -> CpuId;
    /// The executing CPU's clock.
    fn now(&self) -> Cycles;

    /// All CPUs.
    fn cpus(&self) -> CpuSet {
        CpuSet::first(self.topology().cpus)
    }

    // ----------------------------------------------------------------------------------------------- accounting

    /// Attributes what follows to `cause`, until the scope is dropped. The scope belongs to the thread of control, and
    /// goes with it through context switches.
    #[must_use = "the cause ends when the scope is dropped"]
    fn scope(&self, cause: Cause) -> Self::Scope;
    /// Accounts for a path of instructions in the cause in force.
    fn execute(&self, path: Instructions);
    /// Counts `n` events.
    fn count(&self, counter: Counter, n: u64);
    /// Accounts for an access to a kernel structure, through TLB and caches, in the cause in force.
    fn touch(&self, at: StructVa, len_bytes: usize, access: Access);
    /// Says that something is on its way between protection domains. For drawings: costs nothing and changes nothing.
    fn trace_flow(&self, flow: Flow, step: FlowStep) {
        let _ = (flow, step);
    }
    /// Accounts for the hardware's part of entering or leaving the kernel.
    fn cross(&self, crossing: Crossing);

    // ----------------------------------------------------------------------------------------------- locks

    /// A new lock of class `class` around `value`.
    fn new_lock<T: 'static>(&self, class: LockClass, value: T) -> Self::Lock<T>;

    // ----------------------------------------------------------------------------------------------- data

    /// Loads `buf.len()` bytes from `from`.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses; the bytes before it are loaded.
    fn load(&self, mode: Mode, from: Va, buf: &mut [u8]) -> Result<(), CopyFault>;
    /// Stores `bytes` at `to`.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses; the bytes before it are stored.
    fn store(&self, mode: Mode, to: Va, bytes: &[u8]) -> Result<(), CopyFault>;
    /// Copies `len_bytes` upwards in kernel mode (`bcopy`, `copyin`, `copyout`). The ranges do not overlap.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses either side.
    fn copy(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault>;
    /// Clears `len_bytes` in kernel mode.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses.
    fn zero(&self, to: Va, len_bytes: usize) -> Result<(), CopyFault>;

    // ----------------------------------------------------------------------------------------------- page tables

    /// Reads the page-table entry at `at`.
    fn pte_load(&self, at: Pa, width: PteWidth) -> u64;
    /// Writes an entry that was not valid: nothing can have cached it, so nothing need be invalidated.
    ///
    /// # Panics
    /// A modelled machine panics when the old entry was valid.
    #[track_caller]
    fn pte_fill(&self, at: Pa, width: PteWidth, value: u64);
    /// Replaces an entry, atomically with respect to walkers, and returns the old one with its accessed and dirty
    /// bits. Translations made from the old entry may live in TLBs until `window` is closed.
    #[track_caller]
    fn pte_change(&self, at: Pa, width: PteWidth, value: u64, window: &Self::Window) -> u64;
    /// Clears a frame that is to become a page table, by its physical address.
    fn pte_clear_frame(&self, at: Pa);
    /// Writes the cache line at `at` back and drops it from all caches (`clflush`); for measurements.
    fn flush_line(&self, at: Pa);

    /// Declares that mappings are about to change, and that stale translations may be used until the window closes.
    #[track_caller]
    #[must_use = "a window must be closed"]
    fn open_window(&self) -> Self::Window;
    /// Declares that all is invalidated that needed to be: from here on the use of a stale translation is an error.
    fn close_window(&self, window: Self::Window);

    // ----------------------------------------------------------------------------------------------- own TLB

    /// Invalidates the page at `va` in the own TLB, global or not (`invlpg`).
    fn invalidate_page(&self, va: Va);
    /// Invalidates everything in the own TLB, global entries included.
    fn invalidate_all(&self);
    /// Makes `root` the page table of the executing CPU and invalidates everything that is not global (`mov cr3`).
    fn load_root(&self, root: Pa);

    // ----------------------------------------------------------------------------------------------- other CPUs

    /// Sends `interrupt` to each of `to`, itself excluded. Does not wait.
    fn send_ipi(&self, to: CpuSet, interrupt: Interrupt);
    /// Spins, with interrupts enabled, until `done` answers true; in the cause in force. `done` makes no call on the
    /// machine: it reads memory that another CPU will write.
    fn spin_until(&self, done: &mut dyn FnMut() -> bool);
    /// Sets what is called for interrupts, on the CPU and the stack that they interrupt. Handlers take no locks and do
    /// not sleep. Called once, at boot.
    fn set_interrupt_handler(&self, handler: Box<dyn Fn(Interrupt)>);

    // ----------------------------------------------------------------------------------------------- contexts

    /// A new context that will run `entry` when first switched to. When `entry` returns, the context is gone and the
    /// one it returned runs on the same CPU; with `None` the CPU stops for good.
    fn context_new(&self, name: &str, entry: Box<dyn FnOnce() -> Option<ContextId>>) -> ContextId;
    /// The executing context.
    fn context_current(&self) -> ContextId;
    /// Leaves the executing context and continues `to` on this CPU. If `to` is still being left by another CPU, waits
    /// for that. Returns when somebody switches back, perhaps on another CPU.
    ///
    /// # Panics
    /// A modelled machine panics when the caller holds a spin lock, or when `to` is gone.
    fn context_switch(&self, to: ContextId);
    /// Sets a stopped CPU going in context `first`. CPU 0 starts in the boot context.
    fn start_cpu(&self, cpu: CpuId, first: ContextId);
    /// Halts the CPU until an interrupt, again and again, until `done` answers true. An interrupt that comes between
    /// the test and the halt ends the halt. `done` makes no call on the machine.
    fn idle_until(&self, done: &mut dyn FnMut() -> bool);

    // ----------------------------------------------------------------------------------------------- the disk

    /// Blocks of the disk, of a page each; 0 without one.
    fn disk_blocks(&self) -> u64 {
        0
    }
    /// Hands a request to the disk. Does not wait.
    ///
    /// # Panics
    /// When there is no disk, or it has no such blocks.
    fn disk_submit(&self, request: DiskRequest) {
        panic!("there is no disk for {request:?}");
    }
    /// The answer to the oldest request that is done and was not answered yet.
    fn disk_done(&self) -> Option<DiskDone> {
        None
    }

    // ----------------------------------------------------------------------------------------------- sound

    /// The rate of the sound device in bytes a second; 0 without one.
    fn audio_bytes_per_s(&self) -> u64 {
        0
    }
    /// Pages of memory on the sound card that it records into; 0 if it records into any frame.
    fn audio_card_pages(&self) -> u64 {
        0
    }
    /// Hands a fragment to the sound device. Does not wait.
    ///
    /// # Panics
    /// When there is no such device, or the fragment is in no frame.
    fn audio_submit(&self, request: AudioRequest) {
        panic!("there is no sound device for {request:?}");
    }
    /// The answer to the oldest fragment that is done and was not answered yet.
    fn audio_done(&self) -> Option<AudioDone> {
        None
    }
}
