//! Contexts: a stack, and the registers that a call preserves.
//!
//! A context is *left* when nobody runs it and its stack pointer is saved; whoever wants to continue it takes that flag
//! first, and so waits for a CPU that is still on its way out. When its entry returns, the context is over; its memory
//! is used again once it has been left for the last time. Below each stack is a page that is not mapped: see
//! [`crate::area`].
//!
//! The table is under a spin lock that is held for look-ups only. A context in it moves nowhere, and goes only when it
//! is over and left; that is what makes the raw pointers below sound.

use crate::area::Stack;
use crate::cpu;
use crate::lock::Spin;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pageferry_hal::{ContextId, CpuId, CpuSet, SpinLock};

/// What a switch saves. The assembler below knows its layout.
#[repr(C)]
struct Saved {
    rsp: UnsafeCell<u64>,
    /// 1 when nobody runs it and `rsp` is valid.
    left: AtomicU32,
}

impl Saved {
    const fn running() -> Saved {
        Saved { rsp: UnsafeCell::new(0), left: AtomicU32::new(0) }
    }
}

type Entry = Box<dyn FnOnce() -> Option<ContextId>>;

struct Context {
    saved: Saved,
    over: AtomicBool,
    entry: Spin<Option<SendEntry>>,
    /// Absent for the boot context, whose stack nobody gives back.
    stack: Option<Stack>,
}

// SAFETY: `rsp` is written by the CPU that leaves the context and read by the one that has taken `left`, which orders
// the two; the rest is atomic, locked or never touched.
unsafe impl Sync for Context {}

/// An entry on its way to the CPU that runs it first.
struct SendEntry(Entry);

// SAFETY: the machine's contract lets a context run first on any CPU; the entry is called once, there, and what it
// captures belongs to a kernel that may be shared: see `assert_shared` in `main.rs`.
unsafe impl Send for SendEntry {}

/// All contexts by their numbers, none of which is given twice, and those that are over.
struct Contexts {
    all: Vec<Option<Arc<Context>>>,
    over: Vec<ContextId>,
}

static TABLE: Spin<Contexts> = Spin::new(Contexts { all: Vec::new(), over: Vec::new() });
/// The context that each CPU runs.
static CURRENT: [AtomicU32; CpuSet::MAX_CPUS] = [const { AtomicU32::new(0) }; CpuSet::MAX_CPUS];
/// For each stopped CPU, the context that it shall run, plus one.
static PEN: [AtomicU32; CpuSet::MAX_CPUS] = [const { AtomicU32::new(0) }; CpuSet::MAX_CPUS];

/// What a CPU does while the context that it goes to is still left by another one, if interrupts alone are not all.
static WHILE_WAITING: spin::Once<fn()> = spin::Once::new();

unsafe extern "C" {
    /// Saves the executing context in `from`, marks it left, and continues `to`.
    fn pageferry_switch(from: *const Saved, to: *const Saved);
}

// A switch is a call: the caller has saved what it may lose, so what remains is pushed here. The old context may be
// continued by another CPU as soon as it is marked, so that comes when this CPU is off its stack.
global_asm!(
    "pageferry_switch:",
    "    push rbp",
    "    push rbx",
    "    push r12",
    "    push r13",
    "    push r14",
    "    push r15",
    "    mov [rdi], rsp",
    "    mov rsp, [rsi]",
    "    mov dword ptr [rdi + 8], 1",
    "    pop r15",
    "    pop r14",
    "    pop r13",
    "    pop r12",
    "    pop rbx",
    "    pop rbp",
    "    ret",
);

/// Has every CPU call `work`, again and again, while it waits for the context that it goes to. It is still in the one
/// that it leaves.
#[cfg(feature = "tap")]
pub(crate) fn while_waiting(work: fn()) {
    WHILE_WAITING.call_once(|| work);
}

/// Makes the executing thread of control context 0, on CPU 0.
pub(crate) fn adopt_boot_context() {
    let mut table = TABLE.lock();
    assert!(table.all.is_empty(), "the boot context is the first");
    table.all.push(Some(Arc::new(Context {
        saved: Saved::running(),
        over: AtomicBool::new(false),
        entry: Spin::new(None),
        stack: None,
    })));
}

/// A context that will run `entry` when it is first switched to.
pub(crate) fn create(entry: Entry) -> ContextId {
    // As a switch leaves it: six registers, the address to return to, and above it what `context_main` would return to,
    // so that its stack pointer is as after a call.
    let stack = Stack::new();
    let top = stack.top().0;
    // SAFETY: the stack is this context's, and nobody is on it.
    unsafe {
        core::ptr::write_bytes((top - 16 - 6 * 8) as *mut u8, 0, 16 + 6 * 8);
        ((top - 16) as *mut u64).write(context_main as *const () as usize as u64);
    }
    let context = Arc::new(Context {
        saved: Saved { rsp: UnsafeCell::new(top - 16 - 6 * 8), left: AtomicU32::new(1) },
        over: AtomicBool::new(false),
        entry: Spin::new(Some(SendEntry(entry))),
        stack: Some(stack),
    });
    let mut table = TABLE.lock();
    let id = ContextId(table.all.len() as u32);
    table.all.push(Some(context));
    // Those that are over and left have nobody else any more.
    let mut stacks = Vec::new();
    let Contexts { all, over } = &mut *table;
    over.retain(|id| {
        let context = &mut all[id.0 as usize];
        let gone = context.as_ref().is_none_or(|c| c.saved.left.load(Ordering::Acquire) == 1);
        let old = if gone { context.take() } else { None };
        stacks.extend(old.and_then(Arc::into_inner).and_then(|context| context.stack));
        !gone
    });
    drop(table);
    stacks.into_iter().for_each(Stack::give_back);
    id
}

/// The executing context.
pub(crate) fn current() -> ContextId {
    ContextId(CURRENT[cpu::number().index()].load(Ordering::Relaxed))
}

/// Leaves the executing context and continues `to`.
pub(crate) fn switch(to: ContextId) {
    let from = current();
    if from == to {
        return;
    }
    let (from, to_saved) = (lookup(from), take(to));
    CURRENT[cpu::number().index()].store(to.0, Ordering::Relaxed);
    // SAFETY: `from` is the executing context, which stays in the table because it is not over; `to_saved` was left, is
    // taken by this CPU alone, and its stack holds what `pageferry_switch` or `create` put there.
    unsafe { pageferry_switch(&raw const (*from).saved, to_saved) }
}

/// Ends the executing context: continues `next`, or stops the CPU.
pub(crate) fn finish(next: Option<ContextId>) -> ! {
    let Some(next) = next else { cpu::stop() };
    let me = lookup(current());
    // From here on it may go as soon as it is left, which it is when this CPU is off its stack.
    TABLE.lock().over.push(current());
    let next_saved = take(next);
    CURRENT[cpu::number().index()].store(next.0, Ordering::Relaxed);
    // SAFETY: as in `switch`. The context may be freed when it is over *and* left, and it is left only when this CPU is
    // off its stack.
    unsafe {
        (*me).over.store(true, Ordering::Release);
        pageferry_switch(&raw const (*me).saved, next_saved);
    }
    unreachable!("a context that is over was continued");
}

/// Sets a CPU going that waits in [`wait_in_pen`].
pub(crate) fn start_cpu(cpu: CpuId, first: ContextId) {
    let old = PEN[cpu.index()].swap(first.0 + 1, Ordering::Release);
    assert!(old == 0, "{cpu:?} was started before");
}

/// Where a CPU waits that was not started yet, on a stack that it leaves for good.
pub(crate) fn wait_in_pen(cpu: CpuId) -> ! {
    let first = loop {
        match PEN[cpu.index()].load(Ordering::Acquire) {
            0 => cpu::pause(),
            n => break ContextId(n - 1),
        }
    };
    let nobody = Saved::running();
    let first_saved = take(first);
    CURRENT[cpu.index()].store(first.0, Ordering::Relaxed);
    cpu::enable_interrupts();
    // SAFETY: as in `switch`; `nobody` lies on a stack that is never given back, and nobody will ever continue it.
    unsafe { pageferry_switch(&raw const nobody, first_saved) }
    unreachable!("the pen was entered again");
}

/// A pointer to a context that is in the table.
fn lookup(id: ContextId) -> *const Context {
    let table = TABLE.lock();
    let context = table.all.get(id.0 as usize).and_then(Option::as_ref);
    Arc::as_ptr(context.expect("a context that exists"))
}

/// Waits until `id` is left, and takes it.
fn take(id: ContextId) -> *const Saved {
    let context = lookup(id);
    // SAFETY: a context leaves the table only when it is over; one that somebody wants to continue is not.
    let context = unsafe { &*context };
    while context.saved.left.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
        cpu::pause();
        if let Some(work) = WHILE_WAITING.get() {
            work();
        }
    }
    assert!(!context.over.load(Ordering::Acquire), "a context that is over is continued");
    &raw const context.saved
}

/// Where every context begins.
extern "C" fn context_main() -> ! {
    // SAFETY: the executing context is in the table until it is over.
    let me = unsafe { &*lookup(current()) };
    let entry = me.entry.lock().take().expect("a context begins once");
    let next = (entry.0)();
    finish(next)
}
