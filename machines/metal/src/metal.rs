//! [`Machine`] on bare metal: the same calls as on a modelled machine, as instructions. The accounting calls are empty.
//!
//! A [`Metal`] has size zero; what it stands for is the processor that executes it, and the board described below.

use crate::copy::{self, Fault, Whose};
use crate::lock::Spin;
use crate::{apic, area, context, cpu, interrupt};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use pageferry_hal::isa::x86::{AMD64, AMD64_LAYOUT};
use pageferry_hal::{
    Access, Account, Board, Cause, Context, ContextId, CopyFault, CpuId, CpuSet, Cycles, Flush, Instructions,
    Interrupt, LockClass, Machine, Mode, Oracle, PAGE_SIZE, Pa, Recorder, Trap, TrapKind, Va, Width,
};
use pageferry_verify::kernel;

/// The machine that executes this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metal;

const _: () = assert!(size_of::<Metal>() == 0);

// What is on the board: written once, before a second CPU or a kernel exists.
static CPUS: AtomicUsize = AtomicUsize::new(0);
static FRAMES: AtomicUsize = AtomicUsize::new(0);
static APIC_IDS: [AtomicU32; CpuSet::MAX_CPUS] = [const { AtomicU32::new(0) }; CpuSet::MAX_CPUS];

/// Says what is on the board.
pub(crate) fn set_board(cpus: usize, frames: usize, apic_ids: [u32; CpuSet::MAX_CPUS]) {
    assert!((1..=CpuSet::MAX_CPUS).contains(&cpus), "{cpus} CPUs");
    assert!(apic_ids[0] == apic::id(), "the CPU that boots is number 0");
    CPUS.store(cpus, Ordering::Relaxed);
    FRAMES.store(frames, Ordering::Relaxed);
    for (to, from) in APIC_IDS.iter().zip(apic_ids) {
        to.store(from, Ordering::Relaxed);
    }
}

/// Where physical memory is mapped one-to-one.
fn direct(at: Pa) -> Va {
    assert!(at.pfn().index() < FRAMES.load(Ordering::Relaxed), "{at:?} is no memory");
    AMD64_LAYOUT.direct_map.expect("amd64 has a direct map") + at.0 as usize
}

/// A page-table entry. Walkers of all CPUs read and write it too, hence atomic.
fn entry(at: Pa, width: Width) -> &'static AtomicU64 {
    assert!(width == AMD64.width && at.0.is_multiple_of(8), "no entry of amd64: {at:?}");
    // SAFETY: the direct map maps all of memory for ever, and the frames of page tables are accessed as atomics only,
    // except when `pt_clear` clears one that nobody uses yet.
    unsafe { &*(direct(at).0 as *const AtomicU64) }
}

/// Refuses what is not all in user space, where user mode, or the user's side of a copy, may go.
fn within_user(va: Va, len_bytes: usize, access: Access) -> Result<(), CopyFault> {
    if AMD64_LAYOUT.is_user(va, len_bytes) {
        return Ok(());
    }
    let trap = Trap { va, access, mode: Mode::User, kind: TrapKind::Protection };
    Err(CopyFault { done_bytes: 0, trap })
}

/// The same for user mode; kernel mode may go anywhere.
fn within_mode(mode: Mode, va: Va, len_bytes: usize, access: Access) -> Result<(), CopyFault> {
    match mode {
        Mode::User => within_user(va, len_bytes, access),
        Mode::Kernel => Ok(()),
    }
}

/// Copies between two places of which no Rust value lives in either.
fn copy_data(to: Va, from: Va, len_bytes: usize, whose: Whose) -> Result<(), CopyFault> {
    // SAFETY: the caller names data pages: frames behind kernel mappings, or pages of user space, and no Rust value
    // lives in either; by the contract of [`Machine`] they do not overlap.
    unsafe { copy::copy(to.0, from.0, len_bytes, whose) }.map_err(|e| copy_fault(Mode::Kernel, e))
}

/// Whose memory an access goes to. The kernel takes a few bytes of a program's in its own mode.
fn whose(at: Va, len_bytes: usize) -> Whose {
    if AMD64_LAYOUT.is_user(at, len_bytes) { Whose::Users } else { Whose::Kernels }
}

fn copy_fault(mode: Mode, (done_bytes, fault): (usize, Fault)) -> CopyFault {
    // Bits of the error code: 0, the page was present; 1, it was a store.
    let kind = if fault.code & 1 == 0 { TrapKind::NotPresent } else { TrapKind::Protection };
    let access = if fault.code & 2 == 0 { Access::Read } else { Access::Write };
    CopyFault { done_bytes, trap: Trap { va: Va(fault.va), access, mode, kind } }
}

// ANCHOR: parts
// Accounts, judgements and records: the instructions themselves take the time.

impl Account for Metal {
    type Scope = ();

    #[inline(always)]
    fn scope(&self, _: Cause) {}
}

impl Oracle for Metal {
    type FlushWindow = ();

    #[inline(always)]
    fn open_flush_window(&self) {}
    #[inline(always)]
    fn close_flush_window(&self, (): ()) {}
}

impl Recorder for Metal {
    fn flush_line(&self, at: Pa) {
        cpu::flush_line(direct(at));
    }
}
// ANCHOR_END: parts

impl Machine for Metal {
    type Lock<T: 'static> = Spin<T>;

    fn board(&self) -> Board {
        kernel::board(CPUS.load(Ordering::Relaxed), FRAMES.load(Ordering::Relaxed))
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        cpu::number()
    }
    #[inline]
    fn now(&self) -> Cycles {
        Cycles(cpu::clock())
    }

    fn new_lock<T: 'static>(&self, class: LockClass, value: T) -> Spin<T> {
        if class.masks_interrupts() { Spin::masking(value) } else { Spin::new(value) }
    }

    #[inline(always)]
    fn fetch(&self, _: Mode, _: Va, _: Instructions) -> Result<(), CopyFault> {
        Ok(())
    }

    // What is done here in user mode is done for a program by the kernel, so it is kept in its bounds here. All of user
    // space is mapped for user mode, and read-only pages refuse stores in either mode (CR0.WP).

    fn load(&self, mode: Mode, from: Va, buf: &mut [u8]) -> Result<(), CopyFault> {
        within_mode(mode, from, buf.len(), Access::Read)?;
        // SAFETY: `buf` is the caller's and mapped. Reading `from` is what the caller asks for: in kernel mode it
        // answers for the address, in user mode it lies in user space, where no Rust value lives.
        unsafe { copy::copy(buf.as_mut_ptr() as u64, from.0, buf.len(), whose(from, buf.len())) }
            .map_err(|e| copy_fault(mode, e))
    }
    fn store(&self, mode: Mode, to: Va, bytes: &[u8]) -> Result<(), CopyFault> {
        within_mode(mode, to, bytes.len(), Access::Write)?;
        // SAFETY: as in `load`: what is written is user space, or memory of the kernel that the caller answers for.
        unsafe { copy::copy(to.0, bytes.as_ptr() as u64, bytes.len(), whose(to, bytes.len())) }
            .map_err(|e| copy_fault(mode, e))
    }
    fn copy_in(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        within_user(from, len_bytes, Access::Read)?;
        copy_data(to, from, len_bytes, Whose::Users)
    }
    fn copy_out(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        within_user(to, len_bytes, Access::Write)?;
        copy_data(to, from, len_bytes, Whose::Users)
    }
    fn copy_kernel(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        copy_data(to, from, len_bytes, Whose::Kernels)
    }
    fn zero(&self, to: Va, len_bytes: usize) -> Result<(), CopyFault> {
        let whose = whose(to, len_bytes);
        // SAFETY: as in `copy_data`.
        unsafe { copy::zero(to.0, len_bytes, whose) }.map_err(|e| copy_fault(Mode::Kernel, e))
    }

    // ANCHOR: tables
    fn pt_load(&self, at: Pa, width: Width) -> u64 {
        entry(at, width).load(Ordering::SeqCst)
    }
    fn pt_store(&self, at: Pa, width: Width, value: u64) {
        // Release, which any store is here: what the entry leads to, a cleared table say, is seen with it.
        entry(at, width).store(value, Ordering::Release);
    }
    fn pt_swap(&self, at: Pa, width: Width, value: u64) -> u64 {
        // One instruction, so that no accessed or dirty bit is lost that a walker sets meanwhile; and a barrier, so
        // that who changes an entry and then asks which CPUs use it cannot miss one.
        entry(at, width).swap(value, Ordering::SeqCst)
    }
    fn pt_replace(&self, at: Pa, width: Width, old: u64, new: u64) -> Result<(), u64> {
        entry(at, width).compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).map(|_| ())
    }
    fn pt_clear(&self, at: Pa) {
        // SAFETY: the frame is the caller's, to become a table; nobody walks it yet.
        unsafe { core::ptr::write_bytes(direct(at).0 as *mut u8, 0, PAGE_SIZE) }
    }
    // ANCHOR_END: tables

    #[inline]
    fn activate(&self, context: Context) {
        area::link(context.root);
        // SAFETY: only `pmap` makes roots, and every one has the kernel's half: the arena from physical 0 on, in which
        // image and heap lie at their link addresses, and the direct map; the stacks were added above.
        unsafe { cpu::load_root(context.root) }
    }
    #[inline]
    fn tlb_flush(&self, what: Flush) {
        match what {
            Flush::Page(_, va) => cpu::invalidate_page(va),
            Flush::Context(_) => cpu::invalidate_context(),
            Flush::All | Flush::Everything => cpu::invalidate_all(),
            Flush::Broadcast(..) | Flush::Synchronise => {
                unreachable!("the board says that nothing is broadcast")
            }
        }
    }

    fn send_ipi(&self, mut to: CpuSet, interrupt: Interrupt) {
        to.remove(cpu::number());
        for cpu in to.iter() {
            interrupt::send(APIC_IDS[cpu.index()].load(Ordering::Relaxed), interrupt);
        }
    }
    fn spin_until(&self, done: &mut dyn FnMut() -> bool) {
        while !done() {
            cpu::pause();
        }
    }
    fn set_timer(&self, at: Option<Cycles>) {
        apic::set_timer(at.map(|at| at.0));
    }
    fn set_interrupt_handler(&self, handler: Box<dyn Fn(Interrupt)>) {
        interrupt::set_handler(handler);
    }

    fn context_new(&self, _: &str, entry: Box<dyn FnOnce() -> Option<ContextId>>) -> ContextId {
        context::create(entry)
    }
    fn context_current(&self) -> ContextId {
        context::current()
    }
    fn context_switch(&self, to: ContextId) {
        context::switch(to);
    }
    fn start_cpu(&self, cpu: CpuId, first: ContextId) {
        context::start_cpu(cpu, first);
    }
    fn idle_until(&self, done: &mut dyn FnMut() -> bool) {
        loop {
            // With interrupts off, none can come between the test and the halt.
            cpu::disable_interrupts();
            if done() {
                cpu::enable_interrupts();
                return;
            }
            cpu::enable_interrupts_and_halt();
        }
    }
}
