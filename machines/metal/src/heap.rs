//! The allocator: `talc` on what the arena has behind the image, under one spin lock. The handler of the timer wakes
//! threads, and run queues grow; so the lock masks interrupts.

use crate::cpu;
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

/// What the loader maps from the kernel's base on, and where the heap must end until the kernel has its own page
/// tables.
const MAPPED_BYTES: usize = 1 << 30;

/// Takes the memory from the end of the image to the end of the arena. Called once, first of all.
pub(crate) fn give_rest_of_arena(arena_bytes: usize) {
    assert!(arena_bytes <= MAPPED_BYTES, "the loader maps too little for an arena of {arena_bytes} bytes");
    let start = &raw mut _end;
    let end = AMD64_LAYOUT.kernel_base.0 as usize + arena_bytes;
    let len_bytes = end.checked_sub(start as usize).expect("the image fills the arena");
    // SAFETY: this memory is mapped, by the loader and later by `pmap`, and nobody's: it begins behind the image, and
    // the frames behind the arena are the first that the kernel takes. That a heap is given once is the caller's part.
    let heap = unsafe { HEAP.lock().claim(start, len_bytes) };
    assert!(heap.is_some(), "the arena has no room for a heap");
}
