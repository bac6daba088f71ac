//! Memory that goes from process to process: offers, by their numbers, and how what is offered is passed (UVM paper,
//! 4.3). Plain values: they hold nothing, take no lock and cannot fail.

use crate::Pid;
use pageferry_hal::Va;

/// What becomes of the memory that is passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PassMode {
    /// Both see each other's writes.
    Share,
    /// The receiver gets a copy, made when one of them writes.
    Copy,
    /// The sender loses it.
    Donate,
    /// The sender loses it and has zero-fill memory in its place, where something was mapped.
    DonateZero,
}

/// The number of an offer; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExportId(pub u64);

/// The processes that may import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportTo {
    /// Every process that knows the number.
    Anyone,
    /// This process.
    Process(Pid),
}

/// What an import brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Where it begins in the importer's address space.
    pub at: Va,
    /// How long it is, in whole pages.
    pub len_bytes: usize,
}
