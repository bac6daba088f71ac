//! The local APIC of each CPU: interrupts to other CPUs, and the timer. And the two interrupt controllers that PCs had
//! before, which are masked. Sources: Intel SDM vol. 3, chapters "Advanced Programmable Interrupt Controller" and
//! "x2APIC"; AMD64 APM vol. 2; Intel 8259A data sheet.
//!
//! # Registers
//! Where the processor has x2APIC they are model-specific registers; else they lie in memory, 16 bytes apart, and the
//! interrupt command is two of them, which are written with interrupts off, for handlers send interrupts too. All CPUs
//! are of one kind, which CPU 0 finds.
//!
//! # The timer
//! It compares the time-stamp counter with a deadline where the processor can, and so speaks of the same time as
//! [`cpu::clock`]. Else it counts down at a rate of its own, which is measured at boot against that clock: it may be
//! early then, as an interrupt may be that was on its way when the timer was stopped or set anew. So the deadline is
//! kept here as well, and who takes the interrupt asks [`timer_is_due`], which sets the timer again if it was early.

use crate::{area, cpu};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pageferry_hal::{CpuSet, Pa};

/// Vectors of the interrupts that come by way of the APIC. The highest goes first.
pub(crate) mod vector {
    /// The CPU's own timer.
    pub(crate) const TIMER: u8 = 0xef;
    /// Another CPU asks for invalidations.
    pub(crate) const SHOOTDOWN: u8 = 0xf0;
    /// Another CPU has put a thread on the run queue.
    pub(crate) const RESCHEDULE: u8 = 0xf1;
    /// An interrupt that went away.
    pub(crate) const SPURIOUS: u8 = 0xff;
}

const BASE: u32 = 0x1b;
const TSC_DEADLINE: u32 = 0x6e0;

// Numbers of registers, as x2APIC counts them.
const ID: u32 = 0x02;
const END_OF_INTERRUPT: u32 = 0x0b;
const SPURIOUS: u32 = 0x0f;
const COMMAND: u32 = 0x30;
const COMMAND_TARGET: u32 = 0x31;
const LOCAL_TIMER: u32 = 0x32;
const INITIAL_COUNT: u32 = 0x38;
const CURRENT_COUNT: u32 = 0x39;
const DIVIDE: u32 = 0x3e;

/// Of [`BASE`]: enabled; in x2APIC mode; the address of the registers in memory.
const ENABLED: u64 = 1 << 11;
const X2: u64 = 1 << 10;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Of [`SPURIOUS`]: interrupts are accepted.
const ACCEPT: u32 = 0x100;
/// Of [`COMMAND`]: not delivered yet; the level of an INIT; the kinds.
const PENDING: u32 = 1 << 12;
const ASSERT: u32 = 1 << 14;
const INIT: u32 = 0b101 << 8;
const STARTUP: u32 = 0b110 << 8;
/// Of [`LOCAL_TIMER`]: a deadline in [`TSC_DEADLINE`], no count; no interrupt.
const BY_DEADLINE: u32 = 0b10 << 17;
const MASKED: u32 = 1 << 16;
/// Of [`DIVIDE`]: by one.
const BY_ONE: u32 = 0b1011;

/// Where the registers are in memory; 0 with x2APIC.
static REGISTERS: AtomicU64 = AtomicU64::new(0);
/// True when the timers know deadlines.
static DEADLINE: AtomicBool = AtomicBool::new(false);
/// Counts of the timer in 2^32 cycles of the clock, where it knows none.
static RATE: AtomicU64 = AtomicU64::new(0);

/// For each CPU, when its timer shall interrupt; 0 is never.
static DEADLINES: [AtomicU64; CpuSet::MAX_CPUS] = [const { AtomicU64::new(0) }; CpuSet::MAX_CPUS];

/// The model-specific register that is register `number`.
const fn x2(number: u32) -> u32 {
    0x800 + number
}

fn in_memory(number: u32) -> Option<*mut u32> {
    match REGISTERS.load(Ordering::Relaxed) {
        0 => None,
        at => Some((at + 16 * u64::from(number)) as *mut u32),
    }
}

/// Writes a register.
#[inline]
fn write(number: u32, value: u32) {
    match in_memory(number) {
        // SAFETY: callers, all in this file, name registers of the APIC, which [`find`] has found and mapped, with
        // values that decide what interrupts come, and no more; whenever one does, `interrupt` takes it.
        Some(at) => unsafe { at.write_volatile(value) },
        // SAFETY: as above, by the other way.
        None => unsafe { cpu::write_msr(x2(number), value.into()) },
    }
}

/// Reads a register.
#[inline]
fn read(number: u32) -> u32 {
    match in_memory(number) {
        // SAFETY: as [`write`]; reading those that are read here changes nothing.
        Some(at) => unsafe { at.read_volatile() },
        // SAFETY: likewise.
        None => unsafe { cpu::read_msr(x2(number)) as u32 },
    }
}

/// Masks the two old controllers, whose interrupts would come as exceptions, after giving them other vectors all the
/// same: one that is pending already may come as the seventh of either.
pub(crate) fn mask_old_controllers() {
    for (port, value) in [
        // Initialise, in four words: the vectors, how the two are connected, the mode.
        (0x20, 0x11),
        (0xa0, 0x11),
        (0x21, 0x20),
        (0xa1, 0x28),
        (0x21, 0x04),
        (0xa1, 0x02),
        (0x21, 0x01),
        (0xa1, 0x01),
        // All masked.
        (0x21, 0xff),
        (0xa1, 0xff),
    ] {
        cpu::write_port(port, value);
    }
}

/// Finds out of what kind the APICs are. Called once, on CPU 0, while it is alone and has the first page tables.
pub(crate) fn find() {
    const CPUID_X2APIC: u32 = 1 << 21;
    const CPUID_DEADLINE: u32 = 1 << 24;
    let features = __cpuid(1).ecx;
    if features & CPUID_X2APIC == 0 {
        // SAFETY: every APIC has this register, and reading changes nothing.
        let base = unsafe { cpu::read_msr(BASE) };
        REGISTERS.store(area::device(Pa(base & ADDRESS)).0, Ordering::Relaxed);
    }
    let knows_deadlines = features & CPUID_DEADLINE != 0;
    DEADLINE.store(knows_deadlines, Ordering::Relaxed);
    if !knows_deadlines {
        switch_on();
        // An emulator that its host leaves alone for a while lets the timer count on, and a rate that is too high makes
        // it late; one that is too low only makes it early, which is seen. So the lowest of a few.
        let rate = (0..8).map(|_| measure_rate()).min().expect("it was measured");
        RATE.store(rate, Ordering::Relaxed);
    }
}

/// How fast the timer counts: counts in 2^32 cycles of the clock.
fn measure_rate() -> u64 {
    // A thousandth of a second or so; any other time does, too.
    const CYCLES: u64 = 2_000_000;
    write(LOCAL_TIMER, MASKED | u32::from(vector::TIMER));
    write(DIVIDE, BY_ONE);
    write(INITIAL_COUNT, u32::MAX);
    let started = cpu::clock();
    while cpu::clock() - started < CYCLES {
        cpu::pause();
    }
    let counted = u64::from(u32::MAX - read(CURRENT_COUNT));
    let cycles = cpu::clock() - started;
    write(INITIAL_COUNT, 0);
    ((counted << 32) / cycles).max(1)
}

fn switch_on() {
    let mode = if in_memory(0).is_some() { ENABLED } else { ENABLED | X2 };
    // SAFETY: it switches the APIC on, in the mode in which its registers are used here, and leaves it where it is.
    unsafe { cpu::write_msr(BASE, cpu::read_msr(BASE) | mode) };
    write(SPURIOUS, ACCEPT | u32::from(vector::SPURIOUS));
}

/// Switches the executing CPU's APIC on.
pub(crate) fn init() {
    switch_on();
    if DEADLINE.load(Ordering::Relaxed) {
        write(LOCAL_TIMER, BY_DEADLINE | u32::from(vector::TIMER));
        // Registers in memory are not in order with model-specific ones: no deadline before the mode.
        fence();
    } else {
        write(DIVIDE, BY_ONE);
        write(LOCAL_TIMER, u32::from(vector::TIMER));
    }
}

/// The executing CPU's identifier.
pub(crate) fn id() -> u32 {
    match in_memory(ID) {
        Some(_) => read(ID) >> 24,
        None => read(ID),
    }
}

/// What was written before this is in memory before what is written to registers behind it.
fn fence() {
    // SAFETY: fences only order.
    unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) }
}

/// Sends a command to the CPU with this identifier.
fn command(id: u32, what: u32) {
    if in_memory(COMMAND).is_none() {
        // The register is written without order to memory: what the target is to read must be there first.
        fence();
        // SAFETY: as [`write`]: one register of 64 bits here.
        unsafe { cpu::write_msr(x2(COMMAND), u64::from(id) << 32 | u64::from(what)) };
        return;
    }
    let restores = cpu::interrupts_are_on();
    cpu::disable_interrupts();
    while read(COMMAND) & PENDING != 0 {
        cpu::pause();
    }
    write(COMMAND_TARGET, id << 24);
    write(COMMAND, what);
    if restores {
        cpu::enable_interrupts();
    }
}

/// Sends `vector` to the CPU with this identifier.
pub(crate) fn send(id: u32, vector: u8) {
    command(id, ASSERT | u32::from(vector));
}

/// Has the CPU with this identifier wait for [`send_startup`].
pub(crate) fn send_init(id: u32) {
    command(id, ASSERT | INIT);
}

/// Has it begin in real mode, at the beginning of this page.
pub(crate) fn send_startup(id: u32, page: u8) {
    command(id, ASSERT | STARTUP | u32::from(page));
}

/// Says that the interrupt that was taken last is handled.
pub(crate) fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Has the executing CPU's timer interrupt once when [`cpu::clock`] reaches `at`, at once if that is past; or never.
pub(crate) fn set_timer(at: Option<u64>) {
    // Zero stops it; as a time it is past, like one.
    let at = at.map_or(0, |at| at.max(1));
    DEADLINES[cpu::number().index()].store(at, Ordering::Relaxed);
    start_timer(at);
}

fn start_timer(at: u64) {
    if DEADLINE.load(Ordering::Relaxed) {
        // SAFETY: `find` has seen that the register exists; it decides when an interrupt comes, as in [`write`].
        unsafe { cpu::write_msr(TSC_DEADLINE, at) };
    } else if at == 0 {
        write(INITIAL_COUNT, 0);
    } else {
        let cycles = at.saturating_sub(cpu::clock());
        let counts = (u128::from(cycles) * u128::from(RATE.load(Ordering::Relaxed))) >> 32;
        // A time that is farther off comes in several parts.
        write(INITIAL_COUNT, u32::try_from(counts).unwrap_or(u32::MAX).max(1));
    }
}

/// Interrupts the executing CPU, as its timer would: at once.
#[cfg(feature = "tap")]
pub(crate) fn interrupt_by_timer() {
    DEADLINES[cpu::number().index()].store(1, Ordering::Relaxed);
    send(id(), vector::TIMER);
}

/// True once for each time that was set and has come. Asked when the timer has interrupted.
pub(crate) fn timer_is_due() -> bool {
    let deadline = &DEADLINES[cpu::number().index()];
    match deadline.load(Ordering::Relaxed) {
        0 => false,
        at if at > cpu::clock() => {
            // That was for an earlier time, or too early; this one is still to come, if it was set already or not.
            start_timer(at);
            false
        }
        _ => {
            deadline.store(0, Ordering::Relaxed);
            true
        }
    }
}
