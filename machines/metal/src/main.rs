//! The kernel floors on bare metal: a freestanding amd64 image that links `hal`, `pmap`, `ephemeral`, `vm` and `kernel`
//! without a standard library, with the stock toolchain:
//!
//! ```text
//! cargo build --release --manifest-path machines/metal/Cargo.toml
//! ```
//!
//! **State.** It links; it has not run yet. What a loader must do is said below, and no loader is here.
//!
//! # What is here
//! From the bottom up; a file imports only what is named before it.
//! * [`cpu`]: the instructions of the processor. [`lock`]: spin locks. [`heap`]: the allocator. [`runtime`]: what the
//!   compiler takes for granted, messages, and panics.
//! * [`apic`]: interrupts to other CPUs, and the timer. [`copy`]: copies that survive a page fault. [`interrupt`]:
//!   descriptor tables and entry code.
//! * [`context`]: threads of control on stacks of their own.
//! * [`metal`]: [`pageferry_hal::Machine`] by all of these, all accounting empty. [`config`]: the kernel that is booted
//!   on it.
//! * Here: the entries, and a first process that carries a megabyte through a pipe.
//!
//! # What the loader provides
//! * **The processor.** Long mode, privilege 0, interrupts off, SSE switched on, SMAP and PCID off. It has x2APIC and
//!   RDTSCP, a time-stamp counter that runs at one rate, and a timer that compares it with a deadline (see [`apic`]).
//! * **Memory.** The image at physical 1 MB. Page tables that map the first gigabyte of memory, writable and
//!   executable, from `kernel_base` on (so the image lies at its link address), and all memory in the direct map at
//!   `AMD64_LAYOUT.direct_map`. The lowest memory, from 0 to the end of the arena and the page tables behind it, is the
//!   kernel's; the loader's tables lie above.
//! * **The entries.** CPU 0 enters at `_start` with the address of a [`Handover`] in RDI; every other CPU enters at
//!   `_start_other` with its number in RDI.
//!
//! The arena of kernel structures and the image with its heap are the same memory: on bare metal a structure is touched
//! by being used, and its modelled address is a number that nobody reads.
#![no_std]
#![no_main]

extern crate alloc;

mod apic;
mod config;
mod context;
mod copy;
mod cpu;
mod heap;
mod interrupt;
mod lock;
mod metal;
mod runtime;
mod tlb;

use alloc::boxed::Box;
use alloc::vec;
use core::arch::global_asm;
use metal::Metal;
use pageferry_hal::{CpuId, CpuSet, Devices, PAGE_SIZE, Prot};
use pageferry_kernel::{Errno, Kernel, User};
use pageferry_pmap::Pmaps;
use pageferry_vm::Inherit;

/// What the loader tells.
#[repr(C)]
struct Handover {
    /// [`Handover::MAGIC`].
    magic: u64,
    /// Frames of memory, numbered from 0.
    frames: u64,
    /// CPUs.
    cpus: u64,
    /// The x2APIC identifiers of the CPUs, in order of their numbers.
    apic_ids: [u32; CpuSet::MAX_CPUS],
}

impl Handover {
    const MAGIC: u64 = u64::from_le_bytes(*b"pageferr");
}

// A kernel is shared by all CPUs. The compiler proves that its lowest floor may be, and no more: the floors above have
// room for devices, and those of a modelled machine may not. What is there beside the devices was found to be `Send`
// and `Sync` by way of trial, with these demanded of devices, too; and `boot` gives the kernel none.
const fn assert_shared<T: Send + Sync>() {}
const _: () = assert_shared::<Pmaps<Metal>>();

// The first instructions. A stack for each CPU; 16 bytes aligned before the call, as the ABI wants it.
global_asm!(
    ".global _start",
    "_start:",
    "    lea rsp, [rip + {stacks} + {stack_bytes}]",
    "    xor ebp, ebp",
    "    call {boot}",
    "    ud2",
    ".global _start_other",
    "_start_other:",
    "    mov rax, rdi",
    "    inc rax",
    "    imul rax, rax, {stack_bytes}",
    "    lea rsp, [rip + {stacks}]",
    "    add rsp, rax",
    "    xor ebp, ebp",
    "    call {boot_other}",
    "    ud2",
    stacks = sym BOOT_STACKS,
    stack_bytes = const BOOT_STACK_BYTES,
    boot = sym boot,
    boot_other = sym boot_other,
);

/// CPU 0's boot context runs the scheduler's idle loop on its boot stack, the others' only until their first switch.
const BOOT_STACK_BYTES: usize = 32 << 10;

#[repr(align(16))]
struct Stacks {
    _bytes: [[u8; BOOT_STACK_BYTES]; CpuSet::MAX_CPUS],
}

// Mutable because stacks are written, and only ever through RSP; zeroed, so that it takes no room in the image.
static mut BOOT_STACKS: Stacks = Stacks { _bytes: [[0; BOOT_STACK_BYTES]; CpuSet::MAX_CPUS] };

extern "C" fn boot(handover: *const Handover) -> ! {
    // SAFETY: the loader's contract: RDI holds the address of a mapped `Handover`, which nobody writes any more.
    let handover = unsafe { &*handover };
    assert!(handover.magic == Handover::MAGIC, "this loader speaks another language");
    let (cpus, frames) = (handover.cpus as usize, handover.frames as usize);
    let arena_bytes = config::arena_bytes(metal::board(cpus, frames));
    heap::give_rest_of_arena(arena_bytes);
    interrupt::init_cpu(CpuId(0));
    metal::set_board(cpus, frames, handover.apic_ids);
    context::adopt_boot_context();

    // No devices, on which the soundness of `context` rests: see `assert_shared`.
    let next = match Kernel::boot(Metal, Devices::default(), config::kernel(arena_bytes)) {
        Ok(kernel) => {
            kernel.spawn("init", Box::new(init)).expect("the first process");
            let next = kernel.run();
            let state = kernel.check_quiescent();
            runtime::print(format_args!("pageferry: all processes are gone; {state:?}\n"));
            next
        }
        Err(e) => panic!("this machine and this kernel do not go together: {e}"),
    };
    context::finish(next)
}

extern "C" fn boot_other(number: u64) -> ! {
    let cpu = CpuId(u8::try_from(number).expect("the loader numbers CPUs from 0"));
    context::wait_in_pen(cpu)
}

/// The first process: sends itself a megabyte through a pipe, by way of a child.
fn init(user: &User<Metal>) {
    let result = carry(user);
    runtime::print(format_args!("pageferry: 1 MB through a pipe: {result:?}\n"));
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
