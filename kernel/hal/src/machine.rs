//! The machine: everything that a back end provides and the floors above may use.
//!
//! A `Machine` value is a *handle*: cheap to clone, the same machine behind every clone. On bare metal it is a
//! zero-sized type. Code above never asks which of the two it runs on.
//!
//! # What a back end must get right
//! * **Translation.** Loads, stores, copies and fetches go through the executing CPU's blocks and TLB; there is no
//!   other way to a data page. What fills the TLB is said by [`Board::mmu`].
//! * **Order.** Calls of one CPU happen in program order. A store to a page-table entry is seen by every later walk of
//!   any CPU; an entry already in a TLB stays until it is invalidated or displaced.
//! * **Interrupts.** They are taken between calls, also while spinning or holding locks, but not while the CPU holds a
//!   lock of [`LockClass::masks_interrupts`]; handlers therefore take no other locks. [`Machine::idle_until`] loses
//!   none.
//!
//! # Its other parts
//! What some machines have beside a CPU that walks page tables is in [`Tlb`]. [`Account`] only accounts, [`Oracle`]
//! only judges, [`Recorder`] only records: on bare metal they are empty, for the instructions themselves take the time.

use crate::account::Account;
use crate::addr::{Pa, Va};
use crate::board::Board;
use crate::cpu::{CpuId, CpuSet};
use crate::dev::device::DeviceId;
use crate::lock::{LockClass, SpinLock};
use crate::mmu::{Context, Flush, Width};
use crate::oracle::Oracle;
use crate::recorder::Recorder;
use crate::time::{Cycles, Instructions};
use crate::tlb::Tlb;
use crate::trap::{Access, CopyFault, Mode, Reference};
use alloc::boxed::Box;

/// A thread of control: a stack and saved registers. What it means is the scheduler's business.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContextId(pub u32);

/// An interrupt, as its handler sees it.
///
/// One CPU sends another [`Interrupt::Shootdown`] or [`Interrupt::Reschedule`]. What they mean is the business of the
/// kernel and its handler; on a modelled machine they differ in the [`Cause`](crate::Cause) that their time goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Interrupt {
    /// Another CPU asks for invalidations (`IPI_INVLPG`, `IPI_INVLRNG`).
    Shootdown,
    /// Another CPU has put a thread on the run queue.
    Reschedule,
    /// The CPU's timer has run out: see [`Machine::set_timer`].
    Timer,
    /// A device has an answer; comes to CPU 0.
    Device(DeviceId),
}

/// A machine, seen from the CPU that executes the call. See the [module](self) for the contract.
pub trait Machine: Tlb + Account + Oracle + Recorder + Clone + 'static {
    /// The spin lock of this machine.
    type Lock<T: 'static>: SpinLock<T>;

    /// What is on the board.
    fn board(&self) -> Board;
    /// The executing CPU. The answer stays true only while the thread is pinned or holds a spin lock.
    fn cpu(&self) -> CpuId;
    /// The executing CPU's clock.
    fn now(&self) -> Cycles;

    /// All CPUs.
    fn cpus(&self) -> CpuSet {
        CpuSet::first(self.board().cpus)
    }

    // ----------------------------------------------------------------------------------------------- locks

    /// A new lock of class `class` around `value`.
    fn new_lock<T: 'static>(&self, class: LockClass, value: T) -> Self::Lock<T>;

    // ----------------------------------------------------------------------------------------------- data

    /// Loads `buf.len()` bytes from `from`.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses; the bytes before it are loaded.
    #[track_caller]
    fn load(&self, mode: Mode, from: Va, buf: &mut [u8]) -> Result<(), CopyFault>;
    /// Stores `bytes` at `to`.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses; the bytes before it are stored.
    #[track_caller]
    fn store(&self, mode: Mode, to: Va, bytes: &[u8]) -> Result<(), CopyFault>;
    /// Executes a straight run of so many instructions at `at`: accounts for their time in the cause in force, and
    /// fetches them through TLB and cache where the board [fetches](Board::fetches). Elsewhere nothing is looked at.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses; what lies before that was executed, in whole instructions.
    #[track_caller]
    fn fetch(&self, mode: Mode, at: Va, path: Instructions) -> Result<(), CopyFault>;
    /// Makes a program's references in user mode, in order, with the instructions between them. A reference to the
    /// first-level cache takes no time besides its instruction's.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses one; as many as it says were made before.
    #[track_caller]
    fn refer(&self, references: &mut [Reference]) -> Result<(), CopyFault> {
        for (done_bytes, r) in references.iter_mut().enumerate() {
            self.execute(Instructions(core::mem::take(&mut r.instructions)));
            let mut word = r.word.to_le_bytes();
            let made = match r.access {
                Access::Fetch => self.fetch(Mode::User, r.at, Instructions(0)),
                Access::Read => self.load(Mode::User, r.at, &mut word),
                Access::Write => self.store(Mode::User, r.at, &word),
            };
            made.map_err(|fault| CopyFault { done_bytes, ..fault })?;
            r.word = u32::from_le_bytes(word);
        }
        Ok(())
    }
    /// Copies `len_bytes` upwards from user memory at `from` to kernel memory at `to` (`copyin`). The ranges do not
    /// overlap.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses either side, or `from` leaves user space.
    #[track_caller]
    fn copy_in(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault>;
    /// Copies `len_bytes` upwards from kernel memory at `from` to user memory at `to` (`copyout`). The ranges do not
    /// overlap.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses either side, or `to` leaves user space.
    #[track_caller]
    fn copy_out(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault>;
    /// Copies `len_bytes` upwards between two kernel addresses (`bcopy`). The ranges do not overlap.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses either side.
    #[track_caller]
    fn copy_kernel(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault>;
    /// Clears `len_bytes` in kernel mode.
    ///
    /// # Errors
    /// [`CopyFault`] when the MMU refuses.
    #[track_caller]
    fn zero(&self, to: Va, len_bytes: usize) -> Result<(), CopyFault>;

    // ----------------------------------------------------------------------------------------------- page tables

    /// Reads a word of a page table, by its physical address.
    fn pt_load(&self, at: Pa, width: Width) -> u64;
    /// Writes a word of a page table that held no mapping.
    fn pt_store(&self, at: Pa, width: Width, value: u64);
    /// Replaces a word of a page table, atomically with respect to walkers and other CPUs, and returns the old one.
    fn pt_swap(&self, at: Pa, width: Width, value: u64) -> u64;
    /// Replaces a word of a page table if it is `old`, atomically.
    ///
    /// # Errors
    /// What it is, if it is something else. Nothing has changed then.
    fn pt_replace(&self, at: Pa, width: Width, old: u64, new: u64) -> Result<(), u64>;
    /// Clears a frame that is to become a page table, by its physical address: all of it is zeros afterwards, which is
    /// no valid entry in any format here.
    ///
    /// A frame that was used before holds what was left in it, and memory of hardware that was just switched on may
    /// hold anything: a table is cleared before an entry leads to it. Memory of a modelled machine holds zeros when
    /// that is switched on, so a kernel that forgets to clear goes wrong there only when it uses a frame again.
    fn pt_clear(&self, at: Pa);

    // ----------------------------------------------------------------------------------------------- own TLB

    /// Makes `context` what the executing CPU translates by. Where TLB entries carry no tags, this invalidates
    /// everything that is not global; where they do, what [`Context::keep`] says.
    fn activate(&self, context: Context);
    /// Invalidates in the own TLB.
    #[track_caller]
    fn tlb_flush(&self, what: Flush);

    // ----------------------------------------------------------------------------------------------- other CPUs

    /// Sends `interrupt` to each of `to`, itself excluded. Does not wait.
    #[track_caller]
    fn send_ipi(&self, to: CpuSet, interrupt: Interrupt);
    /// Spins, with interrupts enabled, until `done` answers true; in the cause in force.
    ///
    /// `done` is asked again and again, once at least. It reads the kernel's own memory (a `Cell`, what a `RefCell`
    /// holds, an atomic) that another CPU, or an interrupt handler, will write, and may write there. It makes no call
    /// on the machine, on a lock or on a device: such a call takes turns with other CPUs, in the middle of the test. To
    /// wait for a device, have its interrupt handler write what `done` reads, and take the device's answer afterwards.
    /// To wait for a time, [set the timer](Machine::set_timer), and have its handler write; [`Machine::now`] in `done`
    /// would be a call.
    ///
    /// The wait ends by what others write. Where no other CPU runs and no interrupt is on its way, a modelled machine
    /// ends the run with an error as soon as `done` answers false: it does not ask again, so `done` must not count how
    /// often it was asked.
    #[track_caller]
    fn spin_until(&self, done: &mut dyn FnMut() -> bool);
    /// Sets the executing CPU's timer: it interrupts with [`Interrupt::Timer`] when the clock reaches `at`, once, at
    /// once if that is past. `None` stops it.
    fn set_timer(&self, at: Option<Cycles>);
    /// Sets what is called for interrupts, on the CPU and the stack that they interrupt. Handlers take no
    /// locks but those of [`LockClass::masks_interrupts`], and do not sleep. Called once, at boot.
    fn set_interrupt_handler(&self, handler: Box<dyn Fn(Interrupt)>);

    // ----------------------------------------------------------------------------------------------- contexts

    /// A new context that will run `entry` when first switched to. When `entry` returns, the context is gone and the
    /// one it returned runs on the same CPU; with `None` the CPU stops for good.
    fn context_new(&self, name: &str, entry: Box<dyn FnOnce() -> Option<ContextId>>) -> ContextId;
    /// The executing context.
    fn context_current(&self) -> ContextId;
    /// Leaves the executing context and continues `to` on this CPU. If `to` is still being left by another CPU, waits
    /// for that. Returns when another context switches back, perhaps on another CPU.
    ///
    /// # Panics
    /// A modelled machine panics when the caller holds a spin lock or is an interrupt handler, or when `to` is gone.
    #[track_caller]
    fn context_switch(&self, to: ContextId);
    /// Sets a stopped CPU going in context `first`. CPU 0 starts in the boot context.
    ///
    /// # Panics
    /// A modelled machine panics when there is no such CPU, when it runs already, or when `first` runs elsewhere or is
    /// gone.
    #[track_caller]
    fn start_cpu(&self, cpu: CpuId, first: ContextId);
    /// Halts the CPU until an interrupt, again and again, until `done` answers true. An interrupt that comes between
    /// the test and the halt ends the halt. `done` may do what it may in [`Machine::spin_until`].
    ///
    /// Only an interrupt to this CPU ends a halt: another CPU's, a device's (to CPU 0), or that of
    /// [`Machine::set_timer`]. That `done` would answer true by now does not: the CPU that makes it true sends an
    /// interrupt, or the wakeup is lost. A CPU for which none is on its way stays halted as long as others run. When
    /// all CPUs are halted and no interrupt is on its way, a modelled machine ends the run with an error that says
    /// where each halted; hardware would sleep for ever.
    ///
    /// # Panics
    /// A modelled machine panics when it would halt with interrupts off: in an interrupt handler, or while the
    /// executing context holds a lock of [`LockClass::masks_interrupts`].
    #[track_caller]
    fn idle_until(&self, done: &mut dyn FnMut() -> bool);
}
