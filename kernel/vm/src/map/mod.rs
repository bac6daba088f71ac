//! Address spaces: the map, its entries, the tree that orders them and the lock that guards them; the calls that change
//! a map; faults, fork, wiring and locking; and the kernel's own addresses.

mod advise;
mod clip;
mod colours;
mod entry;
mod fault;
mod fault_chain;
mod fork;
mod kmem;
mod kva;
mod lock;
mod lookup;
mod map;
mod mlock;
mod retries;
mod space;
mod tree;
mod wire;

pub use advise::Madvise;
pub(crate) use clip::collect_entries;
pub use entry::{Advice, Inherit};
pub(crate) use entry::{AmapRef, Attributes, Entry, ObjectRef};
pub(crate) use fork::{copy_entry, share_entry};
pub use kmem::KernelMemory;
pub(crate) use kva::KernelMap;
pub(crate) use lock::{MapLock, MapWrite};
pub(crate) use lookup::of_colour;
pub(crate) use map::Map;
pub(crate) use mlock::with_resident;
pub use retries::Retries;
pub(crate) use space::page_range;
pub use space::{MapAddr, Mapped};
