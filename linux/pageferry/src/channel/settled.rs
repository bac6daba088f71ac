//! What the two sides of a channel have agreed on.

use crate::wire::{Level, Verb};

/// What the two sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// What loans promise.
    pub(crate) level: Level,
    /// Verbs that may be used, a bit each.
    pub(crate) verbs: u32,
    /// Both trust each other.
    pub(crate) trusting: bool,
}

impl Settled {
    /// Whether messages may come or go by this verb.
    pub(crate) fn allows(&self, verb: Verb) -> bool {
        self.verbs & verb.bit() != 0
    }
}
