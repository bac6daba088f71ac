//! Copies to and from memory that another process may use at the same time.
//!
//! # What it holds
//! Two kinds of stores. *Ordinary* stores bring each line of the destination into this core's cache first.
//! *Non-temporal* stores write whole lines past the caches: cheaper where another core holds the lines,
//! dearer where they are near. [`in_to`] fills memory that this process alone may write; [`out_of`] takes a
//! copy of memory that a peer may be writing: the copy is a value, of whatever bytes were there.
//!
//! # Why assembly
//! A peer that changes bytes while Rust copies them would be a data race, and the compiler may read twice
//! what it may read once. Instructions in an `asm!` block read each byte once, and the compiler knows nothing
//! of where they are from.

use core::mem::MaybeUninit;
pub use pageferry_costs::Stores;

/// Copies `from` to `to`.
///
/// # Safety
/// `to` and the `from.len()` bytes behind it are mapped for writing, nobody else in this process uses them,
/// and they are not part of `from`.
pub(crate) unsafe fn in_to(to: *mut u8, from: &[u8], stores: Stores) {
    // SAFETY: as the caller promises.
    unsafe { copy(to, from.as_ptr(), from.len(), stores) }
}

/// Copies `len` bytes.
///
/// # Safety
/// As for [`in_to`] and [`out_of`]: `to` is this caller's alone, `from` may be written meanwhile.
pub(crate) unsafe fn between(to: *mut u8, from: *const u8, len: usize, stores: Stores) {
    // SAFETY: as the caller promises.
    unsafe { copy(to, from, len, stores) }
}

/// Copies what is at `from` to `to`.
///
/// # Safety
/// `from` and the `to.len()` bytes behind it are mapped for reading, and are not part of `to`. Another
/// process may write them meanwhile.
pub(crate) unsafe fn out_of(to: &mut [MaybeUninit<u8>], from: *const u8, stores: Stores) {
    // SAFETY: as the caller promises; the destination is exclusively ours.
    unsafe { copy(to.as_mut_ptr().cast(), from, to.len(), stores) }
}

/// Makes non-temporal stores that came before visible before any store that comes after.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86_64.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier and nothing else.
    unsafe {
        core::arch::asm!("dmb ishst", options(nostack, preserves_flags));
    }
}

/// Shorter copies are not worth the fence.
const MIN_NON_TEMPORAL: usize = 4096;

unsafe fn copy(to: *mut u8, from: *const u8, len: usize, stores: Stores) {
    if stores == Stores::NonTemporal && len >= MIN_NON_TEMPORAL {
        let head = to.align_offset(LINE).min(len);
        let lines = (len - head) / LINE * LINE;
        // SAFETY: three parts of what the caller has promised; the middle one is whole lines and starts at one.
        unsafe {
            ordinary(to, from, head);
            non_temporal(to.add(head), from.add(head), lines);
            ordinary(to.add(head + lines), from.add(head + lines), len - head - lines);
        }
        fence();
    } else {
        // SAFETY: as the caller promises.
        unsafe { ordinary(to, from, len) }
    }
}

/// Bytes of a line, at least: non-temporal stores come in so many.
const LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
unsafe fn ordinary(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: copies `len` bytes, forward (the flag is clear by the calling convention); both sides are the caller's.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn non_temporal(to: *mut u8, from: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: copies `len` bytes, a multiple of 64; `to` is aligned to 64 and `from` need not be. SSE2 is
    // part of x86_64.
    unsafe {
        core::arch::asm!(
            "2:",
            "prefetcht0 [{from} + 512]",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movntdq [{to}], {a}",
            "movntdq [{to} + 16], {b}",
            "movntdq [{to} + 32], {c}",
            "movntdq [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "sub {len}, 64",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

#[cfg(target_arch = "aarch64")]
unsafe fn ordinary(to: *mut u8, from: *const u8, len: usize) {
    let whole = len / 64 * 64;
    if whole > 0 {
        // SAFETY: copies `whole` bytes, a multiple of 64; unaligned accesses are allowed on normal memory.
        unsafe {
            core::arch::asm!(
                "2:",
                "ldp {a:q}, {b:q}, [{from}], #32",
                "ldp {c:q}, {d:q}, [{from}], #32",
                "stp {a:q}, {b:q}, [{to}], #32",
                "stp {c:q}, {d:q}, [{to}], #32",
                "subs {len}, {len}, #64",
                "b.ne 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                len = inout(reg) whole => _,
                a = out(vreg) _,
                b = out(vreg) _,
                c = out(vreg) _,
                d = out(vreg) _,
                options(nostack),
            );
        }
    }
    for at in whole..len {
        // SAFETY: within the part; volatile, so that each byte is read once.
        unsafe { to.add(at).write(from.add(at).read_volatile()) };
    }
}

#[cfg(target_arch = "aarch64")]
unsafe fn non_temporal(to: *mut u8, from: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: copies `len` bytes, a multiple of 64.
    unsafe {
        core::arch::asm!(
            "2:",
            "ldp {a:q}, {b:q}, [{from}], #32",
            "ldp {c:q}, {d:q}, [{from}], #32",
            "stnp {a:q}, {b:q}, [{to}]",
            "stnp {c:q}, {d:q}, [{to}, #32]",
            "add {to}, {to}, #64",
            "subs {len}, {len}, #64",
            "b.ne 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            a = out(vreg) _,
            b = out(vreg) _,
            c = out(vreg) _,
            d = out(vreg) _,
            options(nostack),
        );
    }
}
