//! What a machine is, as far as a portable virtual-memory system needs to know.
//!
//! This crate is the boundary between the kernel floors (`pmap`, `ephemeral`, `vm`, `kernel`) and the two kinds of
//! machine below them: the *modelled* machines of `pageferry-model`, on which every cycle has a cause and every stale
//! translation is caught, and *bare metal*, where the same calls are real instructions and the accounting calls
//! compile to nothing.
//!
//! * [`addr`], [`cpu`], [`time`]: newtypes, so that a virtual address is never taken for a physical one, nor a count
//!   of instructions for a count of cycles.
//! * [`machine`]: the [`Machine`] trait, everything that a back end must provide.
//! * [`lock`]: spin locks with a declared order.
//! * [`disk`]: blocks that move to and from frames while the CPUs go on. [`audio`]: fragments of sound.
//! * [`threads`]: what a floor that may sleep asks of the thread system above it.
//! * [`cause`]: what cycles are spent on, and what events are counted.
//! * [`arena`]: the modelled addresses of kernel structures, so that they take room in caches.
//! * [`index_list`]: linked lists of things that have an index, for every floor above.
//! * [`x86`]: the page-table formats of i386 and amd64, shared by the walkers and the pmap.
//!
//! Nothing here allocates on a hot path, blocks, or knows of pages' owners: that is `vm`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addr;
pub mod arena;
pub mod audio;
pub mod cause;
pub mod cpu;
pub mod disk;
pub mod flow;
pub mod index_list;
pub mod lock;
pub mod machine;
pub mod threads;
pub mod time;
pub mod trap;
pub mod x86;

pub use addr::{PAGE_SHIFT, PAGE_SIZE, Pa, Pfn, Va, VaRange, page_round, page_trunc};
pub use arena::{StructArena, StructVa, Zone};
pub use audio::{AudioDone, AudioRequest};
pub use cause::{Cause, Counter};
pub use cpu::{CpuId, CpuSet};
pub use disk::{DiskDone, DiskError, DiskRequest, Transfer};
pub use flow::{Flow, FlowStep};
pub use index_list::{IndexList, Links};
pub use lock::{LockClass, SpinLock};
pub use machine::{Arch, ContextId, Crossing, Interrupt, Machine, PteWidth, Topology};
pub use threads::{Channel, Interrupted, Threads};
pub use time::{Cycles, Instructions};
pub use trap::{Access, CopyFault, Mode, Prot, Trap, TrapKind};
