//! [`Machine`] on bare metal: the same calls as on a modelled machine, as instructions. The accounting calls are empty.
//!
//! A [`Metal`] has size zero; what it stands for is the processor that executes it, and the board described below.

use crate::copy::{self, Fault};
use crate::lock::Spin;
use crate::{context, cpu, interrupt};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use pageferry_hal::machine::PteWidth;
use pageferry_hal::x86::Layout;
use pageferry_hal::{
    Access, Arch, Cause, ContextId, CopyFault, Counter, CpuId, CpuSet, Crossing, Cycles, Instructions,
    Interrupt, LockClass, Machine, Mode, PAGE_SIZE, Pa, StructVa, Topology, Trap, TrapKind, Va,
};

/// The machine that executes this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metal;

const _: () = assert!(size_of::<Metal>() == 0);

const LAYOUT: Layout = Layout::AMD64;

// What is on the board: written once, before a second CPU or a kernel exists.
static CPUS: AtomicUsize = AtomicUsize::new(0);
static FRAMES: AtomicUsize = AtomicUsize::new(0);
static APIC_IDS: [AtomicU32; CpuSet::MAX_CPUS] = [const { AtomicU32::new(0) }; CpuSet::MAX_CPUS];

/// Says what is on the board.
pub(crate) fn set_board(topology: Topology, apic_ids: [u32; CpuSet::MAX_CPUS]) {
    assert!((1..=CpuSet::MAX_CPUS).contains(&topology.cpus), "{} CPUs", topology.cpus);
    assert!(apic_ids[0] == cpu::apic_id(), "the CPU that boots is number 0");
    CPUS.store(topology.cpus, Ordering::Relaxed);
    FRAMES.store(topology.frames, Ordering::Relaxed);
    for (to, from) in APIC_IDS.iter().zip(apic_ids) {
        to.store(from, Ordering::Relaxed);
    }
}

/// Where physical memory is mapped one-to-one.
fn direct(at: Pa) -> Va {
    assert!(at.pfn().index() < FRAMES.load(Ordering::Relaxed), "{at:?} is no memory");
    LAYOUT.direct_map.expect("amd64 has a direct map") + at.0 as usize
}

/// A page-table entry. Walkers of all CPUs read and write it too, hence atomic.
fn entry(at: Pa, width: PteWidth) -> &'static AtomicU64 {
    assert!(width == PteWidth::Eight && at.0.is_multiple_of(8), "no entry of amd64: {at:?}");
    // SAFETY: the direct map maps all of memory for ever, and the frames of page tables are accessed as atomics only,
    // except when `pte_clear_frame` clears one that nobody uses yet.
    unsafe { &*(direct(at).0 as *const AtomicU64) }
}

/// How much of `len_bytes` at `va` the mode may touch at all.
fn reach(mode: Mode, va: Va, len_bytes: usize) -> usize {
    match mode {
        Mode::Kernel => len_bytes,
        Mode::User => (LAYOUT.user_end.0.saturating_sub(va.0)).min(len_bytes as u64) as usize,
    }
}

fn copy_fault(mode: Mode, (done_bytes, fault): (usize, Fault)) -> CopyFault {
    // Bits of the error code: 0, the page was present; 1, it was a store.
    let kind = if fault.code & 1 == 0 { TrapKind::NotPresent } else { TrapKind::Protection };
    let access = if fault.code & 2 == 0 { Access::Read } else { Access::Write };
    CopyFault { done_bytes, trap: Trap { va: Va(fault.va), access, mode, kind } }
}

/// The error for an access in user mode that ran out of user space.
fn out_of_reach(va: Va, reach: usize, access: Access) -> CopyFault {
    let trap = Trap { va: va + reach, access, mode: Mode::User, kind: TrapKind::Protection };
    CopyFault { done_bytes: reach, trap }
}

impl Machine for Metal {
    type Lock<T: 'static> = Spin<T>;
    type Scope = ();
    type Window = ();

    const ACCOUNTING: bool = false;

    fn topology(&self) -> Topology {
        let (cpus, frames) = (CPUS.load(Ordering::Relaxed), FRAMES.load(Ordering::Relaxed));
        Topology { arch: Arch::Amd64, cpus, frames }
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        cpu::number()
    }
    #[inline]
    fn now(&self) -> Cycles {
        Cycles(cpu::clock())
    }

    // Accounting: the instructions themselves take the time.

    #[inline(always)]
    fn scope(&self, _: Cause) {}
    #[inline(always)]
    fn execute(&self, _: Instructions) {}
    #[inline(always)]
    fn count(&self, _: Counter, _: u64) {}
    #[inline(always)]
    fn touch(&self, _: StructVa, _: usize, _: Access) {}
    #[inline(always)]
    fn cross(&self, _: Crossing) {}

    fn new_lock<T: 'static>(&self, _: LockClass, value: T) -> Spin<T> {
        Spin::new(value)
    }

    // Programs run in privilege 0 for now, so user mode is kept in its bounds here. All of user space is mapped for user
    // mode, and read-only pages refuse stores in either mode (CR0.WP).

    fn load(&self, mode: Mode, from: Va, buf: &mut [u8]) -> Result<(), CopyFault> {
        let reach = reach(mode, from, buf.len());
        // SAFETY: `buf` is the caller's and mapped. Reading `from` is what the caller asks for: in kernel mode it answers
        // for the address, in user mode it lies in user space, where no Rust value lives.
        unsafe { copy::copy(buf.as_mut_ptr() as u64, from.0, reach) }.map_err(|e| copy_fault(mode, e))?;
        if reach < buf.len() { Err(out_of_reach(from, reach, Access::Read)) } else { Ok(()) }
    }
    fn store(&self, mode: Mode, to: Va, bytes: &[u8]) -> Result<(), CopyFault> {
        let reach = reach(mode, to, bytes.len());
        // SAFETY: as in `load`: what is written is user space, or memory of the kernel that the caller answers for.
        unsafe { copy::copy(to.0, bytes.as_ptr() as u64, reach) }.map_err(|e| copy_fault(mode, e))?;
        if reach < bytes.len() { Err(out_of_reach(to, reach, Access::Write)) } else { Ok(()) }
    }
    fn copy(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        // SAFETY: the caller names data pages: of user space, or frames behind kernel mappings, where no Rust value lives;
        // by the trait's contract they do not overlap.
        unsafe { copy::copy(to.0, from.0, len_bytes) }.map_err(|e| copy_fault(Mode::Kernel, e))
    }
    fn zero(&self, to: Va, len_bytes: usize) -> Result<(), CopyFault> {
        // SAFETY: as in `copy`.
        unsafe { copy::zero(to.0, len_bytes) }.map_err(|e| copy_fault(Mode::Kernel, e))
    }

    fn pte_load(&self, at: Pa, width: PteWidth) -> u64 {
        entry(at, width).load(Ordering::SeqCst)
    }
    fn pte_fill(&self, at: Pa, width: PteWidth, value: u64) {
        // Release, which any store is here: what the entry leads to, a cleared table say, is seen with it.
        entry(at, width).store(value, Ordering::Release);
    }
    fn pte_change(&self, at: Pa, width: PteWidth, value: u64, _: &()) -> u64 {
        // One instruction, so that no accessed or dirty bit is lost that a walker sets meanwhile; and a barrier, so that
        // who changes an entry and then asks which CPUs use it cannot miss one.
        entry(at, width).swap(value, Ordering::SeqCst)
    }
    fn pte_clear_frame(&self, at: Pa) {
        // SAFETY: the frame is the caller's, to become a table; nobody walks it yet.
        unsafe { core::ptr::write_bytes(direct(at).0 as *mut u8, 0, PAGE_SIZE) }
    }
    fn flush_line(&self, at: Pa) {
        cpu::flush_line(direct(at));
    }
    #[inline(always)]
    fn open_window(&self) {}
    #[inline(always)]
    fn close_window(&self, (): ()) {}

    #[inline]
    fn invalidate_page(&self, va: Va) {
        cpu::invalidate_page(va);
    }
    fn invalidate_all(&self) {
        cpu::invalidate_all();
    }
    #[inline]
    fn load_root(&self, root: Pa) {
        // SAFETY: only `pmap` makes roots, and every one has the kernel's half: the arena from physical 0 on, in which image,
        // heap and stacks lie at their link addresses, and the direct map.
        unsafe { cpu::load_root(root) }
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
