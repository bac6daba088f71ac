//! Numbers of machine files.

use pageferry_sourced::Sourced;

/// A whole number with its source.
pub type Number = Sourced<u64>;
