//! What the compiler takes for granted on a hosted target: memory functions, and the end of everything;
//! and messages, on the first serial port.
//!
//! # How it ends
//! QEMU's device `isa-debug-exit` takes a code: 0 if all went well, 1 if not. Whatever cannot go on (a panic, an
//! exception, a machine that lacks something) says why in one line, and ends with 1.

use crate::cpu;
use core::arch::global_asm;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};
use uart_16550::{Config, Uart16550Tty};

// Written in assembler, because the compiler would turn a loop in Rust into a call of the very function. The string
// instructions of current processors are as fast as anything for the sizes that matter.
global_asm!(
    ".global memcpy",
    "memcpy:",
    "    mov rax, rdi",
    "    mov rcx, rdx",
    "    rep movsb",
    "    ret",
    ".global memmove",
    "memmove:",
    "    mov rax, rdi",
    "    mov rcx, rdx",
    "    mov r8, rdi",
    "    sub r8, rsi",
    // As an unsigned number the distance is below the length only if the target begins inside the source.
    "    cmp r8, rdx",
    "    jb 2f",
    "    rep movsb",
    "    ret",
    "2:",
    "    lea rdi, [rdi + rdx - 1]",
    "    lea rsi, [rsi + rdx - 1]",
    "    std",
    "    rep movsb",
    "    cld",
    "    ret",
    ".global memset",
    "memset:",
    "    mov r8, rdi",
    "    mov rcx, rdx",
    "    mov eax, esi",
    "    rep stosb",
    "    mov rax, r8",
    "    ret",
    ".global memcmp",
    ".global bcmp",
    "memcmp:",
    "bcmp:",
    "    mov rcx, rdx",
    "    xor eax, eax",
    // With a length of zero nothing is compared, and the flags must say equal.
    "    cmp eax, eax",
    "    repe cmpsb",
    "    je 3f",
    "    movzx eax, byte ptr [rdi - 1]",
    "    movzx ecx, byte ptr [rsi - 1]",
    "    sub eax, ecx",
    "3:",
    "    ret",
    ".global strlen",
    "strlen:",
    "    lea rax, [rdi - 1]",
    "4:",
    "    inc rax",
    "    cmp byte ptr [rax], 0",
    "    jne 4b",
    "    sub rax, rdi",
    "    ret",
);

// The library `alloc` of the stock toolchain is compiled for unwinding, and names these. Panics stop the machine here,
// so nothing ever unwinds.
global_asm!(
    ".global _Unwind_Resume",
    ".global rust_eh_personality",
    "_Unwind_Resume:",
    "rust_eh_personality:",
    "    ud2",
);

/// Where QEMU's device `isa-debug-exit` is told to end the machine. Elsewhere nothing is there that listens.
pub(crate) const EXIT_PORT: u16 = 0xf4;

/// Taken while a message is written, if it can be had soon: a CPU that ends in the middle of one keeps it.
static PRINTING: AtomicBool = AtomicBool::new(false);

/// Writes to the first serial port, if there is one that works.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    let taken = (0..1_000_000).any(|_| !PRINTING.swap(true, Ordering::Acquire));
    // SAFETY: where PCs have their first serial port; nothing else here uses it. It is set up anew for each message,
    // because it may never have been, and a panic may come at any time.
    if let Ok(mut port) = unsafe { Uart16550Tty::new_port(0x3f8, Config::default()) } {
        let _ = port.write_fmt(text);
    }
    if taken {
        PRINTING.store(false, Ordering::Release);
    }
}

/// Ends the machine with this code, or, where that is not possible, stops the CPU.
pub(crate) fn exit(code: u8) -> ! {
    cpu::disable_interrupts();
    cpu::write_port(EXIT_PORT, code);
    cpu::stop()
}

/// Ends the machine with a line that says why, and code 1.
pub(crate) fn fail(why: fmt::Arguments<'_>) -> ! {
    cpu::disable_interrupts();
    print(format_args!("pageferry: {why}\n"));
    exit(1)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(at) => fail(format_args!("panic at {at}: {}", info.message())),
        None => fail(format_args!("panic: {}", info.message())),
    }
}
