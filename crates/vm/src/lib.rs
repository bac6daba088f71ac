//! Machine-independent virtual memory, modelled on NetBSD's UVM.
//!
//! A process's memory is described twice. The [`Space`] has a *map*: sorted entries, each with an upper layer, an *amap*
//! of *anons* (pages of anonymous memory), and a lower layer, an [`Object`]. That is the truth. The page tables below
//! (`pageferry_pmap`) cache it: they may forget a page at any time, and a page fault looks it up again (UVM paper, 3.1).
//!
//! ```text
//!  Space ── map lock ── Map ── Entry ─┬─ Amap ── slots ── Anon ── frame
//!    │                                └─ Object ── pages ──────── frame
//!    └─ Pmap (page tables)                 Frames: who owns each frame, how often it is wired and lent
//! ```
//!
//! Everything is reference-counted by what it is for: anons by slots, amaps by entries (slot by slot), objects by entries
//! and holders, frames by one owner and any number of wires and loans.
//!
//! # Locks
//! In the order of the UVM paper (3.2): map (may sleep), amap, object, anon, page queues; then the leaf locks of the
//! kernel map and the zones, then those of the pmap. A call that takes `&dyn Threads` locks a map and may sleep. Changes of
//! mappings are flushed before the lock goes that protects what was mapped, and always before a frame is free again.
//!
//! # Failures
//! Whatever a caller gets wrong, and running out of memory, is a [`VmError`]; nothing has changed then. What this floor
//! gets wrong is a panic, or found by [`Vm::check`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod advise;
mod amap;
mod anon;
mod batches;
mod check;
mod config;
mod daemon;
mod defect;
mod entry;
mod error;
mod failures;
mod fault;
mod fork;
mod frame;
mod inspect;
mod io;
mod journal;
mod kernel_map;
mod loan;
mod loan_history;
mod map;
mod map_lock;
mod memory_lock;
mod object;
mod object_loan;
mod pager;
mod pass;
mod probes;
mod push_down;
mod queues;
mod quick_ref;
mod slot_refs;
mod space;
mod structures;
mod swap;
mod tally;
mod transfer;
mod tree;
mod vm;
mod watch;
mod wire;

pub use advise::Advise;
pub use config::{PagingConfig, PagingPaths, VmConfig, VmPaths};
pub use defect::Defect;
pub use entry::{Advice, Inherit};
pub use error::VmError;
pub use frame::{FrameInfo, FrameState, KernelUse};
pub use inspect::StructureCensus;
pub use kernel_map::KernelMemory;
pub use loan::{AnonLoan, KernelLoan};
pub use loan_history::{LoanHistory, LoanOutcome};
pub use object::{Backing, Object, Pager, PagerError};
pub use pass::{PassMode, pass, passable};
pub use push_down::PushDown;
pub use queues::Queue;
pub use quick_ref::{QUICK_REF_PAGES, QuickRef, quick_ref};
pub use space::{Mapped, Place, Space};
pub use swap::SwapCensus;
pub use transfer::{KernelPages, Refused};
pub use vm::Vm;
pub use watch::Watch;
pub use wire::Wired;
