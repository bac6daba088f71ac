//! What moves between protection domains, for a recorder to draw.

use crate::Pfn;

/// What is on its way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Flow {
    /// A page of data, in its frame.
    Page(Pfn),
    /// A range of map entries, by a number that its passing gives it.
    Range(u64),
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowStep {
    /// It leaves its sender.
    Sent,
    /// A domain has it, or a copy of it.
    Received,
    /// It is on its way no more.
    Done,
}
