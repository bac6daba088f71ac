//! What the system tells its checks, and what tests plant in it: a journal of changes, a register of spaces and
//! objects, a tally of what callers hold; defects, and allocations that fail. Without the feature `verify` only the
//! names of defects are left of it, and stand-ins of size zero (`off`).

mod defect;
#[cfg(feature = "verify")]
mod failures;
#[cfg(feature = "verify")]
mod journal;
#[cfg(not(feature = "verify"))]
mod off;
#[cfg(feature = "verify")]
mod probes;
#[cfg(feature = "verify")]
mod register;
#[cfg(feature = "verify")]
mod tally;

pub use defect::VmDefect;
#[cfg(not(feature = "verify"))]
pub(crate) use off::{Journal, Probes, Register, Tally};
#[cfg(feature = "verify")]
pub(crate) use {journal::Changed, journal::Journal, probes::Probes, register::Register, tally::Tally};
