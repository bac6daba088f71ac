//! Model against metal: what the modelled machine and QEMU's processors did in the same runs of the same kernel.
//!
//! # What it holds
//! The file that `cargo run -p xtask -- metal verify-all --csv` writes, as part of the program. Nothing runs on metal
//! while a report is made: a report is the same everywhere.

use pageferry_lab::text::grouped;
use serde::{Deserialize, Serialize};

const FILE: &str = include_str!("../metal/qemu-amd64.csv");

/// A line of the file.
#[derive(Clone, Debug, Deserialize)]
struct Run {
    what: String,
    experiment: String,
    scheme: String,
    cpus: u32,
    seed: String,
    compared: u64,
    differ: u64,
}

/// Runs of one kind.
#[derive(Serialize)]
pub(super) struct Kind {
    /// How they were made.
    title: &'static str,
    about: &'static str,
    /// What was compared, and how much of it differs.
    unit: &'static str,
    compared: String,
    differ: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    experiment: String,
    scheme: String,
    cpus: u32,
    order: String,
    compared: String,
    differ: String,
}

/// The kinds of the file: name, title, what is said of them, and what they compare.
const KINDS: [(&str, &str, &str, &str); 2] = [
    (
        "conducted",
        "Event by event, on several CPUs",
        "The model writes down in which order its CPUs made their calls, and the kernel on metal makes its own in that \
         order. Every load and store of a page table, invalidation, fault, interrupt and switch is compared, with \
         addresses, values and the accessed bits that the processors have set.",
        "events",
    ),
    (
        "ring 3",
        "Counts, with the programs in ring 3",
        "The papers' programs, from the same source, as closures on the model and as processes of their own privilege \
         on metal. What is counted of the measured part is compared by name. Faults of a program's own image and stack \
         are left out, by address; so are the page tables of a process that ends meanwhile.",
        "counts",
    ),
];

fn runs() -> Vec<Run> {
    let runs: Result<_, _> = csv::Reader::from_reader(FILE.as_bytes()).deserialize().collect();
    runs.expect("the file is part of the program, and a test reads it")
}

/// All that was compared, by kind.
pub(super) fn kinds() -> Vec<Kind> {
    let runs = runs();
    let kind = |&(name, title, about, unit): &(&str, &'static str, &'static str, &'static str)| {
        let here: Vec<_> = runs.iter().filter(|run| run.what == name).collect();
        let sum = |of: fn(&Run) -> u64| grouped(here.iter().map(|run| of(run)).sum::<u64>() as i64);
        Kind {
            title,
            about,
            unit,
            compared: sum(|run| run.compared),
            differ: sum(|run| run.differ),
            rows: here.iter().map(|run| row(run)).collect(),
        }
    };
    KINDS.iter().map(kind).collect()
}

fn row(run: &Run) -> Row {
    Row {
        experiment: run.experiment.replace(',', ", "),
        scheme: run.scheme.clone(),
        cpus: run.cpus,
        order: if run.seed == "timed" { "by clocks".into() } else { format!("seed {}", run.seed) },
        compared: grouped(run.compared as i64),
        differ: grouped(run.differ as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_a_table_of_zeros() {
        let runs = runs();
        for (name, ..) in KINDS {
            assert!(runs.iter().filter(|run| run.what == name).count() >= 25, "{name}");
        }
        for run in runs {
            assert!(KINDS.iter().any(|(name, ..)| *name == run.what), "{run:?}");
            assert!(run.differ == 0 && run.compared > 0, "{run:?}");
        }
    }
}
