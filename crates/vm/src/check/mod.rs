//! Verification: the conservation laws, checked by a walk or where something has changed; the journal that says where; and
//! what tests plant: defects and failing allocations. Without the feature `verify` only the names of defects are left of it,
//! and stand-ins of size zero for all that the rest of the system tells it (`off`).

mod defect;
mod inspect;

#[cfg(feature = "verify")]
mod check;
#[cfg(feature = "verify")]
mod failures;
#[cfg(feature = "verify")]
mod journal;
#[cfg(feature = "verify")]
mod laws;
#[cfg(not(feature = "verify"))]
mod off;
#[cfg(feature = "verify")]
mod paging;
#[cfg(feature = "verify")]
mod plant;
#[cfg(feature = "verify")]
mod probes;
#[cfg(feature = "verify")]
mod register;
#[cfg(feature = "verify")]
mod tally;
#[cfg(feature = "verify")]
mod watch;

pub use defect::Defect;
pub use inspect::StructureCensus;
#[cfg(not(feature = "verify"))]
pub(crate) use off::{Journal, Probes, Register, Tally};
#[cfg(feature = "verify")]
pub use watch::Watch;
#[cfg(feature = "verify")]
pub(crate) use {journal::Journal, probes::Probes, register::Register, tally::Tally};
