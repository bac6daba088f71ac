//! Copy or move: which of them a call takes. The arithmetic is in `pageferry_costs`; what either costs on this machine
//! is measured by `measure`.

mod kept_stats;
mod moves;
mod policy;

pub(crate) use kept_stats::KeptStats;
pub(crate) use moves::Moves;
pub(crate) use pageferry_costs::{Peer, Plan};
pub(crate) use policy::{Sending, whole_pages};
