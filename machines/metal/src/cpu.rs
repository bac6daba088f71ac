//! The privileged and other instructions of amd64 that this port needs, one function each. Sources: AMD64 Architecture
//! Programmer's Manual vol. 2 and 3.
//!
//! All of them are executed at privilege 0, which the loader hands over; that is the part of every SAFETY note below
//! that is not repeated there.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pageferry_hal::{CpuId, CpuSet, Pa, Va};

const GS_BASE: u32 = 0xc000_0101;
const EFER: u32 = 0xc000_0080;
const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const SYSCALL_MASK: u32 = 0xc000_0084;
/// Of [`EFER`]: `syscall` exists; entries of page tables can say that nothing is executed.
const EFER_SYSCALL: u64 = 1 << 0;
const EFER_NO_EXECUTE: u64 = 1 << 11;
const CR0_WRITE_PROTECT: u64 = 1 << 16;
const CR4_GLOBAL_PAGES: u64 = 1 << 7;
/// The kernel executes nothing in pages of the user's (SMEP), and reads and writes none unless it says so (SMAP).
const CR4_SMEP: u64 = 1 << 20;
const CR4_SMAP: u64 = 1 << 21;
/// What `syscall` clears: the flags by which a program could be stepped through the kernel (TF), have it run with
/// interrupts (IF), backwards (DF), as part of another task (NT), or past SMAP (AC).
const MASKED_FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 10 | 1 << 14 | 1 << 18;

/// True where the processors have SMAP.
static GUARDS_USER: AtomicBool = AtomicBool::new(false);

/// Writes a model-specific register.
///
/// # Safety
/// It exists, and with this value the CPU still does what Rust code takes for granted.
pub(crate) unsafe fn write_msr(msr: u32, value: u64) {
    // SAFETY: the caller's promise. No `nomem`: stores before it are not moved behind it.
    unsafe {
        asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Reads a model-specific register.
///
/// # Safety
/// It exists, and reading it changes nothing.
pub(crate) unsafe fn read_msr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// What GS leads to while the CPU runs the kernel: its number, so that it can be read in one instruction, and what the
/// entries from ring 3 need before there is a stack. `ring3` knows the places.
#[repr(C)]
struct Local {
    number: u64,
    stack: AtomicU64,
    registers: AtomicU64,
    scratch: AtomicU64,
}

static LOCALS: [Local; CpuSet::MAX_CPUS] = {
    let mut locals = [const {
        let (stack, registers, scratch) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Local { number: 0, stack, registers, scratch }
    }; CpuSet::MAX_CPUS];
    let mut cpu = 0;
    while cpu < locals.len() {
        locals[cpu].number = cpu as u64;
        cpu += 1;
    }
    locals
};

/// Gives the executing CPU its number. What asks for that comes later.
pub(crate) fn set_number(cpu: CpuId) {
    // SAFETY: compiled code here uses no GS but for [`number`].
    unsafe { write_msr(GS_BASE, &raw const LOCALS[cpu.index()] as u64) };
}

/// Sets the control bits of the executing CPU that the kernel relies on. `syscall` enters at `entry`, with segments
/// from `code` on.
pub(crate) fn init(entry: u64, code: u16) {
    let mut cr4 = CR4_GLOBAL_PAGES;
    if __cpuid(0).eax >= 7 {
        let features = __cpuid_count(7, 0).ebx;
        if features & 1 << 7 != 0 {
            cr4 |= CR4_SMEP;
        }
        if features & 1 << 20 != 0 {
            cr4 |= CR4_SMAP;
            GUARDS_USER.store(true, Ordering::Relaxed);
        }
    }
    // SAFETY: write protection in kernel mode only makes stores to read-only pages fault, and global pages only keep
    // entries that the page tables mark; the kernel expects both. It executes nothing of the user's, and uses the
    // user's memory between [`open_user`] and [`close_user`] alone. `main` has seen that the processor has the rest:
    // `syscall`, with an entry that takes it, and a bit in entries of page tables where nothing is executed.
    unsafe {
        asm!("mov {t}, cr0", "or {t}, {wp}", "mov cr0, {t}", t = out(reg) _, wp = const CR0_WRITE_PROTECT,
            options(nostack));
        asm!("mov {t}, cr4", "or {t}, {cr4}", "mov cr4, {t}", t = out(reg) _, cr4 = in(reg) cr4,
            options(nostack));
        write_msr(EFER, read_msr(EFER) | EFER_SYSCALL | EFER_NO_EXECUTE);
        write_msr(STAR, u64::from(code) << 32);
        write_msr(LSTAR, entry);
        write_msr(SYSCALL_MASK, MASKED_FLAGS);
    }
}

/// Lets the kernel use memory of the user's, until [`close_user`].
#[inline]
pub(crate) fn open_user() {
    if GUARDS_USER.load(Ordering::Relaxed) {
        // SAFETY: sets a flag that permits accesses, on a processor that knows the instruction.
        unsafe { asm!("stac", options(nostack)) }
    }
}

/// Ends [`open_user`].
#[inline]
pub(crate) fn close_user() {
    if GUARDS_USER.load(Ordering::Relaxed) {
        // SAFETY: clears the flag.
        unsafe { asm!("clac", options(nostack)) }
    }
}

/// The executing CPU's number, as [`set_number`] set it.
#[inline]
pub(crate) fn number() -> CpuId {
    let number: u32;
    // SAFETY: GS leads to the number, which nobody writes.
    unsafe { asm!("mov {:e}, gs:[0]", out(reg) number, options(readonly, nostack, preserves_flags)) }
    CpuId(number as u8)
}

/// Writes a byte to a port.
#[inline]
pub(crate) fn write_port(port: u16, value: u8) {
    // SAFETY: the ports that are written here belong to interrupt controllers and to devices that write no memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Reads a byte from a port.
#[cfg(not(feature = "tap"))]
fn read_port(port: u16) -> u8 {
    let value: u8;
    // SAFETY: the ports that are read here belong to the timer of PCs, and reading them changes nothing else.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Cycles of [`clock`] in a millisecond.
#[cfg(not(feature = "tap"))]
static CLOCK_KHZ: AtomicU64 = AtomicU64::new(1_000_000);

/// Cycles of [`clock`] in a millisecond; what it is on a machine without the old timer is a guess.
#[cfg(not(feature = "tap"))]
pub(crate) fn clock_khz() -> u64 {
    CLOCK_KHZ.load(Ordering::Relaxed)
}

/// Measures [`clock`] by the old timer (8254): the lowest of three, for while its host leaves it alone an emulator's
/// clock goes on.
#[cfg(not(feature = "tap"))]
pub(crate) fn measure_clock() {
    let khz = (0..3).filter_map(|_| khz_by_timer()).min();
    khz.into_iter().for_each(|khz| CLOCK_KHZ.store(khz, Ordering::Relaxed));
}

/// Lets the timer's third counter run for ten milliseconds; nothing where there is none.
#[cfg(not(feature = "tap"))]
fn khz_by_timer() -> Option<u64> {
    const MS: u64 = 10;
    const COUNTS: u64 = 1_193_182 * MS / 1000;
    const PATIENCE_CYCLES: u64 = 1 << 32;
    const IS_OVER: u8 = 1 << 5;
    let [low, high, ..] = COUNTS.to_le_bytes();
    // The counter's gate is open, the speaker off; one count down, in two bytes.
    for (port, value) in [(0x61, 1), (0x43, 0xb0), (0x42, low), (0x42, high)] {
        write_port(port, value);
    }
    let began = clock();
    while read_port(0x61) & IS_OVER == 0 && clock() - began < PATIENCE_CYCLES {
        pause();
    }
    let khz = (clock() - began) / MS;
    // No clock is slower than 50 MHz: without a timer it seems to be over at once, or never.
    (50_000..PATIENCE_CYCLES / MS).contains(&khz).then_some(khz)
}

/// The time-stamp counter.
#[inline]
pub(crate) fn clock() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Lets a sibling go first, in a loop that waits.
#[inline]
pub(crate) fn pause() {
    core::hint::spin_loop();
}

/// Takes interrupts from here on.
#[inline]
pub(crate) fn enable_interrupts() {
    // SAFETY: handlers are installed before this is called first, and preserve all registers.
    unsafe { asm!("sti", options(nostack)) }
}

/// Takes no interrupts from here on.
#[inline]
pub(crate) fn disable_interrupts() {
    // SAFETY: only delays interrupts.
    unsafe { asm!("cli", options(nostack)) }
}

/// True when interrupts are taken.
#[inline]
pub(crate) fn interrupts_are_on() -> bool {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags) }
    flags & (1 << 9) != 0
}

/// Takes interrupts, and halts until one comes: STI takes effect behind the HLT, so none slips between the two.
#[inline]
pub(crate) fn enable_interrupts_and_halt() {
    // SAFETY: as [`enable_interrupts`]; an interrupt ends the halt.
    unsafe { asm!("sti", "hlt", options(nostack)) }
}

/// Stops the CPU for good.
pub(crate) fn stop() -> ! {
    loop {
        // SAFETY: nothing runs here any more.
        unsafe { asm!("cli", "hlt", options(nostack)) }
    }
}

/// `invlpg`.
#[inline]
pub(crate) fn invalidate_page(va: Va) {
    // SAFETY: dropping a translation is always sound: the next access walks. No `nomem`: memory accesses through the
    // mapping must not be moved across.
    unsafe { asm!("invlpg [{}]", in(reg) va.0, options(nostack, preserves_flags)) }
}

/// Drops the translations that are not global, by loading the root again.
pub(crate) fn invalidate_context() {
    // SAFETY: as [`invalidate_page`]; CR3 is as before afterwards.
    unsafe {
        asm!("mov {root}, cr3", "mov cr3, {root}", root = out(reg) _, options(nostack, preserves_flags));
    }
}

/// Drops all translations, global ones too, by switching global pages off and on.
pub(crate) fn invalidate_all() {
    // SAFETY: as [`invalidate_page`]; CR4 is as before afterwards.
    unsafe {
        asm!(
            "mov {old}, cr4", "mov {new}, {old}", "and {new}, {not_pge}", "mov cr4, {new}", "mov cr4, {old}",
            old = out(reg) _, new = out(reg) _, not_pge = const !(CR4_GLOBAL_PAGES as i64),
            options(nostack),
        );
    }
}

/// `mov cr3`.
///
/// # Safety
/// `root` is the root of page tables that map the image, the stack in use, the heap and the direct map as they are.
#[inline]
pub(crate) unsafe fn load_root(root: Pa) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr3, {}", in(reg) root.0, options(nostack, preserves_flags)) }
}

/// Writes bytes to a port, one after the other.
#[cfg(feature = "tap")]
pub(crate) fn write_bytes(port: u16, bytes: &[u8]) {
    // SAFETY: as [`write_port`]; the bytes are read, and no more.
    unsafe {
        asm!("rep outsb", in("dx") port, inout("rsi") bytes.as_ptr() => _, inout("rcx") bytes.len() => _,
            options(readonly, nostack, preserves_flags));
    }
}

/// The root in use.
pub(crate) fn root() -> Pa {
    let root: u64;
    // SAFETY: reads CR3, in which no other bits are set here.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) }
    Pa(root)
}

/// Drops the line of `va` from all caches.
pub(crate) fn flush_line(va: Va) {
    // SAFETY: `clflush` loses nothing, dirty lines are written back. It faults like a load; callers pass addresses of
    // the direct map.
    unsafe { core::arch::x86_64::_mm_clflush(va.0 as *const u8) }
}

/// The address of the last page fault.
pub(crate) fn fault_address() -> u64 {
    let at: u64;
    // SAFETY: reads CR2.
    unsafe { asm!("mov {}, cr2", out(reg) at, options(nomem, nostack, preserves_flags)) }
    at
}
