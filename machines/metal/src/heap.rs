//! The allocator: `talc` on what is the image's and behind it, under one spin lock. The handler of the timer wakes
//! threads, and run queues grow; so the lock masks interrupts.

use crate::cpu;
use crate::start::MAPPED_AT_BASE_BYTES;
use core::sync::atomic::{AtomicBool, Ordering};
use lock_api::RawMutex;
use pageferry_hal::isa::x86::AMD64_LAYOUT;
use talc::TalcLock;
use talc::source::Manual;

#[global_allocator]
static HEAP: TalcLock<Masking, Manual> = TalcLock::new(Manual);

/// A spin lock with interrupts off while it is held.
struct Masking {
    spin: spin::Mutex<()>,
    /// Interrupts were on when the holder took it. Written and read by the holder alone.
    restores: AtomicBool,
}

// SAFETY: `spin` excludes; what is beside it is its holder's own.
unsafe impl RawMutex for Masking {
    // A lock is made by this, and never shared: that is what the constant is for.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Masking =
        Masking { spin: <spin::Mutex<()> as RawMutex>::INIT, restores: AtomicBool::new(false) };
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {
            cpu::pause();
        }
    }

    fn try_lock(&self) -> bool {
        let restores = cpu::interrupts_are_on();
        if restores {
            cpu::disable_interrupts();
        }
        let taken = RawMutex::try_lock(&self.spin);
        if taken {
            self.restores.store(restores, Ordering::Relaxed);
        } else if restores {
            cpu::enable_interrupts();
        }
        taken
    }

    unsafe fn unlock(&self) {
        let restores = self.restores.load(Ordering::Relaxed);
        // SAFETY: the caller holds it.
        unsafe { RawMutex::unlock(&self.spin) };
        if restores {
            cpu::enable_interrupts();
        }
    }
}

unsafe extern "C" {
    /// Where the image ends, bss included: the linker defines it.
    static mut _end: u8;
}

/// The physical address behind the image.
pub(crate) fn image_end() -> u64 {
    (&raw const _end) as u64 - AMD64_LAYOUT.kernel_base.0
}

/// Takes the memory from `start`, a physical address behind the image, to `end`, where that of structures begins.
/// Called once, first of all.
pub(crate) fn give(start: u64, end: usize) {
    assert!(start >= image_end() && end <= MAPPED_AT_BASE_BYTES);
    let len_bytes = (end as u64).checked_sub(start).expect("there is room for a heap");
    let start = (AMD64_LAYOUT.kernel_base + start as usize).0 as *mut u8;
    // SAFETY: this memory is mapped, by the first page tables and later by `pmap`, and nobody's: it begins behind the
    // image, and structures and frames come behind it. That a heap is given once is the caller's part.
    let heap = unsafe { HEAP.lock().claim(start, len_bytes as usize) };
    assert!(heap.is_some(), "there is no room for a heap");
}
