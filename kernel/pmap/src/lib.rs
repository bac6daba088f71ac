//! The machine-dependent layer: page tables, reverse mappings, and the invalidations that their changes oblige to.
//!
//! One code serves all machines: what differs is data, in [`pageferry_hal::Board`]. Page tables in levels hold the
//! truth everywhere (`radix`). Hardware walks them, or looks into a hash table that caches them (`second`), or leaves
//! all to the kernel (`refill`). What is mapped for ever is mapped by superpages, by block registers, by pages, or not
//! at all (`fixed`); by pages, it can be protected by page too (`protect`).
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

mod active;
mod area;
mod asid;
mod bootstrap;
mod colours;
mod config;
mod copy_page;
mod cpu;
mod defect;
mod device;
mod entries;
mod fixed;
mod flush;
mod ipi;
mod kernel;
mod page;
mod pmap;
mod protect;
mod pv;
mod radix;
mod refill;
mod second;
mod shootdown;
mod space;
mod sysmap;
mod user;

pub use area::{AreaConfig, AreaDefect, AreaPage, AreaPaths};
pub use bootstrap::Bootstrap;
pub use colours::Reach;
pub use config::{
    FrameSource, KernelMapping, PmapConfig, PmapDefect, PmapError, PmapPaths, RefillConfig, RefillPaths,
    Reload,
};
pub use entries::EntryChoice;
pub use flush::TlbFlush;
pub use pmap::{Pmap, Pmaps};
pub use protect::Whole;
pub use second::HashCensus;
pub use shootdown::FULL_FLUSH_PAGES;
