//! How much of what is published is held against runs, and with what outcome.
//!
//! Every result that a paper's file states is counted once. The counts are of statements, not of comparisons: one
//! statement may be compared on several machines.

use super::compare::{Standing, statements};
use super::reproduction::Reproduction;
use crate::files::{Paper, Relation, Role};
use serde::Serialize;

/// How much of what a paper has released as its results is held against runs here, and with what outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Coverage {
    /// Results that are released: each is counted below once.
    pub released: usize,
    /// Those that come out as published.
    pub agree: usize,
    /// Those that do not.
    pub off: usize,
    /// Those that the model was given, was fitted to, or cannot give otherwise.
    pub checks: usize,
    /// Those that say again what another says.
    pub restated: usize,
    /// Those that nothing here is held against.
    pub not_judged: usize,
    /// Those whose runs were not made.
    pub not_run: usize,
    /// Results that the papers state and that are held out, beside the released ones: predictions.
    pub held_out: usize,
}

impl Coverage {
    /// Those that are held against runs and could come out otherwise.
    pub fn judged(&self) -> usize {
        self.agree + self.off
    }

    /// The sum of two.
    #[must_use]
    pub fn and(self, other: Coverage) -> Coverage {
        Coverage {
            released: self.released + other.released,
            agree: self.agree + other.agree,
            off: self.off + other.off,
            checks: self.checks + other.checks,
            restated: self.restated + other.restated,
            not_judged: self.not_judged + other.not_judged,
            not_run: self.not_run + other.not_run,
            held_out: self.held_out + other.held_out,
        }
    }
}

impl Reproduction {
    /// How much of the results of `paper` is held against runs.
    pub fn coverage(&self, paper: &Paper) -> Coverage {
        let statements = statements(&self.comparisons);
        let mut found = Coverage::default();
        for number in paper.numbers.iter().filter(|number| number.role == Role::Result) {
            if number.relation == Relation::HeldOut {
                found.held_out += 1;
                continue;
            }
            found.released += 1;
            let statement = statements.iter().find(|s| s.published == number.id);
            let counted = match statement {
                _ if number.restates.is_some() => &mut found.restated,
                _ if number.not_judged.is_some() => &mut found.not_judged,
                None => &mut found.not_run,
                Some(s) if s.standing != Standing::Predicted => &mut found.checks,
                Some(s) if s.agrees => &mut found.agree,
                Some(_) => &mut found.off,
            };
            *counted += 1;
        }
        found
    }

    /// The same of all papers together.
    pub fn covered(&self) -> Coverage {
        self.papers.values().map(|paper| self.coverage(paper)).fold(Coverage::default(), Coverage::and)
    }
}
