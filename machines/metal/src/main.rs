//! The kernel floors on bare metal: a freestanding amd64 image that links `hal`, `pmap`, `ephemeral`, `vm` and `kernel`
//! without a standard library, with the stock toolchain. A PVH loader (QEMU's `-kernel`) or GRUB starts it:
//!
//! ```text
//! cargo run -p xtask -- metal amd64 --cpus 4
//! ```
//!
//! # What is here
//! From the bottom up; a file imports only what is named before it.
//! * [`cpu`]: the instructions of the processor. [`lock`]: spin locks. [`runtime`]: messages, panics, and how a run
//!   ends. [`start`]: the first instructions. [`heap`]: the allocator.
//! * [`handover`]: what the loader tells. [`acpi`]: which processors there are.
//! * [`area`]: addresses of this machine alone, kernel stacks among them. [`apic`]: interrupts to other CPUs, and the
//!   timer. [`copy`]: copies that survive a page fault. [`interrupt`]: descriptor tables, entry code, exceptions.
//!   [`ring3`]: into a program and back. [`provoke`]: exceptions on purpose. [`args`]: the command line.
//! * [`context`]: threads of control on stacks of their own. [`smp`]: starting the other CPUs.
//! * [`metal`]: [`pageferry_hal::Machine`] by all of these, all accounting empty. `conducted`, with the feature `tap`:
//!   a run that a modelled machine conducts; `counted`, without: one whose events are counted.
//! * `archive`: programs that the loader brings. `calls`: their system calls. `process`: how they are run.
//! * Here: the order in which all that begins. The kernel's configuration and the programs that are closures are those
//!   of [`pageferry_verify`], which the modelled machine runs as well.
//!
//! # Memory
//! Frames are those from 0 to the end of the memory that begins at 1 MB; the hole below lies in the arena of kernel
//! structures, with the image and its heap, and no frame is taken from that. The modelled addresses of structures come
//! behind the image and its heap. Most of them are numbers that nobody reads, because on bare metal a structure is
//! touched by being used; but an mbuf holds the bytes of a short message there.
//!
//! # What can fail
//! A machine that lacks something, or a loader that asks for what there is not, ends with a line that says so, and
//! code 1.
#![no_std]
#![no_main]

extern crate alloc;

mod acpi;
mod apic;
#[cfg(not(feature = "tap"))]
mod archive;
mod area;
mod args;
#[cfg(not(feature = "tap"))]
mod calls;
#[cfg(feature = "tap")]
mod conducted;
mod context;
mod copy;
#[cfg(not(feature = "tap"))]
mod counted;
mod cpu;
mod handover;
mod heap;
mod interrupt;
mod lock;
mod metal;
#[cfg(not(feature = "tap"))]
mod process;
mod provoke;
// A conducted run has no programs in ring 3: between two calls nobody could tell what they do.
#[cfg_attr(feature = "tap", allow(dead_code))]
mod ring3;
mod runtime;
mod smp;
mod start;
mod tlb;

use acpi::Processors;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use args::{Args, Called};
#[cfg(feature = "tap")]
use conducted::{Booted, machine};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::ops::Range;
#[cfg(not(feature = "tap"))]
use counted::{Booted, machine};
use handover::Handover;
use pageferry_freestanding as _;
use pageferry_hal::{CpuId, Devices, PAGE_SIZE};
use pageferry_kernel::Kernel;
use pageferry_pmap::Pmaps;
#[cfg(not(feature = "tap"))]
use pageferry_verify::counts::Whose;
use pageferry_verify::{Selection, Verdict, kernel};
use provoke::Provoked;
use runtime::{exit, fail, print};

// A kernel is shared by all CPUs. The compiler proves that its lowest floor may be, and no more: the floors above have
// room for devices, and those of a modelled machine may not. What is there beside the devices was found to be `Send`
// and `Sync` by way of trial, with these demanded of devices, too; and `boot` gives the kernel none.
const fn assert_shared<T: Send + Sync>() {}
const _: () = assert_shared::<Pmaps<Booted>>();

/// What the rest of boot needs to know, on its way to another stack.
struct Plan {
    selection: Selection,
    provoked: Option<Provoked>,
    /// The program in ring 3, and its line.
    program: Option<(String, String)>,
    cpus: usize,
    frames: usize,
    processors: Processors,
}

/// Where CPU 0 begins, on a stack without a guard; `magic` and `at` are what the loader left.
// SAFETY: nothing else here has that name.
#[unsafe(no_mangle)]
extern "C" fn pageferry_boot(magic: u32, at: u64) -> ! {
    cpu::set_number(CpuId(0));
    interrupt::init_early();
    let handover = Handover::read(magic, at).unwrap_or_else(|why| fail(format_args!("{why}")));
    let args =
        Args::parse(handover.line()).unwrap_or_else(|bad| fail(format_args!("the command line has {bad}")));
    check_processor();
    // A module lies behind the image, and the heap behind that; or high above, and is no frame.
    let low = handover.module.as_ref().filter(|module| is_low(module)).map_or(0, |module| module.end);
    let heap_start = heap::image_end().max(low).next_multiple_of(PAGE_SIZE as u64);
    let frames = frames(&handover, &args);
    let (image_bytes, arena_bytes) = (kernel::image_bytes(frames), kernel::arena_bytes(frames));
    let needed = (arena_bytes + arena_bytes / 4) as u64;
    if (frames * PAGE_SIZE) as u64 <= needed || heap_start + (16 << 20) > image_bytes as u64 {
        let (there, needed) = ((frames * PAGE_SIZE) >> 20, needed >> 20);
        fail(format_args!(
            "too little memory: {there} MB without a hole, of which {needed} are the kernel's"
        ));
    }
    heap::give(heap_start, image_bytes);
    area::init(cpu::root());
    apic::mask_old_controllers();
    apic::find();
    interrupt::init_cpu(CpuId(0));

    let me = apic::id();
    let found = acpi::processors(handover.acpi_root, me);
    let processors = found.unwrap_or_else(|| Processors::only(me));
    let cpus = args.selection.cpus.unwrap_or(processors.count);
    if cpus > processors.count {
        fail(format_args!("{cpus} CPUs are asked for, and there are {}", processors.count));
    }
    take_module(handover.module.as_ref(), &args.selection, cpus, frames);
    let Args { selection, provoked, program } = args;
    let program = program.map(|Called { name, words }| (name.to_string(), words.replace(',', " ")));
    let plan = Box::new(Plan { selection, provoked, program, cpus, frames, processors });
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
    let Plan { selection, provoked, program, cpus, frames, processors } = *unsafe { Box::from_raw(plan) };
    if let Err(id) = smp::start(&processors.ids[1..cpus], cpu::root()) {
        fail(format_args!("the CPU whose APIC has the number {id} does not start"));
    }
    metal::set_board(cpus, frames, processors.ids);
    context::adopt_boot_context();
    if let Some(provoked) = provoked {
        run_provoking(&selection, provoked.happens(), frames);
    }

    if let Some((name, line)) = program {
        run_program(&selection, name, line, frames);
    }
    run(&selection, cpus, frames)
}

/// Boots the kernel: without devices, on which the soundness of `context` rests (see `assert_shared`).
fn boot(selection: &Selection, frames: usize) -> Arc<Kernel<Booted>> {
    Kernel::boot(machine(), Devices::default(), kernel::config(frames, selection))
        .unwrap_or_else(|e| fail(format_args!("this machine and this kernel do not go together: {e}")))
}

/// Boots the kernel, runs a program in ring 3, and ends the machine when all processes are gone.
#[cfg(not(feature = "tap"))]
fn run_program(selection: &Selection, name: String, line: String, frames: usize) -> ! {
    cpu::measure_clock();
    if archive::programs().is_empty() {
        fail(format_args!("program={name} is asked for: expected an archive of programs as a module"));
    }
    let kernel = boot(selection, frames);
    kernel.spawn("init", process::first(name, line)).expect("the first process");
    let _ = kernel.run();
    for (word, whose) in [("count", Whose::Shared), ("own", Whose::Own)] {
        for (name, count) in counted::COUNTS.measured(whose).into_iter().filter(|(_, count)| *count > 0) {
            print(format_args!("{word} {name} {count}\n"));
        }
    }
    let state = kernel.check_quiescent();
    print(format_args!("pageferry: all processes are gone; {state:?}\n"));
    exit(u8::from(state.is_err() || process::has_failed()))
}

/// Boots the kernel for a program by which the machine ends.
fn run_provoking(selection: &Selection, program: pageferry_kernel::Program<Booted>, frames: usize) -> ! {
    let kernel = boot(selection, frames);
    kernel.spawn("init", program).expect("the first process");
    let _ = kernel.run();
    fail(format_args!("its processes are gone, and the machine is still there"))
}

/// Boots the kernel, and ends the machine when its processes are gone.
fn run(selection: &Selection, cpus: usize, frames: usize) -> ! {
    #[cfg(feature = "tap")]
    conducted::pageferry_watched_from();
    let kernel = boot(selection, frames);
    let verdict = Arc::new(Verdict::default());
    kernel
        .spawn("init", selection.experiment.program(cpus, selection.programs, &verdict))
        .expect("the first process");
    let _ = kernel.run();
    #[cfg(feature = "tap")]
    {
        conducted::pageferry_watched_to();
        conducted::write_events();
        if let Some((turns, interrupts)) = conducted::summary() {
            print(format_args!("pageferry: {turns} turns; {interrupts} interrupts arrived\n"));
        }
    }
    let ((right, wrong), (_, failed)) = (verdict.bytes(), verdict.processes());
    print(format_args!(
        "pageferry: {}: {right} bytes right, {wrong} wrong; {failed} processes failed\n",
        selection.experiment.name()
    ));
    let state = kernel.check_quiescent();
    print(format_args!("pageferry: all processes are gone; {state:?}\n"));
    exit(u8::from(state.is_err() || !verdict.is_well()))
}

/// Nobody could tell what a program in ring 3 does between two turns.
#[cfg(feature = "tap")]
fn run_program(_: &Selection, name: String, _: String, _: usize) -> ! {
    fail(format_args!("program={name} is asked for: expected an image without the feature `tap`"))
}

/// The module is an archive of programs.
#[cfg(not(feature = "tap"))]
fn take_module(module: Option<&Range<u64>>, selection: &Selection, _: usize, _: usize) {
    if let Some(module) = module {
        // SAFETY: see `bytes_of`.
        let file = unsafe { bytes_of(module) };
        archive::take(file).unwrap_or_else(|bad| fail(format_args!("{bad}")));
    }
    check_conducted(selection, false);
}

/// What a module has.
///
/// # Safety
/// It is what the loader has told, and the first page tables are in use.
unsafe fn bytes_of(module: &Range<u64>) -> &'static [u8] {
    let len_bytes = (module.end - module.start) as usize;
    // SAFETY: the first page tables map it, as `handover` has seen; the heap and the frames lie elsewhere, so nobody
    // writes it.
    unsafe { core::slice::from_raw_parts(module.start as *const u8, len_bytes) }
}

/// The module is the schedule of the run.
#[cfg(feature = "tap")]
fn take_module(module: Option<&Range<u64>>, selection: &Selection, cpus: usize, frames: usize) {
    if let Some(module) = module {
        // SAFETY: see `bytes_of`.
        let file = unsafe { bytes_of(module) };
        let turns = pageferry_verify::schedule::decode(file, selection.fingerprint(cpus, frames));
        conducted::conduct(turns.unwrap_or_else(|bad| fail(format_args!("{bad}"))));
    }
    check_conducted(selection, module.is_some());
}

/// Ends the machine if the program is one that must be conducted, and is not.
fn check_conducted(selection: &Selection, is_conducted: bool) {
    if selection.experiment.is_conducted() && !is_conducted {
        let name = selection.experiment.name();
        fail(format_args!(
            "experiment={name} runs only with a schedule as a module, in an image that takes one"
        ));
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
    // `start` has seen that there are features beyond the first.
    let extended = __cpuid(0x8000_0001).edx;
    for (bit, name) in [(1 << 11, "syscall"), (1 << 20, "pages without execution")] {
        if extended & bit == 0 {
            fail(format_args!("this processor has no {name}"));
        }
    }
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
    match args.selection.frames {
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
