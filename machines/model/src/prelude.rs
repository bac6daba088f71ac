//! What a first test needs: `use pageferry_model::prelude::*;`
//!
//! The machine and its traits, what addresses and mappings are made of, and the kit of tests. Atomics of [`sync`] are
//! to be named one by one: they have the names of `core`'s.

pub use crate::machine::{Model, Options, RunError, Schedule};
pub use crate::testing::{self, Tables};
pub use crate::{MachineConfig, sync};
pub use pageferry_hal::{
    Access, Account, Asid, Attr, Cause, Context, ContextId, CpuId, CpuSet, Cycles, Flush, Instructions,
    Interrupt, LockClass, Machine, Mode, Oracle, PAGE_SIZE, Pa, Pfn, SpaceId, SpinLock, Trap, TrapKind, Tte,
    Va, Width,
};
