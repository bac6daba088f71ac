//! Copy or move: what either costs on this machine, and which of them a call takes.

mod costs;
mod loan_stats;
mod measure;
mod passing;
mod policy;
mod rally;
mod requests;

pub(crate) use costs::Moves;
pub use costs::{Linear, MoveCosts};
pub(crate) use loan_stats::KeptStats;
pub(crate) use measure::measure;
pub use policy::{Arrived, Carrier};
pub(crate) use policy::{Peer, Plan, Sending, whole_pages};
