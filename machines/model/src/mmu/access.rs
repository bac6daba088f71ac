//! What becomes of an access, and who made it.

use pageferry_hal::{Miss, Pa, Trap};
use std::panic::Location;

/// A place in kernel code.
pub type Site = &'static Location<'static>;

/// An access that did not happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exception {
    /// The kernel takes a fault.
    Trap(Trap),
    /// The kernel's refill handler is asked first.
    Miss(Miss),
}

/// Where an access leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) pa: Pa,
    /// By an entry of the TLB, and so one look-up for each line.
    pub(crate) by_tlb: bool,
}
