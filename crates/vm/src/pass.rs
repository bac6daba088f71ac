//! Passing map entries between address spaces (UVM paper, 4.3).

use crate::error::VmError;
use crate::space::Space;
use pageferry_hal::{Machine, Threads, Va};

/// What becomes of the memory that is passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PassMode {
    /// Both see each other's writes.
    Share,
    /// The receiver gets a copy, made when one of them writes.
    Copy,
    /// The sender loses it.
    Donate,
    /// The sender loses it and has zero-fill memory in its place.
    DonateZero,
}

/// Passes a range of `from` to `to`.
///
/// # Errors
/// [`VmError`]; nothing has changed then.
pub fn pass<M: Machine>(
    from: &Space<M>,
    to: &Space<M>,
    t: &dyn Threads,
    at: Va,
    len_bytes: usize,
    to_at: Option<Va>,
    mode: PassMode,
) -> Result<Va, VmError> {
    let _ = (from, to, t, at, len_bytes, to_at, mode);
    Err(VmError::NoMemory)
}
