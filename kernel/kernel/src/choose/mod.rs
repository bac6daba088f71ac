//! Copy or move: what either costs on this machine, and which of them a call takes. The arithmetic is in
//! `pageferry_costs`.

mod kept_stats;
mod measure;
mod moves;
mod passing;
mod policy;
mod rally;
mod requests;

pub(crate) use kept_stats::KeptStats;
pub(crate) use measure::measure;
pub(crate) use moves::Moves;
pub(crate) use pageferry_costs::{Peer, Plan};
pub(crate) use policy::{Sending, whole_pages};
