//! The conservation laws of memory, checked by a walk over everything or where something has changed; and how tests
//! plant what a check is to find. Without the feature `verify` only looking from outside is left (`inspect`).

#[cfg(feature = "verify")]
mod check;
mod inspect;
#[cfg(feature = "verify")]
mod laws;
#[cfg(feature = "verify")]
mod paging;
#[cfg(feature = "verify")]
mod plant;
#[cfg(feature = "verify")]
mod shadow;
#[cfg(feature = "verify")]
mod watch;

pub use inspect::StructureCensus;
#[cfg(feature = "verify")]
pub use watch::Watch;
