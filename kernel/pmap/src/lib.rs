//! The machine-dependent layer: page tables, reverse mappings, and the invalidations that their changes oblige to.
//!
//! One code serves all machines: what differs is data, in [`pageferry_hal::Board`]. Its rooms, from the bottom up:
//!
//! * `config`, `defect`, `error`: what a pmap is built from, and what can go wrong.
//! * `tlb`: what CPUs hold: address spaces loaded, tags, entries, the request for a shootdown.
//! * `tables`: what memory holds. Page tables in levels are the truth everywhere (`radix`). Hardware walks them, or
//!   looks into a hash table that caches them (`second`), or leaves all to the kernel. What is mapped for ever is
//!   mapped by superpages, by block registers, by pages, or not at all (`fixed`).
//! * `pmap`: the state that owns these.
//! * `flush`: making TLBs forget. `map`: changing mappings. `refill`: what the kernel does about a TLB miss.
//!   `preload`: what it loads beside.
//!
//! # What it holds
//! * The **kernel's page tables**, complete from boot on: the arena of kernel structures and the direct map in
//!   superpages, and one leaf table for each superpage of the addresses that are mapped page by page. Entering a kernel
//!   mapping therefore never allocates, and the upper entries can be copied into every address space once.
//! * A [`Pmap`] for each address space, and for each frame the list of its user mappings (`pv` list), so that all of
//!   them can be found, write-protected or removed.
//! * What each CPU has loaded, and the one shootdown in flight.
//!
//! # The obligation
//! Every call that changes valid entries returns a [`TlbFlush`]: TLBs may still hold what was there. It must be
//! discharged, by [`TlbFlush::flush`] or by a method that says why less will do; several can be merged first, so that
//! one shootdown serves them all.
//!
//! # Locks
//! The reverse mappings have one lock of class `ReverseMap`, taken before the lock of an address space (class `Pmap`);
//! a shootdown takes the lock of class `Shootdown`; the refill handler, and a caller that changes what it has put into
//! a hash table, take that of class `HashTable`. Kernel mappings take no lock: the owner of the addresses owns their
//! entries. Frames for page tables are taken from and given to a [`FrameSource`] with none of these held.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod counter;
mod defect;
mod error;
mod flush;
mod map;
mod pmap;
mod preload;
mod refill;
mod rows;
mod tables;
mod tlb;

pub use config::{
    AreaConfig, AreaPage, AreaPaths, EntryChoice, FrameSource, KernelMapping, PmapConfig, PmapPaths, Preload,
    PreloadPaths, RefillConfig, RefillPaths, Reload,
};
pub use counter::PmapCounter;
pub use defect::{AreaDefect, PmapDefect};
pub use error::{PmapError, Whole};
pub use flush::{Invalidations, TlbFlush};
pub use map::HashCensus;
pub use pageferry_defects::Planted;
pub use pmap::{Pmap, Pmaps};
pub use tables::bootstrap::Bootstrap;
pub use tables::cached::Reach;
