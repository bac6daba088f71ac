//! Papers by weight: how many published statements of each are judged here.
//!
//! Who reads a report wants what most of it is about first. A paper of which the same is judged goes before another if
//! more of it is on record, and else by its name, so that the order is the same everywhere.

use pageferry_lab::files::Paper;
use pageferry_lab::judge::{Reproduction, Standing, Statement, statements};
use std::cmp::Reverse;

/// A paper, and what is judged of it.
pub(super) struct Judgement<'a> {
    /// The name of its file.
    pub(super) name: &'a str,
    pub(super) paper: &'a Paper,
    pub(super) statements: Vec<Statement>,
}

impl Judgement<'_> {
    /// Predictions in numbers, or in words: how many agree, and how many there are. What the model was told, fitted to
    /// or can only give says nothing of the paper.
    pub(super) fn tally(&self, in_numbers: bool) -> (usize, usize) {
        let is_meant = |s: &&Statement| s.standing == Standing::Predicted && s.in_numbers == in_numbers;
        let of = self.statements.iter().filter(is_meant);
        (of.clone().filter(|s| s.agrees).count(), of.count())
    }

    /// What comes out, in words: `13 of 18 numbers and 21 of 24 statements in words`; nothing where nothing is
    /// predicted.
    pub(super) fn in_words(&self) -> String {
        let part = |in_numbers: bool, what: &str| {
            let (agree, count) = self.tally(in_numbers);
            (count > 0).then(|| format!("{agree} of {count} {what}"))
        };
        let parts = [part(true, "numbers"), part(false, "statements in words")];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }
}

/// All papers whose experiments were run, by weight.
pub(super) fn by_weight(of: &Reproduction) -> Vec<Judgement<'_>> {
    let all = statements(&of.comparisons);
    let mut found: Vec<Judgement<'_>> = (of.papers.iter())
        .map(|(name, paper)| Judgement {
            name,
            paper,
            statements: all.iter().filter(|s| paper.number(&s.published).is_some()).cloned().collect(),
        })
        .collect();
    // Stable: papers are by their names before.
    found.sort_by_key(|j| Reverse((j.statements.len(), j.paper.numbers.len())));
    found
}
