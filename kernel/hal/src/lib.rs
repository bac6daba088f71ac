//! What a machine is, as far as a portable virtual-memory system needs to know.
//!
//! This crate is the boundary between the kernel floors (`pmap`, `ephemeral`, `vm`, `kernel`) and the two kinds of
//! machine below them: the *modelled* machines of `pageferry-model`, on which every cycle has a cause and every stale
//! translation is caught, and *bare metal*, where the same calls are real instructions and the accounting calls
//! compile to nothing.
//!
//! * [`addr`], [`cpu`], [`time`]: newtypes, so that a virtual address is never taken for a physical one, nor a count
//!   of instructions for a count of cycles.
//! * [`machine`]: the [`Machine`] trait, everything that a back end must provide; [`tlb`]: what some machines have
//!   beside a CPU that walks page tables. [`account`], [`oracle`], [`recorder`]: what the kernel says of what it does.
//! * [`path`]: runs of kernel text, which boot lays out on machines that fetch instructions.
//! * [`mmu`]: translations, whatever kind of memory management unit makes them.
//! * [`isa`]: what instruction sets prescribe, shared by walkers and the pmap.
//! * [`board`]: what is on a board.
//! * [`lock`]: spin locks with a declared order.
//! * [`dev`]: disks, sound devices, and what all devices have in common.
//! * [`threads`]: what a floor that may sleep asks of the thread system above it.
//! * [`cause`]: what cycles are spent on. [`metric`]: what events are counted, as the floors above declare them.
//! * [`tap`]: a machine around a machine, which tells what is called.
//! * [`arena`]: the modelled addresses of kernel structures, so that they take room in caches.
//! * [`index_list`]: linked lists of things that have an index, for every floor above.
//!
//! Nothing here allocates on a hot path, blocks, or knows of pages' owners: that is `vm`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod account;
pub mod addr;
pub mod arena;
pub mod board;
pub mod cause;
pub mod cpu;
pub mod dev;
pub mod flow;
pub mod index_list;
pub mod isa;
pub mod lock;
pub mod machine;
pub mod memory_use;
pub mod metric;
pub mod mmu;
pub mod oracle;
pub mod path;
pub mod recorder;
pub mod tap;
pub mod threads;
pub mod time;
pub mod tlb;
pub mod trap;

pub use account::{Account, Crossing};
pub use addr::{PAGE_SHIFT, PAGE_SIZE, Pa, Pfn, Va, VaRange, page_round, page_trunc};
pub use arena::{StructArena, StructVa, Zone};
pub use board::{Board, DeviceMemory, Mmu};
pub use cause::Cause;
pub use cpu::{CpuId, CpuSet};
pub use dev::Devices;
pub use dev::audio::{Audio, AudioDone, AudioRequest};
pub use dev::block::{BlockDevice, DiskDone, DiskError, DiskRequest};
pub use dev::device::{DeviceId, Transfer};
pub use dev::nic::{
    ETHERNET_HEADER_BYTES, ETHERNET_MIN_BYTES, Fragment, MacAddress, NIC_DESCRIPTOR_BYTES, Nic, NicArrival,
    NicChecksum, NicError, NicEvents, NicFlow, NicInfo, NicReceive, NicReceived, NicRing, NicStatistics,
    NicTransmit, NicTransmitted, NicVerdict,
};
pub use flow::{AttachedBy, Attachment, Flow, FlowStep, Level, Means, Parcel, Place};
pub use index_list::{IndexList, Links};
pub use lock::{LockClass, LockCosts, LockSet, SpinLock};
pub use machine::{ContextId, Interrupt, Machine};
pub use memory_use::MemoryUse;
pub use metric::Metric;
pub use mmu::{
    Asid, Attr, Block, BlockRegister, BlockRegisters, Context, Flush, HashTable, Layout, Miss, MissKind,
    Region, Slot, SpaceId, Tte, Width,
};
pub use oracle::Oracle;
pub use path::{CodePath, Text};
pub use recorder::Recorder;
pub use threads::{Channel, Interrupted, Threads};
pub use time::{Cycles, Instructions};
pub use tlb::{Refill, Tlb};
pub use trap::{Access, CopyFault, Mode, Prot, Reference, Trap, TrapKind};
