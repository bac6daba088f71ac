//! For tests: calls that fail on demand, and planted defects. Only with the feature `verify`.

mod calls;
mod defects;

pub(crate) use calls::injected;
pub use calls::{fail, fail_once, restore, uses};
pub use defects::{Defect, heal, plant};
pub(crate) use defects::{planted, widen};

pub use crate::view::look_at_leases;
