//! What the compiler takes for granted on a hosted target: memory functions, and the end of everything, a panic;
//! and messages, on the first serial port.

use crate::cpu;
use core::arch::global_asm;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
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

/// Writes to the first serial port, if there is one that works.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    // SAFETY: where PCs have their first serial port; nothing else here uses it. It is set up anew for each message,
    // because it may never have been, and a panic may come at any time.
    if let Ok(mut port) = unsafe { Uart16550Tty::new_port(0x3f8, Config::default()) } {
        let _ = port.write_fmt(text);
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    cpu::disable_interrupts();
    print(format_args!("\npageferry: {info}\n"));
    cpu::stop()
}
