//! What compiled code takes for granted on a hosted amd64 target: functions on memory, and names of an unwinder.
//!
//! The image and the programs in ring 3 are built for the host's target and linked without its libraries; both link
//! this. It holds nothing, takes no lock and cannot fail. To be linked, it is named once:
//! `use pageferry_freestanding as _`.
#![no_std]

use core::arch::global_asm;

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
