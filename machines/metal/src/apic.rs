//! The local APIC of each CPU, in x2APIC mode, where its registers are model-specific ones: interrupts to other CPUs,
//! and the timer. Sources: Intel SDM vol. 3, chapters "Advanced Programmable Interrupt Controller" and "x2APIC"; AMD64
//! APM vol. 2.
//!
//! # The timer
//! It counts at a rate of its own, unless it is told to compare the time-stamp counter with a deadline; then it speaks
//! of the same time as [`cpu::clock`], and nothing has to be measured. That is the only mode used here. A processor
//! without it (CPUID says so) cannot run this kernel, which has a clock. Intel's processors have it since 2010, and so
//! have virtual ones under KVM; AMD's older ones and QEMU's emulation have not.
//!
//! An interrupt that was on its way when the timer was stopped or set anew comes all the same. So the deadline is kept
//! here as well, and who takes the interrupt asks [`timer_is_due`].

use crate::cpu;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU64, Ordering};
use pageferry_hal::CpuSet;

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
const ID: u32 = 0x802;
const END_OF_INTERRUPT: u32 = 0x80b;
const SPURIOUS: u32 = 0x80f;
const COMMAND: u32 = 0x830;
const LOCAL_TIMER: u32 = 0x832;

/// Of [`BASE`]: enabled, in x2APIC mode.
const BASE_X2: u64 = 0xc00;
/// Of [`SPURIOUS`]: interrupts are accepted.
const ACCEPT: u64 = 0x100;
/// Of [`LOCAL_TIMER`]: a deadline in [`TSC_DEADLINE`], no count.
const BY_DEADLINE: u64 = 0b10 << 17;

/// True when the timers know deadlines.
/// For each CPU, when its timer shall interrupt; 0 is never.
static DEADLINES: [AtomicU64; CpuSet::MAX_CPUS] = [const { AtomicU64::new(0) }; CpuSet::MAX_CPUS];

/// Writes a register.
fn write(register: u32, value: u64) {
    // SAFETY: callers, all in this file, name registers of the APIC, which [`init`] has found and switched on, with
    // values that decide what interrupts come, and no more; whenever one does, `interrupt` has installed what takes it.
    unsafe { cpu::write_msr(register, value) }
}

/// Reads a register.
fn read(register: u32) -> u64 {
    // SAFETY: as [`write`]; reading those that are read here changes nothing.
    unsafe { cpu::read_msr(register) }
}

/// Switches the executing CPU's APIC on.
pub(crate) fn init() {
    const CPUID_X2APIC: u32 = 1 << 21;
    const CPUID_DEADLINE: u32 = 1 << 24;
    let features = __cpuid(1).ecx;
    assert!(features & CPUID_X2APIC != 0, "this processor has no x2APIC");
    write(BASE, read(BASE) | BASE_X2);
    write(SPURIOUS, ACCEPT | u64::from(vector::SPURIOUS));
    assert!(features & CPUID_DEADLINE != 0, "this processor's timer knows no deadlines");
    // In x2APIC mode the processor keeps this write and later ones of the deadline in order.
    write(LOCAL_TIMER, BY_DEADLINE | u64::from(vector::TIMER));
}

/// The executing CPU's identifier.
pub(crate) fn id() -> u32 {
    read(ID) as u32
}

/// Sends `vector` to the CPU with this identifier.
pub(crate) fn send(id: u32, vector: u8) {
    // The register is written without order to memory: what the target is to read must be there first.
    // SAFETY: fences only order.
    unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) }
    write(COMMAND, u64::from(id) << 32 | u64::from(vector));
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
    write(TSC_DEADLINE, at);
}

/// True once for each time that was set and has come. Asked when the timer has interrupted.
pub(crate) fn timer_is_due() -> bool {
    let deadline = &DEADLINES[cpu::number().index()];
    match deadline.load(Ordering::Relaxed) {
        0 => false,
        at if at > cpu::clock() => {
            // That was for an earlier time; this one is still to come, if it was set already or not.
            write(TSC_DEADLINE, at);
            false
        }
        _ => {
            deadline.store(0, Ordering::Relaxed);
            true
        }
    }
}
