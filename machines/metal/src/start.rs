//! The first instructions: how a loader finds the image, and the way from its entry to Rust code.
//!
//! # Entries
//! *PVH* (QEMU's `-kernel`, Xen) reads an ELF note; *multiboot2* (GRUB) a header at the beginning of the file. Both
//! enter at the same place, in 32-bit protected mode without paging, with the physical address of what they have to
//! tell in EBX; [`crate::handover`] tells them apart. The code up to 64-bit mode lies at its physical address.
//!
//! # The first page tables
//! They map the lowest 4 GB in superpages: at their physical addresses, and in the direct map; and the first of these
//! from the kernel's base on, where the image lies. `pmap` makes the kernel's own later. The first ones stay, for CPUs
//! that are started later.
//!
//! Rust code goes on at `pageferry_boot` and, for the other CPUs, `pageferry_boot_other`, which are in `main.rs`.
//!
//! A processor without long mode is told so on the serial port, and ends: the only failure that is found here.

use crate::runtime::EXIT_PORT;
use core::arch::global_asm;
use pageferry_hal::CpuSet;
use pageferry_hal::isa::x86::{AMD64, AMD64_LAYOUT};

/// What multiboot2's loader has in EAX.
pub(crate) const MULTIBOOT2: u32 = 0x36d7_6289;

/// Bytes of the stack on which CPU 0 begins.
const FIRST_STACK_BYTES: usize = 32 << 10;

#[repr(align(16))]
struct FirstStack {
    _bytes: [u8; FIRST_STACK_BYTES],
}

// Mutable because stacks are written, and only ever through RSP; zeroed, so that it takes no room in the image.
static mut FIRST_STACK: FirstStack = FirstStack { _bytes: [0; FIRST_STACK_BYTES] };

/// Physical memory that the first tables map.
pub(crate) const MAPPED_BYTES: u64 = 4 << 30;
/// Of that, how much appears from the kernel's base on.
pub(crate) const MAPPED_AT_BASE_BYTES: usize = 1 << 30;

const DIRECT_SLOT: usize =
    AMD64.index(AMD64_LAYOUT.direct_map.expect("amd64 has a direct map"), AMD64.levels - 1);
const KERNEL_SLOT: usize = AMD64.index(AMD64_LAYOUT.kernel_base, AMD64.levels - 1);
const KERNEL_GB: usize = AMD64.index(AMD64_LAYOUT.kernel_base, AMD64.levels - 2);

/// Control bits for long mode and the SSE instructions that compiled code uses: CR4.PAE, OSFXSR, OSXMMEXCPT.
const CR4: u32 = 1 << 5 | 1 << 9 | 1 << 10;
/// CR0.PG, WP, MP, PE; without EM and TS.
const CR0: u32 = 1 << 31 | 1 << 16 | 1 << 1 | 1;
const EFER: u32 = 0xc000_0080;
const EFER_LONG_MODE: u32 = 1 << 8;

global_asm!(
    // The header: magic, architecture (i386), length, checksum; and the end of its tags.
    ".pushsection .start.header, \"a\", @progbits",
    ".align 8",
    "2:",
    "    .long 0xe85250d6, 0, 3f - 2b, -(0xe85250d6 + 3f - 2b)",
    "    .long 0, 8",
    "3:",
    ".popsection",
    // The note: name, size of what it says, type 18 (the physical address of a 32-bit entry).
    ".pushsection .note.pvh, \"a\", @note",
    ".align 4",
    "    .long 4, 8, 18",
    "    .asciz \"Xen\"",
    "    .quad pageferry_start",
    ".popsection",

    ".pushsection .start.code, \"awx\", @progbits",
    ".code32",
    ".global pageferry_start",
    "pageferry_start:",
    "    cli",
    "    cld",
    "    mov esp, offset pageferry_first_stack_end",
    "    mov edi, eax",
    "    mov esi, ebx",
    // Whether CPUID is there: a flag can be changed.
    "    pushfd",
    "    pop eax",
    "    mov ecx, eax",
    "    xor eax, 1 << 21",
    "    push eax",
    "    popfd",
    "    pushfd",
    "    pop eax",
    "    cmp eax, ecx",
    "    je 8f",
    "    mov eax, 0x80000000",
    "    cpuid",
    "    cmp eax, 0x80000001",
    "    jb 8f",
    "    mov eax, 0x80000001",
    "    cpuid",
    "    bt edx, 29",
    "    jnc 8f",
    // The tables, which are zeros. Superpages first: 2048 of them; present, writable.
    "    mov eax, 0x83",
    "    mov ebx, offset pageferry_first_superpages",
    "    mov ecx, 2048",
    "4:",
    "    mov [ebx], eax",
    "    add ebx, 8",
    "    add eax, 0x200000",
    "    loop 4b",
    "    mov eax, offset pageferry_first_superpages + 3",
    "    mov [pageferry_first_gigabytes], eax",
    "    mov [pageferry_first_kernel + 8 * {kernel_gb}], eax",
    "    add eax, 0x1000",
    "    mov [pageferry_first_gigabytes + 8], eax",
    "    add eax, 0x1000",
    "    mov [pageferry_first_gigabytes + 16], eax",
    "    add eax, 0x1000",
    "    mov [pageferry_first_gigabytes + 24], eax",
    "    mov eax, offset pageferry_first_gigabytes + 3",
    "    mov [pageferry_first_root], eax",
    "    mov [pageferry_first_root + 8 * {direct_slot}], eax",
    "    mov eax, offset pageferry_first_kernel + 3",
    "    mov [pageferry_first_root + 8 * {kernel_slot}], eax",
    // Long mode.
    "    mov eax, cr4",
    "    or eax, {cr4}",
    "    mov cr4, eax",
    "    mov eax, offset pageferry_first_root",
    "    mov cr3, eax",
    "    mov ecx, {efer}",
    "    rdmsr",
    "    or eax, {long_mode}",
    "    wrmsr",
    "    mov eax, {cr0}",
    "    mov cr0, eax",
    "    lgdt [pageferry_first_gdt_pointer]",
    "    push 8",
    "    mov eax, offset pageferry_in_long_mode",
    "    push eax",
    "    retf",
    // No long mode: a line on the first serial port, and the end.
    "8:",
    "    mov esi, offset pageferry_no_long_mode",
    "5:",
    "    mov dx, 0x3fd",
    "    in al, dx",
    "    test al, 0x20",
    "    jz 5b",
    "    lodsb",
    "    test al, al",
    "    jz 7f",
    "    mov dx, 0x3f8",
    "    out dx, al",
    "    jmp 5b",
    "7:",
    "    mov al, 1",
    "    out {exit_port}, al",
    "    cli",
    "    hlt",
    "    jmp 7b",
    "pageferry_no_long_mode: .asciz \"pageferry: this processor has no 64-bit mode\\n\"",

    ".code64",
    "pageferry_in_long_mode:",
    "    mov eax, 0x10",
    "    mov ds, eax",
    "    mov es, eax",
    "    mov ss, eax",
    "    xor eax, eax",
    "    mov fs, eax",
    "    mov gs, eax",
    "    movabs rax, offset {stack} + {stack_bytes}",
    "    mov rsp, rax",
    "    xor ebp, ebp",
    "    mov edi, edi",
    "    mov esi, esi",
    "    movabs rax, offset pageferry_boot",
    "    call rax",
    "    ud2",
    ".align 8",
    // Flat segments: 64-bit code, data.
    "pageferry_first_gdt:",
    "    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff",
    "pageferry_first_gdt_pointer:",
    "    .word 23",
    "    .quad pageferry_first_gdt",
    "    .skip 64",
    "pageferry_first_stack_end:",
    ".popsection",

    ".pushsection .start_tables, \"aw\", @nobits",
    ".align 4096",
    "pageferry_first_root: .skip 4096",
    "pageferry_first_gigabytes: .skip 4096",
    "pageferry_first_kernel: .skip 4096",
    "pageferry_first_superpages: .skip 4 * 4096",
    ".popsection",
    kernel_gb = const KERNEL_GB,
    direct_slot = const DIRECT_SLOT,
    kernel_slot = const KERNEL_SLOT,
    cr4 = const CR4,
    cr0 = const CR0,
    efer = const EFER,
    long_mode = const EFER_LONG_MODE,
    exit_port = const EXIT_PORT,
    stack = sym FIRST_STACK,
    stack_bytes = const FIRST_STACK_BYTES,
);

/// Where the other CPUs begin, in real mode: a page that they can name, below 1 MB, which is in nobody's use.
pub(crate) const TRAMPOLINE: u64 = 0x8000;
/// What the other CPUs are told, at the end of that page: the root of the first page tables, their stack, their number.
pub(crate) const TRAMPOLINE_ROOT: u64 = 0x8fe0;
/// See [`TRAMPOLINE_ROOT`].
pub(crate) const TRAMPOLINE_STACK: u64 = 0x8fe8;
/// See [`TRAMPOLINE_ROOT`].
pub(crate) const TRAMPOLINE_NUMBER: u64 = 0x8ff0;

unsafe extern "C" {
    static pageferry_trampoline: u8;
    static pageferry_trampoline_end: u8;
}

// From real mode into long mode in one step. Addresses are those of the page that this is copied to. Two instructions
// are spelt in bytes, because assemblers do not agree how a 32-bit form is asked for in 16-bit code.
global_asm!(
    ".pushsection .rodata.trampoline, \"a\", @progbits",
    ".code16",
    ".global pageferry_trampoline, pageferry_trampoline_end",
    "pageferry_trampoline:",
    "    cli",
    "    cld",
    "    xor ax, ax",
    "    mov ds, ax",
    // lgdt, with 32 bits of base.
    "    .byte 0x66, 0x0f, 0x01, 0x16",
    "    .word {at} + (4f - pageferry_trampoline)",
    "    mov eax, {cr4}",
    "    mov cr4, eax",
    "    mov eax, [{root}]",
    "    mov cr3, eax",
    "    mov ecx, {efer}",
    "    mov eax, {long_mode}",
    "    xor edx, edx",
    "    wrmsr",
    "    mov eax, {cr0}",
    "    mov cr0, eax",
    // A far jump to segment 8, with 32 bits of offset.
    "    .byte 0x66, 0xea",
    "    .long {at} + (2f - pageferry_trampoline)",
    "    .word 8",
    ".code64",
    "2:",
    "    mov eax, 0x10",
    "    mov ds, eax",
    "    mov es, eax",
    "    mov ss, eax",
    "    xor eax, eax",
    "    mov fs, eax",
    "    mov gs, eax",
    "    mov rsp, [{stack}]",
    "    mov rdi, [{number}]",
    "    xor ebp, ebp",
    "    movabs rax, offset pageferry_boot_other",
    "    call rax",
    "    ud2",
    ".align 8",
    "3:",
    "    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff",
    "4:",
    "    .word 23",
    "    .long {at} + (3b - pageferry_trampoline)",
    "pageferry_trampoline_end:",
    ".popsection",
    at = const TRAMPOLINE,
    root = const TRAMPOLINE_ROOT,
    stack = const TRAMPOLINE_STACK,
    number = const TRAMPOLINE_NUMBER,
    cr4 = const CR4,
    cr0 = const CR0,
    efer = const EFER,
    long_mode = const EFER_LONG_MODE,
);

/// The code of the trampoline, to be copied to [`TRAMPOLINE`].
pub(crate) fn trampoline() -> &'static [u8] {
    let (start, end) = (&raw const pageferry_trampoline, &raw const pageferry_trampoline_end);
    // SAFETY: the two symbols enclose the code above, in memory that nobody writes.
    unsafe { core::slice::from_raw_parts(start, end as usize - start as usize) }
}

const _: () = assert!(CpuSet::MAX_CPUS <= 256, "CPUs have numbers of a byte");
