//! Machine-independent virtual memory, modelled on NetBSD's UVM.
//!
//! A process's memory is described twice. The [`Space`] has a *map*: sorted entries, each with an upper layer, an
//! *amap* of *anons* (pages of anonymous memory), and a lower layer, an [`Object`]. That is the truth. The page tables
//! below (`pageferry_pmap`) cache it: they may forget a page at any time, and a page fault looks it up again (UVM
//! paper, 3.1).
//!
//! ```text
//!  Space ── map lock ── Map ── Entry ─┬─ Amap ── slots ── Anon ── frame
//!    │                                └─ Object ── pages ──────── frame
//!    └─ Pmap (page tables)                 Frames: who owns each frame, how often it is wired and lent
//! ```
//!
//! Everything is reference-counted by what it is for: anons by slots, amaps by entries (slot by slot), objects by
//! entries and holders, frames by one owner and any number of wires and loans.
//!
//! # Rooms
//! * `page`: frames, the paging queues, the page daemon, the swap area, requests to the disk.
//! * `anon` and `object`: the two layers.
//! * `shadow`: the other way to have anonymous memory, chains of objects; then there are no amaps and anons.
//! * `map`: spaces, maps, entries, faults, fork, wiring and locking, and the kernel's own addresses.
//! * `movers`: loan, transfer, pass, push down, quick references.
//! * `probe`: what the system tells its checks, and what tests plant. `check`: the conservation laws. (Feature
//!   `verify`.)
//!
//! Data comes first (`frame`, `anon`, `amap`, `object`, `entry`, `map`) and knows nothing of the system; [`Vm`] and
//! [`Space`] hold it together; what is done with it lies above them (`life`, `slots`, `clip`, `fault`, ...). So no file
//! imports one that imports it.
//!
//! Calls do go round, as in NetBSD: a fault takes a frame, for want of one the page daemon takes it from an anon or an
//! object, which gives up its mappings, and the anon or object that goes gives its frames back. All of these are
//! methods of [`Vm`], and that is the one knot; the order of locks is what keeps it from closing.
//!
//! # Locks
//! In the order of the UVM paper (3.2): map (may sleep), amap, object, anon, page queues; then the leaf locks of the
//! kernel map and the zones, then those of the pmap. A call that takes `&dyn Threads` locks a map and may sleep.
//! Changes of mappings are flushed before the lock goes that protects what was mapped, and always before a frame is
//! free again.
//!
//! # Failures
//! Whatever a caller gets wrong, and running out of memory, is a [`VmError`]; nothing has changed then. What this floor
//! gets wrong is a panic, or found by [`Vm::check`].
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "verify"), allow(dead_code, unused_imports, reason = "only checks use some of it"))]
#![allow(clippy::module_inception, reason = "a room is named after the main thing in it")]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod anon;
mod check;
mod config;
mod counter;
mod errno;
mod error;
mod map;
mod movers;
mod object;
mod page;
mod probe;
mod shadow;
mod structures;
mod vm;

pub use check::StructureCensus;
#[cfg(feature = "verify")]
pub use check::Watch;
pub use config::{
    Anonymous, BufferHeads, FreeLists, FreedTo, LoanLocking, PagingConfig, PagingPaths, ShadowConfig,
    ShadowPaths, StructureSizes, StructuresConfig, TransferConfig, VmConfig, VmPaths,
};
pub use counter::VmCounter;
pub use error::VmError;
pub use map::{Advice, Inherit, KernelMemory, Madvise, MapAddr, Mapped, Retries};
pub use movers::{
    AnonLoan, Given, KernelLoan, KernelPages, LoanHistory, LoanOutcome, PushDown, QUICK_REF_PAGES, QuickRef,
    Refused, pass, passable, quick_ref,
};
pub use object::{Backing, Object, Pager, PagerError, VnodePager};
pub use page::{FrameInfo, FrameState, KernelUse, Queue, SwapCensus, Wired};
pub use pageferry_abi::PassMode;
pub use probe::VmDefect;
pub use shadow::ShadowCensus;
pub use vm::{Space, Vm};
