//! Anonymous memory as BSD VM has it from Mach: chains of shadow objects in place of amaps and anons (UVM paper, 2.1;
//! 4.4BSD-Lite, `vm_object.c`, `vm_fault.c`, `vm_map.c`).
//!
//! * `chains`: which object stands behind which.
//! * `copy`: a new object before another, and behind it.
//! * `collapse`: making chains shorter.
//! * `census`: how long chains are, and what is held that nobody can reach.

mod census;
mod chains;
mod collapse;
mod copy;

pub use census::ShadowCensus;
pub(crate) use census::{Reached, reach};
pub(crate) use chains::{Chains, ChainsGuard};
pub(crate) use collapse::collapse;
