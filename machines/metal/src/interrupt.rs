//! Descriptor tables of each CPU, and the entry code of interrupts.
//!
//! Handlers run on stacks of their own (IST): code for the hosted target keeps data below its stack pointer (the red
//! zone), where an interrupt without a stack switch would write. They run with interrupts off, so one stack for each
//! kind does. A page fault may come while a handler runs, never the other way round.

use crate::apic::{self, vector};
use crate::copy::{self, Fault};
use crate::cpu;
use alloc::boxed::Box;
use alloc::vec;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicPtr, Ordering};
use pageferry_hal::{CpuId, Interrupt};

/// The vector of the exception.
const PAGE_FAULT: usize = 14;

const CODE_SELECTOR: u16 = 0x08;
const DATA_SELECTOR: u16 = 0x10;
const TASK_SELECTOR: u16 = 0x18;

/// Words of 16 bytes in a handler's stack.
const STACK_WORDS: usize = (16 << 10) / 16;

/// The task-state segment; only its stack table matters in long mode.
#[repr(C, packed)]
struct Task {
    _reserved: u32,
    _rsp: [u64; 3],
    _reserved2: u64,
    ist: [u64; 7],
    _reserved3: u64,
    _reserved4: u16,
    io_map: u16,
}

/// Interrupt stacks by their number in a gate.
#[derive(Clone, Copy)]
enum Ist {
    Interrupt = 1,
    Fault = 2,
    Unexpected = 3,
}

struct Tables {
    gdt: [u64; 5],
    task: Task,
    idt: [[u64; 2]; 256],
}

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
    fn pageferry_on_unexpected();
}

// All that a call may destroy is kept: nine registers, RBP to find the way back, and the floating-point state, which
// the handlers' Rust code may use for moves. R12 to R15 and RBX are kept by the callee.
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
    "    pageferry_enter",
    // Above the ten saved registers: error code, then the frame.
    "    lea rdi, [rbp + 80]",
    "    call {fault}",
    "    pageferry_leave",
    "    add rsp, 8",
    "    iretq",
    "pageferry_on_unexpected:",
    "    cld",
    "    and rsp, -16",
    "    call {unexpected}",
    "    ud2",
    timer = const vector::TIMER,
    shootdown = const vector::SHOOTDOWN,
    reschedule = const vector::RESCHEDULE,
    interrupt = sym take_interrupt,
    fault = sym take_fault,
    unexpected = sym take_unexpected,
);

/// What the processor pushes for a page fault.
#[repr(C)]
struct FaultFrame {
    code: u64,
    rip: u64,
}

extern "C" fn take_interrupt(vector: u8) {
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

extern "C" fn take_fault(frame: &mut FaultFrame) {
    let fault = Fault { va: cpu::fault_address(), code: frame.code };
    match copy::continue_behind(cpu::number(), frame.rip, fault) {
        Some(rip) => frame.rip = rip,
        None => panic!("page fault at {:#x} for {:#x}, code {:#x}", frame.rip, fault.va, fault.code),
    }
}

extern "C" fn take_unexpected() -> ! {
    panic!("an exception that nobody expects");
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

/// Sets the executing CPU up as number `number`: descriptor tables, stacks for handlers, control registers, APIC. Its
/// interrupts come only when [`cpu::enable_interrupts`] says so.
pub(crate) fn init_cpu(number: CpuId) {
    let mut ist = [0; 7];
    for which in [Ist::Interrupt, Ist::Fault, Ist::Unexpected] {
        let stack = vec![0u128; STACK_WORDS].leak();
        ist[which as usize - 1] = stack.as_ptr_range().end as u64;
    }
    let task = Task {
        _reserved: 0,
        _rsp: [0; 3],
        _reserved2: 0,
        ist,
        _reserved3: 0,
        _reserved4: 0,
        io_map: size_of::<Task>() as u16,
    };
    let tables = Box::leak(Box::new(Tables { gdt: [0; 5], task, idt: interrupt_table() }));
    let at = &raw const tables.task as u64;
    let limit = size_of::<Task>() as u64 - 1;
    // Segments without limits: 64-bit code, data; and the task-state segment, whose descriptor takes two places.
    tables.gdt[1] = 0x00af_9a00_0000_ffff;
    tables.gdt[2] = 0x00cf_9200_0000_ffff;
    tables.gdt[3] = limit | (at & 0xff_ffff) << 16 | 0x89 << 40 | (at >> 24 & 0xff) << 56;
    tables.gdt[4] = at >> 32;
    load_tables(tables);
    cpu::init(number);
    assert!(cpu::number() == number, "a CPU does not know its number");
    apic::init();
}

fn interrupt_table() -> [[u64; 2]; 256] {
    type Entry = unsafe extern "C" fn();
    let gate = |entry: Entry, ist: Ist| {
        let at = entry as usize as u64;
        let low = at & 0xffff
            | u64::from(CODE_SELECTOR) << 16
            | (ist as u64) << 32
            | 0x8e << 40
            | (at >> 16 & 0xffff) << 48;
        [low, at >> 32]
    };
    let mut idt = [gate(pageferry_on_unexpected, Ist::Unexpected); 256];
    idt[PAGE_FAULT] = gate(pageferry_on_fault, Ist::Fault);
    for (vector, entry) in [
        (vector::TIMER, pageferry_on_timer as Entry),
        (vector::SHOOTDOWN, pageferry_on_shootdown),
        (vector::RESCHEDULE, pageferry_on_reschedule),
        (vector::SPURIOUS, pageferry_on_spurious),
    ] {
        idt[usize::from(vector)] = gate(entry, Ist::Interrupt);
    }
    idt
}

fn load_tables(tables: &'static Tables) {
    let gdt = TablePointer { limit: size_of_val(&tables.gdt) as u16 - 1, base: &raw const tables.gdt as u64 };
    let idt = TablePointer { limit: size_of_val(&tables.idt) as u16 - 1, base: &raw const tables.idt as u64 };
    // SAFETY: the tables live for ever, describe flat segments as those in use are, and gates to the entries above. The
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
