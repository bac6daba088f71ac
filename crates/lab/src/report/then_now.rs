//! Tables of then and now: from which size on each mechanism pays, and how good the kernel's own choices are.

use super::reproduction::Reproduction;
use crate::judge::{Chosen, Crossover, NOW, Pays, SHARE_OF_BEST};
use crate::text::size;
use serde::Serialize;

/// A mechanism: from which size on it pays.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PaysRow {
    /// The experiment's title.
    pub experiment: String,
    /// The mechanism, what it replaces, and under which condition.
    pub mechanism: String,
    /// The machine of the time.
    pub machine: String,
    /// From which size on, there.
    pub then: String,
    /// From which size on, on a current machine; empty if it was not run.
    pub now: String,
}

/// A choice by the kernel over all sizes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ChosenRow {
    /// The experiment's title.
    pub experiment: String,
    /// The line.
    pub line: String,
    /// The machine.
    pub machine: String,
    /// At how many sizes it is near the best fixed choice, or better.
    pub near: usize,
    /// At how many sizes it was run.
    pub sizes: usize,
    /// The least share of the best, and where.
    pub worst: String,
    /// Where it is not near, with the share of the best.
    pub exceptions: String,
}

fn words(pays: Pays) -> String {
    match pays {
        Pays::Always => "always".into(),
        Pays::From(bytes) => format!("from {}", size(bytes)),
        Pays::Never => "never".into(),
    }
}

impl Reproduction {
    fn title_of(&self, experiment: &str) -> String {
        let found = self.experiments.iter().find(|e| e.name == experiment);
        found.map_or_else(|| experiment.to_owned(), |e| e.file.title.clone())
    }

    /// From which size on each mechanism pays: then, on each machine of the time, and now.
    pub fn pays_rows(&self) -> Vec<PaysRow> {
        let now = |experiment: &str, mechanism: &str| {
            let same =
                |c: &&Crossover| c.machine == NOW && c.experiment == experiment && c.mechanism == mechanism;
            self.crossovers.iter().find(same).map(|c| words(c.pays)).unwrap_or_default()
        };
        let then = self.crossovers.iter().filter(|c| c.machine != NOW);
        let row = |c: &Crossover| PaysRow {
            experiment: self.title_of(&c.experiment),
            mechanism: match &c.holds_if {
                Some(holds_if) => format!("{} over {}, if {holds_if}", c.mechanism, c.over),
                None => format!("{} over {}", c.mechanism, c.over),
            },
            machine: c.machine.clone(),
            then: words(c.pays),
            now: now(&c.experiment, &c.mechanism),
        };
        then.map(row).collect()
    }

    /// How near the kernel's choices come to the best fixed ones.
    pub fn chosen_rows(&self) -> Vec<ChosenRow> {
        let key = |c: &Chosen| (c.experiment.clone(), c.machine.clone(), c.line.clone());
        let groups = self.chosen.chunk_by(|a, b| key(a) == key(b));
        let in_words = |c: &Chosen, one: bool| {
            let share = format!("{:.0} % of {}", 100.0 * c.ratio, c.best);
            if one { share } else { format!("{share} at {}", size(c.x)) }
        };
        let row = |group: &[Chosen]| {
            let far = group.iter().filter(|c| c.ratio < SHARE_OF_BEST);
            let worst = group.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio)).expect("a group has one");
            let one = group.len() == 1;
            ChosenRow {
                experiment: self.title_of(&worst.experiment),
                line: worst.line.clone(),
                machine: worst.machine.clone(),
                near: group.len() - far.clone().count(),
                sizes: group.len(),
                worst: in_words(worst, one),
                exceptions: far.map(|c| in_words(c, one)).collect::<Vec<_>>().join("; "),
            }
        };
        groups.map(row).collect()
    }
}
