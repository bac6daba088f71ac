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
//! * **Accounting.** [`Machine::scope`], [`Machine::execute`], [`Machine::fetch`], [`Machine::count`],
//!   [`Machine::touch`] and [`Machine::cross`] only account, and what is declared of mappings and windows is only
//!   judged. On bare metal they are empty: the instructions themselves take the time.

use crate::addr::{Pa, Va};
use crate::arena::StructVa;
use crate::board::Board;
use crate::cause::{Cause, Counter};
use crate::cpu::{CpuId, CpuSet};
use crate::dev::device::DeviceId;
use crate::flow::{Attachment, Flow, FlowStep, Level};
use crate::lock::{LockClass, SpinLock};
use crate::mmu::{Asid, Block, BlockRegister, Context, Flush, HashTable, Miss, Slot, SpaceId, Tte, Width};
use crate::path::Path;
use crate::time::{Cycles, Instructions};
use crate::trap::{Access, CopyFault, Mode, Reference, TrapKind};
use alloc::boxed::Box;

/// A thread of control: a stack and saved registers. What it means is the scheduler's business.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContextId(pub u32);

/// An interrupt, as its handler sees it.
///
/// One CPU sends another [`Interrupt::Shootdown`] or [`Interrupt::Reschedule`]. What they mean is the business of the
/// kernel and its handler; on a modelled machine they differ in the [`Cause`] that their time goes to.
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

/// What the kernel does about a miss: makes the access possible, or says why not. See [`Machine::set_refill`].
pub type Refill = Box<dyn Fn(Miss) -> Result<(), TrapKind>>;

/// A machine, seen from the CPU that executes the call. See the [module](self) for the contract.
pub trait Machine: Clone + 'static {
    /// The spin lock of this machine.
    type Lock<T: 'static>: SpinLock<T>;
    /// Keeps a [`Cause`] in force until it is dropped; scopes nest, the innermost counts.
    type Scope;
    /// Stands for a change of mappings whose stale translations are still to be invalidated.
    type FlushWindow;

    /// True when accounting calls do something; lets callers skip work that only feeds them.
    const ACCOUNTING: bool;

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

    // ----------------------------------------------------------------------------------------------- accounting

    /// Attributes what follows to `cause`, until the scope is dropped. The scope belongs to the thread of control, and
    /// goes with it through context switches.
    #[must_use = "the cause ends when the scope is dropped"]
    fn scope(&self, cause: Cause) -> Self::Scope;
    /// Accounts for a path of instructions in the cause in force: for its time, and for the fetching of its text if it
    /// has a place.
    ///
    /// # Panics
    /// A modelled machine panics where the text is not mapped.
    #[track_caller]
    fn execute(&self, path: impl Into<Path>);
    /// Says where the kernel's text lies, in which paths have their places. Called at boot, where the board
    /// [fetches](Board::fetches); paths take nothing but their time before.
    fn set_text(&self, at: StructVa) {
        let _ = at;
    }
    /// Counts `n` events.
    fn count(&self, counter: Counter, n: u64);
    /// Accounts for an access to a kernel structure, through TLB and caches, in the cause in force.
    #[track_caller]
    fn touch(&self, at: StructVa, len_bytes: usize, access: Access);
    /// Says that something is on its way between protection domains. For drawings: costs nothing and changes nothing.
    fn trace_flow(&self, flow: Flow, step: FlowStep) {
        let _ = (flow, step);
    }
    /// Says that there is so much more, or less, of something. For drawings, as [`Machine::trace_flow`].
    fn trace_level(&self, level: Level, change: i64) {
        let _ = (level, change);
    }
    /// Says that the context that executes this is a process's from now on, which has this number and name. For
    /// drawings, as [`Machine::trace_flow`].
    fn trace_process(&self, number: u32, name: &str) {
        let _ = (number, name);
    }
    /// Says that memory is attached to a process. For drawings, as [`Machine::trace_flow`].
    fn trace_attached(&self, process: u32, attachment: Attachment) {
        let _ = (process, attachment);
    }
    /// Says that what was attached to a process at `at` is so no more. For drawings, as [`Machine::trace_flow`].
    fn trace_detached(&self, process: u32, at: Va) {
        let _ = (process, at);
    }
    /// True when what is traced is recorded; lets callers skip work that only feeds it.
    fn is_traced(&self) -> bool {
        false
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
            let mut word = r.word.to_be_bytes();
            let made = match r.access {
                Access::Fetch => self.fetch(Mode::User, r.at, Instructions(0)),
                Access::Read => self.load(Mode::User, r.at, &mut word),
                Access::Write => self.store(Mode::User, r.at, &word),
            };
            made.map_err(|fault| CopyFault { done_bytes, ..fault })?;
            r.word = u32::from_be_bytes(word);
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
    /// Reads or writes a register of a device, at a kernel address of [`Board::device_memory`]: past all caches.
    ///
    /// # Panics
    /// When nothing is mapped there.
    #[track_caller]
    fn touch_register(&self, at: Va, access: Access) {
        let _ = (at, access);
    }
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
    /// Writes the cache line at `at` back and drops it from all caches (`clflush`); for measurements.
    fn flush_line(&self, at: Pa);

    // ----------------------------------------------------------------------------------------------- what is true

    /// Declares that the mapping of the page at `va` is now `new`, and was `old`; `None` is none. Called once for each
    /// page whose mapping is made, changed or removed, and not for entries that lead to further tables.
    ///
    /// # When
    /// Right after the word was written that makes it so, with no call on the machine between: then no other CPU can
    /// come between the two. If the executing CPU itself touches the page between them, what it finds in the table is
    /// not declared: on a modelled machine that is the use of a stale translation. So is every touch if the declaration
    /// of a new mapping is forgotten. If that of a removed one is forgotten, its old translations go on to stand:
    /// nothing is found until something else is declared for the page, which is refused because `old` is not what was
    /// declared last.
    ///
    /// # The window
    /// Translations made from `old` that say more than `new` (another frame, a permission that is gone, a page noted as
    /// modified) may live in TLBs. Until `window` is closed, any CPU may still use them, and it is not an error:
    /// hardware promises no more while invalidations are on their way. From then on a use is an error. `None` says that
    /// there can be no such translations: nothing was mapped before, or `new` only permits more.
    ///
    /// # Panics
    /// A modelled machine panics when `old` is not what was declared last, and when there is no window though
    /// translations made from `old` could live.
    #[track_caller]
    fn mapping_changed(
        &self,
        space: SpaceId,
        va: Va,
        old: Option<Tte>,
        new: Option<Tte>,
        window: Option<&Self::FlushWindow>,
    ) {
        let _ = (space, va, old, new, window);
    }
    /// Declares that mappings are about to change, and that stale translations may be used until the window closes.
    #[must_use = "a window must be closed"]
    fn open_flush_window(&self) -> Self::FlushWindow;
    /// Declares that all is invalidated that needed to be: from here on the use of a stale translation is an error.
    #[track_caller]
    fn close_flush_window(&self, window: Self::FlushWindow);

    // ----------------------------------------------------------------------------------------------- own TLB

    /// Makes `context` what the executing CPU translates by. Where TLB entries carry no tags, this invalidates
    /// everything that is not global; where they do, what [`Context::keep`] says.
    fn activate(&self, context: Context);
    /// Invalidates in the own TLB.
    #[track_caller]
    fn tlb_flush(&self, what: Flush);
    /// Puts a translation into the own TLB, tagged `asid` unless it is global.
    ///
    /// # Panics
    /// When the kernel does not load the TLB of this machine. On a modelled machine whose entries are all compared at
    /// once, also when another entry maps the page already, whatever its size: a multiple hit.
    #[track_caller]
    fn tlb_load(&self, slot: Slot, asid: Asid, va: Va, tte: Tte) {
        panic!("the kernel does not load this TLB: {slot:?}, {asid:?}, {va:?}, {tte:?}");
    }
    /// The entry that [`Slot::Replace`] would take now: for software that chooses by itself, and takes hardware's word
    /// where it has no better one.
    ///
    /// # Panics
    /// When no counter names entries of this machine's TLB.
    fn tlb_random(&self) -> usize {
        panic!("no counter names entries of this TLB");
    }
    /// Looks through the entries of the own TLB, from the first one on, for the one that maps the page at `va` of the
    /// address space tagged `asid`: by software, which reads one after the other.
    ///
    /// # Panics
    /// When software cannot read the TLB of this machine.
    fn tlb_search(&self, asid: Asid, va: Va) -> Option<usize> {
        panic!("software cannot read this TLB, in which {va:?} of {asid:?} is looked for");
    }
    /// Reserves the first `entries` entries of the own TLB: from here on only [`Slot::Reserved`] loads them, and
    /// nothing but a flush of their page or a load takes them away.
    ///
    /// # Panics
    /// When the kernel does not load the TLB of this machine, or no other entries would be left.
    fn tlb_reserve(&self, entries: usize) {
        panic!("the kernel does not load this TLB, and cannot reserve {entries} entries of it");
    }
    /// Sets the own block register `register`, or switches it off.
    ///
    /// # Panics
    /// When there is no such register, it cannot hold such a block, or the block overlaps another.
    fn block_set(&self, register: BlockRegister, block: Option<Block>) {
        panic!("there is no {register:?} for {block:?}");
    }
    /// Says where the hash table lies that hardware looks into. Called once, at boot, for all CPUs.
    ///
    /// # Panics
    /// When this machine's hardware uses none.
    fn set_hash_table(&self, table: HashTable) {
        panic!("there is no use for {table:?}");
    }
    /// Sets what is called, on the CPU and the stack of the access, when a machine cannot translate it by itself: the
    /// kernel's own code, with interrupts off. It makes the access possible, by loading the TLB or the hash table, or
    /// says why not; then the access is made again. It touches page tables by [`Machine::pt_load`] and its like only,
    /// takes no lock but those of [`LockClass::HASH_TABLE`], and does not sleep. Called once, at boot; never on
    /// machines that walk page tables.
    fn set_refill(&self, refill: Refill) {
        let _ = refill;
    }
    /// In the refill handler: has the handler's own fetches and touches translated like all others from here on, or no
    /// more. It begins untranslated, with physical addresses. A translated one may miss; then the handler is called
    /// again, within itself.
    fn translate_refill(&self, on: bool) {
        let _ = on;
    }
    /// How deep the refill handlers of this CPU are nested: 1 in one that interrupted no other.
    fn refill_depth(&self) -> u32 {
        1
    }
    /// Writes back and drops what a virtually indexed cache holds of the frame at `at` under a colour: before the frame
    /// is used at addresses of another, where one of both uses stores.
    ///
    /// # Panics
    /// A modelled machine panics when [`Board::colours`] is not above `colour`, or is 1.
    fn dcache_purge(&self, at: Pa, colour: u32) {
        panic!("the frame at {at:?} has no colour {colour}: the caches here know none");
    }

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
