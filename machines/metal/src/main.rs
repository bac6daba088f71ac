//! The kernel floors on bare metal: a freestanding amd64 image that links `hal`, `pmap`, `ephemeral`, `vm` and `kernel`
//! without a standard library, with the stock toolchain. A PVH loader (QEMU's `-kernel`) or GRUB starts it:
//!
//! ```text
//! cargo run -p xtask -- metal amd64 --cpus 4
//! ```
//!
//! # What is here
//! From the bottom up; a file imports only what is named before it.
//! * [`cpu`]: the instructions of the processor. [`lock`]: spin locks. [`runtime`]: what the compiler takes for
//!   granted, messages, panics, and how a run ends. [`start`]: the first instructions. [`heap`]: the allocator.
//! * [`handover`]: what the loader tells. [`acpi`]: which processors there are.
//! * [`area`]: addresses of this machine alone, kernel stacks among them. [`apic`]: interrupts to other CPUs, and the
//!   timer. [`copy`]: copies that survive a page fault. [`interrupt`]: descriptor tables, entry code, exceptions.
//!   [`provoke`]: exceptions on purpose. [`args`]: the command line.
//! * [`context`]: threads of control on stacks of their own. [`smp`]: starting the other CPUs.
//! * [`metal`]: [`pageferry_hal::Machine`] by all of these, all accounting empty. [`config`]: the kernel that is booted
//!   on it.
//! * Here: the order in which all that begins, and a first process that carries a megabyte through a pipe.
//!
//! # Memory
//! Frames are those from 0 to the end of the memory that begins at 1 MB; the hole below lies in the arena of kernel
//! structures, with the image and its heap, and no frame is taken from that. The arena of kernel structures and the
//! image with its heap are the same memory: on bare metal a structure is touched by being used, and its modelled
//! address is a number that nobody reads.
//!
//! # What can fail
//! A machine that lacks something, or a loader that asks for what there is not, ends with a line that says so, and
//! code 1.
#![no_std]
#![no_main]

extern crate alloc;

mod acpi;
mod apic;
mod area;
mod args;
mod config;
mod context;
mod copy;
mod cpu;
mod handover;
mod heap;
mod interrupt;
mod lock;
mod metal;
mod provoke;
mod runtime;
mod smp;
mod start;
mod tlb;

use acpi::Processors;
use alloc::boxed::Box;
use alloc::vec;
use args::{Args, BadWord};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use handover::Handover;
use metal::Metal;
use pageferry_hal::{CpuId, Devices, PAGE_SIZE, Prot};
use pageferry_kernel::{Errno, Kernel, User};
use pageferry_pmap::Pmaps;
use pageferry_vm::Inherit;
use runtime::{exit, fail, print};

// A kernel is shared by all CPUs. The compiler proves that its lowest floor may be, and no more: the floors above have
// room for devices, and those of a modelled machine may not. What is there beside the devices was found to be `Send`
// and `Sync` by way of trial, with these demanded of devices, too; and `boot` gives the kernel none.
const fn assert_shared<T: Send + Sync>() {}
const _: () = assert_shared::<Pmaps<Metal>>();

/// What the rest of boot needs to know, on its way to another stack.
struct Plan {
    args: Args,
    cpus: usize,
    frames: usize,
    arena_bytes: usize,
    processors: Processors,
}

/// Where CPU 0 begins, on a stack without a guard; `magic` and `at` are what the loader left.
// SAFETY: nothing else here has that name.
#[unsafe(no_mangle)]
extern "C" fn pageferry_boot(magic: u32, at: u64) -> ! {
    cpu::set_number(CpuId(0));
    interrupt::init_early();
    let handover = Handover::read(magic, at).unwrap_or_else(|why| fail(format_args!("{why}")));
    let args = Args::parse(handover.line()).unwrap_or_else(|BadWord(word, expected)| {
        fail(format_args!("the command line has `{word}`: expected {expected}"))
    });
    check_processor();
    // A module lies behind the image, and the heap behind that; or high above, and is no frame.
    let low = handover.module.as_ref().filter(|module| is_low(module)).map_or(0, |module| module.end);
    let heap_start = heap::image_end().max(low).next_multiple_of(PAGE_SIZE as u64);
    let frames = frames(&handover, &args);
    let arena_bytes = config::arena_bytes(metal::board(1, frames));
    let needed = (arena_bytes + arena_bytes / 4) as u64;
    if (frames * PAGE_SIZE) as u64 <= needed || heap_start + (16 << 20) > arena_bytes as u64 {
        let (there, needed) = ((frames * PAGE_SIZE) >> 20, needed >> 20);
        fail(format_args!(
            "too little memory: {there} MB without a hole, of which {needed} are the kernel's"
        ));
    }
    heap::give(heap_start, arena_bytes);
    area::init(cpu::root());
    apic::mask_old_controllers();
    apic::find();
    interrupt::init_cpu(CpuId(0));

    let me = apic::id();
    let found = acpi::processors(handover.acpi_root, me);
    let processors = found.unwrap_or_else(|| Processors::only(me));
    let cpus = args.cpus.unwrap_or(processors.count);
    if cpus > processors.count {
        fail(format_args!("{cpus} CPUs are asked for, and there are {}", processors.count));
    }
    let plan = Box::new(Plan { args, cpus, frames, arena_bytes, processors });
    let stack = area::Stack::new().top().0;
    // SAFETY: the new stack is nobody else's, and is never given back; the old one is left for good. What is called
    // takes the plan over, and does not return.
    unsafe {
        asm!("mov rsp, {}", "xor ebp, ebp", "call {}", "ud2", in(reg) stack, sym boot_on_stack,
            in("rdi") Box::into_raw(plan), options(noreturn))
    }
}

/// Goes on with a guard below the stack.
extern "C" fn boot_on_stack(plan: *mut Plan) -> ! {
    // SAFETY: [`pageferry_boot`] made it from a box, for this call.
    let Plan { args, cpus, frames, arena_bytes, processors } = *unsafe { Box::from_raw(plan) };
    if let Err(id) = smp::start(&processors.ids[1..cpus], cpu::root()) {
        fail(format_args!("the CPU whose APIC has the number {id} does not start"));
    }
    metal::set_board(cpus, frames, processors.ids);
    context::adopt_boot_context();
    if let Some(provoked) = args.provoked {
        provoked.happens();
    }

    // No devices, on which the soundness of `context` rests: see `assert_shared`.
    match Kernel::boot(Metal, Devices::default(), config::kernel(arena_bytes, &args)) {
        Ok(kernel) => {
            kernel.spawn("init", Box::new(init)).expect("the first process");
            let _ = kernel.run();
            let state = kernel.check_quiescent();
            print(format_args!("pageferry: all processes are gone; {state:?}\n"));
            exit(u8::from(state.is_err() || !ALL_WELL.load(Ordering::Acquire)))
        }
        Err(e) => fail(format_args!("this machine and this kernel do not go together: {e}")),
    }
}

/// Where every other CPU begins, on a stack of its own.
// SAFETY: nothing else here has that name.
#[unsafe(no_mangle)]
extern "C" fn pageferry_boot_other(number: u64) -> ! {
    let cpu = CpuId(number as u8);
    cpu::set_number(cpu);
    area::link(cpu::root());
    interrupt::init_cpu(cpu);
    smp::arrive();
    context::wait_in_pen(cpu)
}

/// Ends the machine if the processor lacks what the kernel relies on.
fn check_processor() {
    const APIC: u32 = 1 << 9;
    let features = __cpuid(1).edx;
    for (bit, name) in [
        (1 << 4, "time-stamp counter"),
        (1 << 5, "model-specific registers"),
        (APIC, "APIC"),
        (1 << 13, "global pages"),
        (1 << 19, "clflush"),
        (1 << 24, "fxsave"),
    ] {
        if features & bit == 0 {
            fail(format_args!("this processor has no {name}"));
        }
    }
}

/// Frames from 0 to the end of memory, or as many as the command line says; without the module, which lies above.
fn frames(handover: &Handover, args: &Args) -> usize {
    let mut end = handover.memory_end();
    if let Some(module) = handover.module.as_ref().filter(|module| !is_low(module)) {
        end = end.min(module.start);
    }
    let there = end as usize / PAGE_SIZE;
    match args.frames {
        Some(frames) if frames > there => {
            fail(format_args!("{frames} frames are asked for, and there are {there}"))
        }
        frames => frames.unwrap_or(there),
    }
}

/// True for a module that was loaded just behind the image, as GRUB does.
fn is_low(module: &Range<u64>) -> bool {
    const NEAR_BYTES: u64 = 8 << 20;
    module.start < heap::image_end() + NEAR_BYTES
}

/// The program has found that every byte is right.
static ALL_WELL: AtomicBool = AtomicBool::new(false);

/// The first process: sends itself a megabyte through a pipe, by way of a child.
fn init(user: &User<Metal>) {
    let result = carry(user);
    ALL_WELL.store(result == Ok(true), Ordering::Release);
    print(format_args!("pageferry: 1 MB through a pipe: {result:?}\n"));
}

fn carry(user: &User<Metal>) -> Result<bool, Errno> {
    const LEN_BYTES: usize = 1 << 20;
    let byte = |page: usize| (page * 31 % 251) as u8;
    let (read_end, write_end) = user.pipe()?;
    let memory = user.map(LEN_BYTES, Prot::RW, Inherit::Copy)?;
    let writer = move |user: &User<Metal>| {
        for page in 0..LEN_BYTES / PAGE_SIZE {
            user.store(memory + page * PAGE_SIZE, &[byte(page); PAGE_SIZE]);
        }
        // A reader that has gone away is the reader's business.
        let _ = user.write(write_end, memory, LEN_BYTES);
    };
    user.fork("writer", Box::new(writer))?;
    user.close(write_end)?;
    let mut received = 0;
    while received < LEN_BYTES {
        match user.read(read_end, memory + received, LEN_BYTES - received)? {
            0 => return Ok(false),
            n => received += n,
        }
    }
    user.wait()?;
    let mut intact = true;
    let mut page_bytes = vec![0; PAGE_SIZE];
    for page in 0..LEN_BYTES / PAGE_SIZE {
        user.load(memory + page * PAGE_SIZE, &mut page_bytes);
        intact &= page_bytes.iter().all(|b| *b == byte(page));
    }
    Ok(intact)
}
