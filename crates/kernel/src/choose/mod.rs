//! Copy or move: what either costs on this machine, and which of them a call takes.

mod measure;
mod policy;
mod switch_cost;

pub(crate) use measure::Moves;
pub use measure::{Linear, MoveCosts};
pub use policy::Carrier;
pub(crate) use policy::{Plan, Sending, Sink, whole_pages};
