//! The way into ring 3 and back: [`run`] is a call that runs a program until it does something that is not its own.
//!
//! The thread of a process calls [`run`] with the program's [`Registers`]. They are loaded, and the processor goes to
//! ring 3. Whatever brings it back (`syscall`, an interrupt, an exception) puts the registers where they were, and
//! *returns* from [`run`], on the thread's own stack. So a thread whose program was interrupted is a thread in a call,
//! like any other; it can sleep, and go on elsewhere. Between two runs nothing of the program is in the processor, but
//! for data segments, which lead nowhere.
//!
//! # What each CPU keeps
//! Behind GS: the stack pointer to return to, and where the registers go. Both are valid while the CPU is in ring 3; it
//! came there with interrupts off, so both are those of the thread that it runs. In ring 3 GS is the program's.
//!
//! # What can fail
//! A program, and that is its own fault: [`Exit::Fault`] and [`Exit::Exception`] say in what way.

use crate::interrupt::{PAGE_FAULT, USER_CODE_SELECTOR, USER_DATA_SELECTOR, take_interrupt};
use crate::{apic, cpu};
use core::arch::global_asm;
use core::mem::offset_of;
use pageferry_hal::{Access, CopyFault, Mode, Trap, TrapKind, Va};

/// The registers of a program; of the floating-point ones all.
#[derive(Clone)]
#[repr(C, align(16))]
pub(crate) struct Registers {
    floating: [u8; 512],
    pub(crate) rax: u64,
    rbx: u64,
    rcx: u64,
    pub(crate) rdx: u64,
    pub(crate) rsi: u64,
    pub(crate) rdi: u64,
    rbp: u64,
    rsp: u64,
    pub(crate) r8: u64,
    r9: u64,
    pub(crate) r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    pub(crate) rip: u64,
    flags: u64,
    vector: u64,
    code: u64,
}

/// The vector of what is none: a system call.
const CALL: u64 = 256;

/// Interrupts are on, and nothing else.
const FIRST_FLAGS: u64 = 0x202;

impl Registers {
    /// Those of a program that begins at `entry` with this stack pointer, and finds these two numbers in RDI and RSI.
    pub(crate) fn new(entry: Va, stack: Va, arguments: [u64; 2]) -> Registers {
        let mut floating = [0; 512];
        // As after FNINIT, with all exceptions of SSE masked: control words of x87 and SSE.
        floating[..2].copy_from_slice(&0x037f_u16.to_le_bytes());
        floating[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        let [rdi, rsi] = arguments;
        Registers {
            floating,
            rax: 0,
            rbx: 0,
            rcx: 0,
            rdx: 0,
            rsi,
            rdi,
            rbp: 0,
            rsp: stack.0,
            r8: 0,
            r9: 0,
            r10: 0,
            r11: 0,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            rip: entry.0,
            flags: FIRST_FLAGS,
            vector: 0,
            code: 0,
        }
    }
}

/// Why a program has stopped.
pub(crate) enum Exit {
    /// It makes a system call.
    Call,
    /// An interrupt came, and was handled.
    Interrupt,
    /// The processor has refused an access.
    Fault(CopyFault),
    /// The processor has refused an instruction: vector and code.
    Exception(u64, u64),
}

unsafe extern "C" {
    fn pageferry_run_user(registers: *mut Registers);
}

// The places behind GS are those of `cpu::Local`: 8 the stack, 16 the registers, 24 scratch.
global_asm!(
    // All but RAX, RSP, RIP and the flags.
    ".macro pageferry_keep",
    "    mov [rax + {rbx}], rbx",
    "    mov [rax + {rcx}], rcx",
    "    mov [rax + {rdx}], rdx",
    "    mov [rax + {rsi}], rsi",
    "    mov [rax + {rdi}], rdi",
    "    mov [rax + {rbp}], rbp",
    "    mov [rax + {r8}], r8",
    "    mov [rax + {r9}], r9",
    "    mov [rax + {r10}], r10",
    "    mov [rax + {r11}], r11",
    "    mov [rax + {r12}], r12",
    "    mov [rax + {r13}], r13",
    "    mov [rax + {r14}], r14",
    "    mov [rax + {r15}], r15",
    ".endm",

    ".global pageferry_run_user, pageferry_from_user, pageferry_on_syscall",
    // Interrupts are off.
    "pageferry_run_user:",
    "    push rbp",
    "    push rbx",
    "    push r12",
    "    push r13",
    "    push r14",
    "    push r15",
    "    mov gs:[8], rsp",
    "    mov gs:[16], rdi",
    "    fxrstor64 [rdi]",
    "    push {data}",
    "    push qword ptr [rdi + {rsp}]",
    "    push qword ptr [rdi + {flags}]",
    "    push {code}",
    "    push qword ptr [rdi + {rip}]",
    "    mov rax, [rdi + {rax}]",
    "    mov rbx, [rdi + {rbx}]",
    "    mov rcx, [rdi + {rcx}]",
    "    mov rdx, [rdi + {rdx}]",
    "    mov rsi, [rdi + {rsi}]",
    "    mov rbp, [rdi + {rbp}]",
    "    mov r8, [rdi + {r8}]",
    "    mov r9, [rdi + {r9}]",
    "    mov r10, [rdi + {r10}]",
    "    mov r11, [rdi + {r11}]",
    "    mov r12, [rdi + {r12}]",
    "    mov r13, [rdi + {r13}]",
    "    mov r14, [rdi + {r14}]",
    "    mov r15, [rdi + {r15}]",
    "    mov rdi, [rdi + {rdi}]",
    "    swapgs",
    "    iretq",

    // On the stack of an interrupt: vector, code, and what the processor has pushed.
    "pageferry_from_user:",
    "    swapgs",
    "    push rax",
    "    mov rax, gs:[16]",
    "    pageferry_keep",
    "    pop qword ptr [rax + {rax}]",
    "    pop qword ptr [rax + {vector}]",
    "    pop qword ptr [rax + {fault_code}]",
    "    pop qword ptr [rax + {rip}]",
    "    add rsp, 8",
    "    pop qword ptr [rax + {flags}]",
    "    pop qword ptr [rax + {rsp}]",
    "    jmp 2f",

    // On the program's own stack, which is not touched.
    "pageferry_on_syscall:",
    "    swapgs",
    "    mov gs:[24], rax",
    "    mov rax, gs:[16]",
    "    mov [rax + {rsp}], rsp",
    "    mov [rax + {rip}], rcx",
    "    mov [rax + {flags}], r11",
    "    pageferry_keep",
    "    mov rcx, gs:[24]",
    "    mov [rax + {rax}], rcx",
    "    mov qword ptr [rax + {vector}], {call}",

    "2:",
    "    mov rsp, gs:[8]",
    "    fxsave64 [rax]",
    // The kernel's code takes for granted that nothing it does with these registers is an exception.
    "    push 0x1f80",
    "    ldmxcsr [rsp]",
    "    add rsp, 8",
    "    cld",
    "    pop r15",
    "    pop r14",
    "    pop r13",
    "    pop r12",
    "    pop rbx",
    "    pop rbp",
    "    ret",
    data = const USER_DATA_SELECTOR,
    code = const USER_CODE_SELECTOR,
    call = const CALL,
    rax = const offset_of!(Registers, rax),
    rbx = const offset_of!(Registers, rbx),
    rcx = const offset_of!(Registers, rcx),
    rdx = const offset_of!(Registers, rdx),
    rsi = const offset_of!(Registers, rsi),
    rdi = const offset_of!(Registers, rdi),
    rbp = const offset_of!(Registers, rbp),
    rsp = const offset_of!(Registers, rsp),
    r8 = const offset_of!(Registers, r8),
    r9 = const offset_of!(Registers, r9),
    r10 = const offset_of!(Registers, r10),
    r11 = const offset_of!(Registers, r11),
    r12 = const offset_of!(Registers, r12),
    r13 = const offset_of!(Registers, r13),
    r14 = const offset_of!(Registers, r14),
    r15 = const offset_of!(Registers, r15),
    rip = const offset_of!(Registers, rip),
    flags = const offset_of!(Registers, flags),
    vector = const offset_of!(Registers, vector),
    fault_code = const offset_of!(Registers, code),
);

/// Runs the program until it stops. Interrupts are on afterwards.
pub(crate) fn run(registers: &mut Registers) -> Exit {
    const TIMER: u64 = apic::vector::TIMER as u64;
    const SHOOTDOWN: u64 = apic::vector::SHOOTDOWN as u64;
    const RESCHEDULE: u64 = apic::vector::RESCHEDULE as u64;
    cpu::disable_interrupts();
    // SAFETY: the registers were made by [`Registers::new`] or left by a program, so with them the processor is in ring
    // 3, with interrupts on, at an address of user space or at one where it faults there: `exec` begins nowhere else,
    // and a program gets nowhere else by itself. It comes back with what a call preserves as it was, and what else it
    // has changed is memory of its own.
    unsafe { pageferry_run_user(registers) };
    cpu::close_user();
    let (vector, code) = (registers.vector, registers.code);
    let exit = match vector {
        CALL => Exit::Call,
        _ if vector == PAGE_FAULT as u64 => {
            Exit::Fault(CopyFault { done_bytes: 0, trap: trap(Va(cpu::fault_address()), code) })
        }
        TIMER | SHOOTDOWN | RESCHEDULE => {
            take_interrupt(vector as u8);
            Exit::Interrupt
        }
        _ => Exit::Exception(vector, code),
    };
    cpu::enable_interrupts();
    exit
}

/// What a page fault with this code was.
fn trap(va: Va, code: u64) -> Trap {
    const PRESENT: u64 = 1 << 0;
    const WRITE: u64 = 1 << 1;
    const FETCH: u64 = 1 << 4;
    let access = match code {
        _ if code & FETCH != 0 => Access::Fetch,
        _ if code & WRITE != 0 => Access::Write,
        _ => Access::Read,
    };
    let kind = if code & PRESENT == 0 { TrapKind::NotPresent } else { TrapKind::Protection };
    Trap { va, access, mode: Mode::User, kind }
}
