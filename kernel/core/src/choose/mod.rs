//! Copy or move: which of them a call takes. The arithmetic is in `pageferry_costs`; what either costs on this machine
//! is measured by `measure`.

mod kept_stats;
mod moves;
mod policy;

pub use kept_stats::KeptStats;
pub use moves::Moves;
pub use pageferry_costs::{Peer, Plan};
pub use policy::{Sending, whole_pages};
