//! Starting the other CPUs: INIT, then a page in real mode (Intel SDM vol. 3, "Multiple-Processor Initialization").
//!
//! One after the other, because they share the page and what is said in it. Each reports when it is off that page, and
//! waits in the pen of [`crate::context`].

use crate::area::Stack;
use crate::start::{TRAMPOLINE, TRAMPOLINE_NUMBER, TRAMPOLINE_ROOT, TRAMPOLINE_STACK, trampoline};
use crate::{apic, cpu};
use core::sync::atomic::{AtomicUsize, Ordering};
use pageferry_hal::Pa;
use pageferry_hal::isa::x86::AMD64_LAYOUT;

/// CPUs that have come through the trampoline.
static ARRIVED: AtomicUsize = AtomicUsize::new(0);

/// Some ten seconds of accesses to a port; a CPU of an emulator on a busy host takes its time.
const PATIENCE: u32 = 10_000_000;

/// The executing CPU, which was started by another, has its own stack and no more needs the page.
pub(crate) fn arrive() {
    ARRIVED.fetch_add(1, Ordering::Release);
}

/// Starts the CPUs with these identifiers of APICs, as numbers 1 and up. Fails with the identifier of one that does
/// not answer. `root` is that of the first page tables.
pub(crate) fn start(ids: &[u32], root: Pa) -> Result<(), u32> {
    let direct = AMD64_LAYOUT.direct_map.expect("amd64 has a direct map");
    let low = |at: u64| (direct + at as usize).0 as *mut u8;
    let code = trampoline();
    // SAFETY: the page is memory of every PC, which the first page tables map, and in which nothing lives: the kernel
    // takes no frames below 1 MB, and what the loader told is copied.
    unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), low(TRAMPOLINE), code.len()) };
    for (number, &id) in (1u64..).zip(ids) {
        let stack = Stack::new().top();
        for (at, value) in
            [(TRAMPOLINE_ROOT, root.0), (TRAMPOLINE_STACK, stack.0), (TRAMPOLINE_NUMBER, number)]
        {
            // SAFETY: as above; the CPU that may read it is not started yet.
            unsafe { low(at).cast::<u64>().write_volatile(value) };
        }
        let here = || ARRIVED.load(Ordering::Acquire) == number as usize;
        apic::send_init(id);
        delay(10_000);
        for _ in 0..2 {
            if !here() {
                apic::send_startup(id, (TRAMPOLINE >> 12) as u8);
                delay(200);
            }
        }
        let mut patience = PATIENCE;
        while !here() {
            patience -= 1;
            if patience == 0 {
                return Err(id);
            }
            delay(1);
        }
    }
    Ok(())
}

/// Waits for about so many microseconds, or longer: an access to this port takes one, on any PC.
fn delay(us: u32) {
    for _ in 0..us {
        cpu::write_port(0x80, 0);
    }
}
