//! Descriptor tables of each CPU, and the entry code of interrupts.
//!
//! Handlers run on stacks of their own (IST): code for the hosted target keeps data below its stack pointer (the red
//! zone), where an interrupt without a stack switch would write. What interrupts a program leaves them at once, for the
//! stack of its thread. They run with interrupts off, so one stack for each
//! kind does. A page fault may come while a handler runs, never the other way round. Exceptions that nobody expects end
//! the machine with a line that says which and where; a double fault has a stack of its own, for the other one may be
//! what is broken.

use crate::apic::{self, vector};
use crate::area::{self, Stack};
use crate::copy::{self, Fault};
use crate::cpu;
use crate::runtime::fail;
use alloc::boxed::Box;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use pageferry_hal::{CpuId, CpuSet, Interrupt};

/// Vectors of exceptions.
const DOUBLE_FAULT: usize = 8;
pub(crate) const PAGE_FAULT: usize = 14;

// `syscall` wants data behind code. The task's descriptor takes two places.
const CODE_SELECTOR: u16 = 0x08;
const DATA_SELECTOR: u16 = 0x10;
const TASK_SELECTOR: u16 = 0x18;
/// Segments of programs, with their privilege.
pub(crate) const USER_DATA_SELECTOR: u16 = 0x28 | 3;
pub(crate) const USER_CODE_SELECTOR: u16 = 0x30 | 3;

/// Interrupt stacks by their number in a gate.
#[derive(Clone, Copy)]
enum Ist {
    Interrupt = 1,
    Fault = 2,
    Exception = 3,
    Double = 4,
}

impl Ist {
    const ALL: [Ist; 4] = [Ist::Interrupt, Ist::Fault, Ist::Exception, Ist::Double];
}

/// What a CPU's segment registers lead to. All in atomics: written by its CPU, and read by the processor.
struct Segments {
    gdt: [AtomicU64; 7],
    /// The task-state segment, in words; only its stack table matters in long mode.
    task: [AtomicU32; 26],
}

/// Words of the task-state segment before the stack table.
const FIRST_IST: usize = 9;

static SEGMENTS: [Segments; CpuSet::MAX_CPUS] =
    [const { Segments { gdt: [const { AtomicU64::new(0) }; 7], task: [const { AtomicU32::new(0) }; 26] } };
        CpuSet::MAX_CPUS];

/// The gates, which all CPUs share; written once, by CPU 0.
static GATES: [[AtomicU64; 2]; 256] = [const { [const { AtomicU64::new(0) }; 2] }; 256];

/// The stack of all exceptions until there are others.
const EARLY_STACK_BYTES: usize = 16 << 10;

#[repr(align(16))]
struct EarlyStack {
    _bytes: [u8; EARLY_STACK_BYTES],
}

// Mutable because stacks are written, and only ever through RSP.
static mut EARLY_STACK: EarlyStack = EarlyStack { _bytes: [0; EARLY_STACK_BYTES] };

#[repr(C, packed)]
struct TablePointer {
    limit: u16,
    base: u64,
}

type Handler = Box<dyn Fn(Interrupt)>;

/// What is called for interrupts; set once, never freed.
static HANDLER: AtomicPtr<Handler> = AtomicPtr::new(core::ptr::null_mut());

unsafe extern "C" {
    fn pageferry_on_timer();
    fn pageferry_on_shootdown();
    fn pageferry_on_reschedule();
    fn pageferry_on_spurious();
    fn pageferry_on_fault();
    /// In `ring3`.
    fn pageferry_on_syscall();
    /// 256 entries of 16 bytes.
    fn pageferry_exceptions();
}

// What comes from ring 3 goes another way, with vector and code on the stack: `ring3` has it. Of what comes from the
// kernel, all that a call may destroy is kept: nine registers, RBP to find the way back, and the floating-point state,
// which the handlers' Rust code may use for moves. R12 to R15 and RBX are kept by the callee.
global_asm!(
    ".macro pageferry_enter",
    "    push rax",
    "    push rcx",
    "    push rdx",
    "    push rsi",
    "    push rdi",
    "    push r8",
    "    push r9",
    "    push r10",
    "    push r11",
    "    push rbp",
    "    mov rbp, rsp",
    "    sub rsp, 512",
    "    and rsp, -16",
    "    fxsave64 [rsp]",
    "    cld",
    ".endm",
    ".macro pageferry_leave",
    "    fxrstor64 [rsp]",
    "    mov rsp, rbp",
    "    pop rbp",
    "    pop r11",
    "    pop r10",
    "    pop r9",
    "    pop r8",
    "    pop rdi",
    "    pop rsi",
    "    pop rdx",
    "    pop rcx",
    "    pop rax",
    ".endm",
    ".macro pageferry_on name, vector",
    "pageferry_on_\\name:",
    "    test byte ptr [rsp + 8], 3",
    "    jz 2f",
    "    push 0",
    "    push \\vector",
    "    jmp pageferry_from_user",
    "2:",
    "    pageferry_enter",
    "    mov edi, \\vector",
    "    call {interrupt}",
    "    pageferry_leave",
    "    iretq",
    ".endm",
    "pageferry_on timer, {timer}",
    "pageferry_on shootdown, {shootdown}",
    "pageferry_on reschedule, {reschedule}",
    "pageferry_on_spurious:",
    "    iretq",
    "pageferry_on_fault:",
    "    test byte ptr [rsp + 16], 3",
    "    jz 2f",
    "    push {page_fault}",
    "    jmp pageferry_from_user",
    "2:",
    "    pageferry_enter",
    // Above the ten saved registers: error code, then the frame.
    "    lea rdi, [rbp + 80]",
    "    call {fault}",
    "    pageferry_leave",
    "    add rsp, 8",
    "    iretq",
    // For each vector, an entry of 16 bytes that pushes its number, below the error code; or below a zero, where the
    // processor pushes none. The pushes are spelt in bytes, for a symbol would be taken for an address.
    ".set pageferry_vector, 0",
    ".align 16",
    "pageferry_exceptions:",
    ".rept 256",
    "    .align 16",
    "    .if pageferry_vector > 31 || (({with_code} >> (pageferry_vector & 31)) & 1) == 0",
    "    .byte 0x6a, 0",
    "    .endif",
    "    .byte 0x68",
    "    .long pageferry_vector",
    "    jmp 3f",
    "    .set pageferry_vector, pageferry_vector + 1",
    ".endr",
    "3:",
    "    test byte ptr [rsp + 24], 3",
    "    jnz pageferry_from_user",
    "    cld",
    "    mov rdi, rsp",
    "    and rsp, -16",
    "    call {exception}",
    "    ud2",
    timer = const vector::TIMER,
    shootdown = const vector::SHOOTDOWN,
    reschedule = const vector::RESCHEDULE,
    interrupt = sym take_interrupt,
    fault = sym take_fault,
    exception = sym take_exception,
    with_code = const WITH_CODE,
    page_fault = const PAGE_FAULT,
);

/// Exceptions for which the processor pushes a code, a bit each: 8, 10 to 14, 17, 21, 29, 30.
const WITH_CODE: u32 = 0x6022_7d00;

/// What the processor pushes for an exception with a code.
#[repr(C)]
struct Frame {
    code: u64,
    rip: u64,
    _cs: u64,
    _flags: u64,
    rsp: u64,
}

/// The same below the vector.
#[repr(C)]
struct ExceptionFrame {
    vector: u64,
    frame: Frame,
}

/// Does what an interrupt is for; interrupts are off.
pub(crate) extern "C" fn take_interrupt(vector: u8) {
    let interrupt = match vector {
        vector::SHOOTDOWN => Some(Interrupt::Shootdown),
        vector::RESCHEDULE => Some(Interrupt::Reschedule),
        _ => apic::timer_is_due().then_some(Interrupt::Timer),
    };
    // SAFETY: the pointer is null or was leaked by `set_handler`, so the handler lives for ever.
    let handler = unsafe { HANDLER.load(Ordering::Acquire).as_ref() };
    let handler = handler.expect("an interrupt before a handler was set");
    interrupt.into_iter().for_each(handler);
    apic::end_of_interrupt();
}

extern "C" fn take_fault(frame: &mut Frame) {
    let fault = Fault { va: cpu::fault_address(), code: frame.code };
    match copy::continue_behind(cpu::number(), frame.rip, fault) {
        Some(rip) => frame.rip = rip,
        None => fail_at(PAGE_FAULT as u64, frame),
    }
}

extern "C" fn take_exception(frame: &ExceptionFrame) -> ! {
    fail_at(frame.vector, &frame.frame)
}

/// What an exception is called.
pub(crate) fn name(vector: u64) -> &'static str {
    NAMES.get(vector as usize).copied().unwrap_or("interrupt")
}

/// What the processor's manuals call the vectors below 32.
const NAMES: [&str; 22] = [
    "divide error",
    "debug",
    "non-maskable interrupt",
    "breakpoint",
    "overflow",
    "bound",
    "undefined instruction",
    "no coprocessor",
    "double fault",
    "coprocessor overrun",
    "invalid task segment",
    "segment not present",
    "stack segment",
    "general protection",
    "page fault",
    "reserved",
    "x87 error",
    "alignment check",
    "machine check",
    "SIMD error",
    "virtualisation",
    "control protection",
];

/// Ends the machine: an exception that nobody expects.
fn fail_at(vector: u64, frame: &Frame) -> ! {
    let (cr2, cpu) = (cpu::fault_address(), cpu::number());
    let name = name(vector);
    let guard = matches!(vector, 8 | 14) && area::is_guard(cr2);
    fail(format_args!(
        "exception {vector} ({name}) on {cpu:?}: code {:#x}, rip {:#x}, rsp {:#x}, cr2 {cr2:#x}{}",
        frame.code,
        frame.rip,
        frame.rsp,
        if guard { ": a kernel stack is used up" } else { "" },
    ))
}

/// Sets what is called for interrupts, and lets them come.
pub(crate) fn set_handler(handler: Handler) {
    let old = HANDLER.swap(Box::into_raw(Box::new(handler)), Ordering::AcqRel);
    assert!(old.is_null(), "the interrupt handler is set once");
    cpu::enable_interrupts();
}

/// Sends `interrupt` to the CPU with this APIC identifier.
pub(crate) fn send(apic_id: u32, interrupt: Interrupt) {
    let vector = match interrupt {
        Interrupt::Shootdown => vector::SHOOTDOWN,
        Interrupt::Reschedule => vector::RESCHEDULE,
        Interrupt::Timer | Interrupt::Device(_) => panic!("CPUs do not send each other {interrupt:?}"),
    };
    apic::send(apic_id, vector);
}

/// Fills the gates, and lets CPU 0 take exceptions, which end the machine. Called first of all; needs no memory.
pub(crate) fn init_early() {
    type Entry = unsafe extern "C" fn();
    let set = |vector: usize, at: u64, ist: Ist| {
        let low = at & 0xffff
            | u64::from(CODE_SELECTOR) << 16
            | (ist as u64) << 32
            | 0x8e << 40
            | (at >> 16 & 0xffff) << 48;
        GATES[vector][0].store(low, Ordering::Relaxed);
        GATES[vector][1].store(at >> 32, Ordering::Relaxed);
    };
    let exceptions = pageferry_exceptions as Entry as usize as u64;
    for vector in 0..GATES.len() {
        let ist = if vector == DOUBLE_FAULT { Ist::Double } else { Ist::Exception };
        set(vector, exceptions + 16 * vector as u64, ist);
    }
    set(PAGE_FAULT, pageferry_on_fault as Entry as usize as u64, Ist::Fault);
    for (vector, entry) in [
        (vector::TIMER, pageferry_on_timer as Entry),
        (vector::SHOOTDOWN, pageferry_on_shootdown),
        (vector::RESCHEDULE, pageferry_on_reschedule),
        (vector::SPURIOUS, pageferry_on_spurious),
    ] {
        set(usize::from(vector), entry as usize as u64, Ist::Interrupt);
    }
    let stack = (&raw const EARLY_STACK) as u64 + EARLY_STACK_BYTES as u64;
    load_tables(CpuId(0), [stack; Ist::ALL.len()]);
}

/// Sets the executing CPU up as number `number`: descriptor tables, stacks for handlers, control registers, APIC. Its
/// interrupts come only when [`cpu::enable_interrupts`] says so.
pub(crate) fn init_cpu(number: CpuId) {
    load_tables(number, Ist::ALL.map(|_| Stack::new().top().0));
    cpu::init(pageferry_on_syscall as unsafe extern "C" fn() as usize as u64, CODE_SELECTOR);
    apic::init();
}

/// Makes an exception whose own handling fails.
pub(crate) fn fail_twice() -> ! {
    // No gates behind that of the double fault: not for the page fault, nor for what its absence means.
    let limit = (DOUBLE_FAULT as u16 + 1) * 16 - 1;
    let idt = TablePointer { limit, base: &raw const GATES as u64 };
    // SAFETY: the machine ends by it.
    unsafe {
        asm!("lidt [{}]", in(reg) &raw const idt);
        asm!("mov rax, [{}]", in(reg) area::UNMAPPED.0, out("rax") _);
    }
    unreachable!("a load of what is not mapped came back")
}

/// Gives the executing CPU its tables, and stacks for its gates.
fn load_tables(cpu: CpuId, stacks: [u64; Ist::ALL.len()]) {
    let Segments { gdt, task } = &SEGMENTS[cpu.index()];
    for (ist, stack) in Ist::ALL.into_iter().zip(stacks) {
        let word = FIRST_IST + 2 * (ist as usize - 1);
        task[word].store(stack as u32, Ordering::Relaxed);
        task[word + 1].store((stack >> 32) as u32, Ordering::Relaxed);
    }
    // No map of ports: it would begin behind the end.
    let bytes = size_of_val(task) as u32;
    task[25].store(bytes << 16, Ordering::Relaxed);
    let at = task as *const _ as u64;
    let limit = u64::from(bytes) - 1;
    // Segments without limits: 64-bit code, data; and the task-state segment, whose descriptor takes two places.
    let task_low = limit | (at & 0xff_ffff) << 16 | 0x89 << 40 | (at >> 24 & 0xff) << 56;
    let (code, data) = (0x00af_9a00_0000_ffff, 0x00cf_9200_0000_ffff);
    const RING_3: u64 = 3 << 45;
    for (place, value) in (1..).zip([code, data, task_low, at >> 32, data | RING_3, code | RING_3]) {
        gdt[place].store(value, Ordering::Relaxed);
    }
    let gdt = TablePointer { limit: size_of_val(gdt) as u16 - 1, base: gdt as *const _ as u64 };
    let idt = TablePointer { limit: size_of_val(&GATES) as u16 - 1, base: &raw const GATES as u64 };
    // SAFETY: the tables are static, describe flat segments as those in use are, and gates to the entries above. The
    // far return goes to the next line with the new code selector. Interrupts are off.
    unsafe {
        asm!(
            "lgdt [{gdt}]",
            "push {code}",
            "lea {t}, [rip + 2f]",
            "push {t}",
            "retfq",
            "2:",
            "mov {t:e}, {data}",
            "mov ds, {t:e}",
            "mov es, {t:e}",
            "mov ss, {t:e}",
            "mov {t:e}, {task}",
            "ltr {t:x}",
            "lidt [{idt}]",
            gdt = in(reg) &raw const gdt,
            idt = in(reg) &raw const idt,
            t = out(reg) _,
            code = const CODE_SELECTOR,
            data = const DATA_SELECTOR,
            task = const TASK_SELECTOR,
        );
    }
}
