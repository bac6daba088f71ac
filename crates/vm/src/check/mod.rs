//! Verification: the conservation laws, checked by a walk or where something has changed; the journal that says where; and
//! what tests plant: defects and failing allocations.

mod check;
mod defect;
mod failures;
mod inspect;
mod journal;
mod laws;
mod paging;
mod probes;
mod tally;
mod watch;

pub use defect::Defect;
pub(crate) use failures::Failures;
pub use inspect::StructureCensus;
pub(crate) use journal::Journal;
pub(crate) use probes::Probes;
pub(crate) use tally::Tally;
pub use watch::Watch;
