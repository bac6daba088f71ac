//! A cost that is linear in the pages.

use crate::Pays;

/// The cost of one call of `n` pages: `call_cycles + n * page_cycles`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Linear {
    /// Once.
    pub call_cycles: u64,
    /// For each page.
    pub page_cycles: u64,
}

impl Linear {
    /// More than anything is worth.
    pub const NEVER: Linear = Linear { call_cycles: u64::MAX >> 32, page_cycles: 0 };

    /// From the costs of one page and of `pages`; of one alone, where that is all that can be measured.
    pub fn through(one: u64, pages: usize, many: u64) -> Linear {
        let page_cycles = match pages {
            0 | 1 => one,
            _ => many.saturating_sub(one) / (pages as u64 - 1),
        };
        Linear { call_cycles: one.saturating_sub(page_cycles), page_cycles }
    }

    /// The cost of `pages`.
    pub fn of(&self, pages: usize) -> u64 {
        self.call_cycles.saturating_add(self.page_cycles.saturating_mul(pages as u64))
    }

    /// From how many pages on this costs less than `other`, at all numbers of pages from one on.
    pub fn pays_over(&self, other: &Linear) -> Pays<u64> {
        let saved = other.page_cycles.checked_sub(self.page_cycles);
        match (self.call_cycles.checked_sub(other.call_cycles), saved) {
            (None, Some(_)) => Pays::Always,
            (Some(dearer), Some(saved)) if saved > 0 => match dearer / saved + 1 {
                1 => Pays::Always,
                pages => Pays::From(pages),
            },
            // Its pages cost as much or more: what the call saves is used up at some size.
            _ => Pays::Never,
        }
    }
}
