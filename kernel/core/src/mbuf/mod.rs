//! Mbufs: the pieces that data is in on its way, the pool that they come from, and pages on loan in them.

mod addresses;
mod answers;
mod area;
mod chain;
mod disposable;
mod lending;
mod lent;
#[expect(clippy::module_inception, reason = "the mbuf itself, in the folder that is named after it")]
mod mbuf;
mod placements;
mod placing;
mod pool;
mod receive;

pub use answers::{Answer, Answers};
pub use area::{AreaId, AreaPage, AreaUse};
pub use chain::{Chain, from_bytes, share};
pub use lending::Lenders;
pub use lent::Lent;
pub use mbuf::{CardPage, MBUF_BYTES, Mbuf, SMALL_BYTES};
pub use pool::{MAX_MBUFS, NotDonated, Pool};
