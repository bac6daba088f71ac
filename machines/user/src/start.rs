//! Where a program begins, and where it ends by its own fault.

use crate::{call, exit, say};
use core::panic::PanicInfo;
use pageferry_abi::call::Call;
use pageferry_freestanding as _;

/// Runs `main` with a line, and ends the process.
///
/// # Safety
/// The line is as long as it is said to be, and nobody writes it. Called once, first of all.
pub unsafe fn start(main: fn(&str) -> u64, line: *const u8, len_bytes: usize) -> ! {
    // SAFETY: the caller's promise.
    let line = unsafe { core::slice::from_raw_parts(line, len_bytes) };
    exit(main(core::str::from_utf8(line).unwrap_or_default()))
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    const PANICKED: u64 = 101;
    match info.location() {
        Some(at) => say!("panic at {at}: {}\n", info.message()),
        None => say!("panic: {}\n", info.message()),
    }
    let _ = call::call(Call::Exit, [PANICKED, 0, 0, 0, 0]);
    unreachable!("a process that has ended goes on")
}
