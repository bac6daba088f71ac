//! What a workload reads of an experiment's file: its parameters with their ranges, and its choices with their words.
//!
//! A workload says it by its type of parameters ([`Parameters`](super::Parameters)). A file must have these and no
//! others: one that is missing could not be read, and one too many would be a setting that does nothing.

use super::experiment_file::ExperimentFile;
use super::units::contradicted;
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

/// Metrics that a run can have, with their units.
pub type Metrics = BTreeMap<String, String>;

/// What is known of the workloads that there are.
#[derive(Clone)]
pub struct KnownWorkloads<'a> {
    /// What each reads, by their names.
    pub reads: BTreeMap<&'static str, &'static [Reads]>,
    /// What runs of the one that is named can have.
    pub metrics: &'a dyn Fn(&str) -> Metrics,
}

/// What `workload` of a file reads.
pub(super) fn of(workload: &str, known: &KnownWorkloads<'_>) -> Result<&'static [Reads], Fault> {
    let known = &known.reads;
    known.get(workload).copied().ok_or_else(|| Fault {
        key: "workload".into(),
        problem: format!(
            "unknown workload `{workload}`, expected one of: {} (of your own: `pageferry_cli::main_with`)",
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
    if let Some(unit) = contradicted(key, &p.unit) {
        let problem =
            format!("`{}`, expected `{unit}`: the name says it, and the workload reads it so", p.unit);
        return Err(Fault { key: format!("parameters.{key}.unit"), problem, suggestion: None });
    }
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
    there: impl Iterator<Item = &'a String> + Clone,
    read: &[&str],
) -> Result<(), Fault> {
    // A name that is misspelt is a stranger, and the right one is missing: the stranger has a place in the file.
    let missing: Vec<&str> =
        read.iter().copied().filter(|name| there.clone().all(|there| there != *name)).collect();
    if let Some(name) = there.clone().find(|name| !read.contains(&name.as_str())) {
        return Err(stranger(table, name, read, &missing));
    }
    let Some(missing) = missing.first() else { return Ok(()) };
    let problem = format!("`{missing}` is missing, which the workload reads");
    Err(Fault { key: table.into(), problem, suggestion: None })
}

/// That `name` in `parameters` or `choices`, which is `table`, is none that the workload reads, if so.
pub(super) fn no_such(table: &str, name: &str, reads: &[Reads]) -> Option<Fault> {
    let numbers = table == "parameters";
    let of_kind = reads.iter().filter(|reads| matches!(reads.values, Values::Numbers { .. }) == numbers);
    let read: Vec<&str> = of_kind.map(|reads| reads.key).collect();
    (!read.contains(&name)).then(|| stranger(table, name, &read, &[]))
}

fn stranger(table: &str, name: &str, read: &[&str], missing: &[&str]) -> Fault {
    let near = |names: &[&str]| nearest(name, names.iter().copied()).map(str::to_owned);
    let problem = if read.is_empty() {
        "the workload reads none".to_owned()
    } else {
        format!("the workload reads no such thing, only {}", read.join(", "))
    };
    Fault { key: format!("{table}.{name}"), problem, suggestion: near(missing).or_else(|| near(read)) }
}
