//! Copies and fills that end at a page fault instead of dying of it (`copyin`, `copyout`, with `PCB_ONFAULT` in BSD).
//!
//! Each is one string instruction, at a known address, with the count of what is left in RCX. A page fault at that
//! address goes on behind it; the caller sees that something is left, and what the fault was. These are the only two
//! places at which the kernel uses memory of programs, so only here it is open to it (SMAP).

use crate::cpu;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};
use pageferry_hal::{CpuId, CpuSet};

unsafe extern "C" {
    fn pageferry_copy(to: *mut u8, from: *const u8, len_bytes: usize) -> usize;
    fn pageferry_fill(to: *mut u8, byte: u8, len_bytes: usize) -> usize;
    static pageferry_copy_at: u8;
    static pageferry_copy_left: u8;
    static pageferry_fill_at: u8;
    static pageferry_fill_left: u8;
}

global_asm!(
    "pageferry_copy:",
    "    mov rcx, rdx",
    "pageferry_copy_at:",
    "    rep movsb",
    "pageferry_copy_left:",
    "    mov rax, rcx",
    "    ret",
    "pageferry_fill:",
    "    mov rcx, rdx",
    "    mov eax, esi",
    "pageferry_fill_at:",
    "    rep stosb",
    "pageferry_fill_left:",
    "    mov rax, rcx",
    "    ret",
);

/// A page fault: the address, and the processor's error code.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) va: u64,
    pub(crate) code: u64,
}

/// Whose memory is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The kernel's alone.
    Kernels,
    /// A program's, on one side.
    Users,
}

impl Whose {
    fn open(self) {
        if self == Whose::Users {
            cpu::open_user();
        }
    }

    fn close(self) {
        if self == Whose::Users {
            cpu::close_user();
        }
    }
}

/// The last fault that a copy of each CPU took: address and code.
static LAST: [[AtomicU64; 2]; CpuSet::MAX_CPUS] =
    [const { [const { AtomicU64::new(0) }; 2] }; CpuSet::MAX_CPUS];

/// Copies upwards; what was copied, and the fault that ended it if that is not all.
///
/// # Safety
/// Wherever the addresses are mapped, reading `from` and writing `to` must be allowed to the caller, and the ranges do
/// not overlap. They need not be mapped.
pub(crate) unsafe fn copy(to: u64, from: u64, len_bytes: usize, whose: Whose) -> Result<(), (usize, Fault)> {
    whose.open();
    // SAFETY: the caller's promise; faults are caught at `pageferry_copy_at`.
    let left = unsafe { pageferry_copy(to as *mut u8, from as *const u8, len_bytes) };
    whose.close();
    done(len_bytes, left)
}

/// Clears.
///
/// # Safety
/// As [`copy`], for `to`.
pub(crate) unsafe fn zero(to: u64, len_bytes: usize, whose: Whose) -> Result<(), (usize, Fault)> {
    whose.open();
    // SAFETY: the caller's promise; faults are caught at `pageferry_fill_at`.
    let left = unsafe { pageferry_fill(to as *mut u8, 0, len_bytes) };
    whose.close();
    done(len_bytes, left)
}

fn done(len_bytes: usize, left: usize) -> Result<(), (usize, Fault)> {
    if left == 0 {
        return Ok(());
    }
    assert!(left <= len_bytes, "a copy of {len_bytes} bytes left {left}");
    // The thread is on the CPU that took the fault: it has not been switched since.
    let [va, code] = &LAST[cpu::number().index()];
    Err((len_bytes - left, Fault { va: va.load(Ordering::Relaxed), code: code.load(Ordering::Relaxed) }))
}

/// Where to go on behind a page fault at `rip`, if a copy of this file caused it; keeps the fault for it.
pub(crate) fn continue_behind(cpu: CpuId, rip: u64, fault: Fault) -> Option<u64> {
    let sites = [
        (&raw const pageferry_copy_at, &raw const pageferry_copy_left),
        (&raw const pageferry_fill_at, &raw const pageferry_fill_left),
    ];
    let (_, behind) = sites.iter().find(|(at, _)| *at as u64 == rip)?;
    let [va, code] = &LAST[cpu.index()];
    va.store(fault.va, Ordering::Relaxed);
    code.store(fault.code, Ordering::Relaxed);
    Some(*behind as u64)
}
