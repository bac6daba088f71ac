//! What a workload reads of an experiment's file: its parameters with their ranges, and its choices with their words.
//!
//! A workload says it by its type of parameters ([`Parameters`](super::Parameters)). A file must have these and no
//! others: one that is missing could not be read, and one too many would be a setting that does nothing.

use super::experiment_file::ExperimentFile;
use pageferry_sourced::{Fault, nearest};
use std::collections::BTreeMap;

/// One thing that a workload reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reads {
    /// Its key, in `parameters` or in `choices`.
    pub key: &'static str,
    /// What may stand there.
    pub values: Values,
}

/// What may stand somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// A whole number: a parameter.
    Numbers {
        /// The least that is allowed.
        min: i64,
        /// The greatest that is allowed.
        max: i64,
    },
    /// One of these words: a choice. None where the file itself says which there are.
    Words(&'static [&'static str]),
}

/// What each workload reads, by their names.
pub type KnownWorkloads = BTreeMap<&'static str, &'static [Reads]>;

/// What `workload` of a file reads.
pub(super) fn of(workload: &str, known: &KnownWorkloads) -> Result<&'static [Reads], Fault> {
    known.get(workload).copied().ok_or_else(|| Fault {
        key: "workload".into(),
        problem: format!(
            "unknown workload `{workload}`, expected one of: {}",
            known.keys().copied().collect::<Vec<_>>().join(", ")
        ),
        suggestion: nearest(workload, known.keys().copied()).map(str::to_owned),
    })
}

/// The greatest number that `key` may be.
pub(super) fn max_of(reads: &[Reads], key: &str) -> i64 {
    let max = |reads: &Reads| match reads.values {
        Values::Numbers { max, .. } if reads.key == key => Some(max),
        _ => None,
    };
    reads.iter().find_map(max).unwrap_or(i64::MAX)
}

/// Refuses a file whose parameters and choices are not `reads`.
pub(super) fn check(file: &ExperimentFile, reads: &[Reads]) -> Result<(), Fault> {
    let keys = |numbers: bool| -> Vec<&str> {
        let of_kind = |reads: &&Reads| matches!(reads.values, Values::Numbers { .. }) == numbers;
        reads.iter().filter(of_kind).map(|reads| reads.key).collect()
    };
    same_names("parameters", file.parameters.keys(), &keys(true))?;
    same_names("choices", file.choices.keys(), &keys(false))?;
    reads.iter().try_for_each(|Reads { key, values }| match values {
        Values::Numbers { min, max } => check_numbers(file, key, *min, *max),
        Values::Words(known) => check_words(file, key, known),
    })
}

fn check_numbers(file: &ExperimentFile, key: &str, min: i64, max: i64) -> Result<(), Fault> {
    let p = &file.parameters[key];
    let numbers =
        [("min", Some(p.min)), ("value", Some(p.value)), ("reproduce", p.reproduce), ("quick", p.quick)];
    for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
        let min = if name == "min" { min } else { p.min };
        if !(min..=max).contains(&number) {
            let (key, problem) =
                (format!("parameters.{key}.{name}"), format!("{number}, expected {min} to {max}"));
            return Err(Fault { key, problem, suggestion: None });
        }
    }
    Ok(())
}

fn check_words(file: &ExperimentFile, key: &str, known: &[&str]) -> Result<(), Fault> {
    let choice = &file.choices[key];
    // What files there are, nothing here knows.
    let unknown = choice.allowed.iter().find(|word| !known.contains(&word.as_str()));
    let Some(word) = unknown.filter(|_| !choice.or_file) else { return Ok(()) };
    Err(Fault {
        key: format!("choices.{key}.allowed"),
        problem: format!("`{word}`, expected some of: {}", known.join(", ")),
        suggestion: nearest(word, known.iter().copied()).map(str::to_owned),
    })
}

fn same_names<'a>(
    table: &str,
    mut there: impl Iterator<Item = &'a String> + Clone,
    read: &[&str],
) -> Result<(), Fault> {
    if let Some(missing) = read.iter().find(|name| there.clone().all(|there| there != *name)) {
        let problem = format!("`{missing}` is missing, which the workload reads");
        return Err(Fault { key: table.into(), problem, suggestion: None });
    }
    let Some(name) = there.find(|name| !read.contains(&name.as_str())) else { return Ok(()) };
    let suggestion = nearest(name, read.iter().copied()).map(str::to_owned);
    let problem = if read.is_empty() {
        "the workload reads none".to_owned()
    } else {
        format!("the workload reads no such thing, only {}", read.join(", "))
    };
    Err(Fault { key: format!("{table}.{name}"), problem, suggestion })
}
