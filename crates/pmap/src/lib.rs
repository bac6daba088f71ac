//! The machine-dependent layer: page tables, reverse mappings, and the invalidations that their changes oblige to.
//!
//! One code serves i386 (two levels, 4 MB superpages) and amd64 (four levels, 2 MB superpages, a direct map of all
//! memory): what differs is data, in [`pageferry_hal::x86::Format`] and [`pageferry_hal::x86::Layout`].
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
//! Every call that changes valid entries returns a [`Change`]: TLBs may still hold what was there. It must be
//! discharged, by [`Change::flush`] or by a method that says why less will do; several can be merged first, so that one
//! shootdown serves them all.
//!
//! # Locks
//! The reverse mappings have one lock of class `ReverseMap`, taken before the lock of an address space (class `Pmap`);
//! a shootdown takes the lock of class `Shootdown`. Kernel mappings take no lock: whoever owns the addresses owns their
//! entries. Frames for page tables are taken from and given to a [`FrameSource`] with none of these held.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod bootstrap;
mod change;
mod config;
mod frame_state;
mod kernel;
mod loaded;
mod pmap;
mod reverse;
mod shootdown;
mod table;
mod user;
mod window;

pub use bootstrap::Bootstrap;
pub use change::Change;
pub use config::{FrameSource, PmapConfig, PmapError, PmapPaths};
pub use pmap::{Pmap, PmapId, Pmaps};
pub use shootdown::FULL_FLUSH_PAGES;
