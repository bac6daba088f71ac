//! Making TLBs forget: the own one, those of other CPUs, and what a change of mappings owes until then.

mod invalidations;
mod owed;
mod own;
mod part;
mod reserved;
mod shootdown;
mod switch;

pub use invalidations::Invalidations;
pub use owed::TlbFlush;
