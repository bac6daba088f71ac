//! Published numbers: `papers/*.toml`, and a paper of one's own, which an experiment names by a path beside its file.
//!
//! What can fail: there is no such paper; its file cannot be read; it has the name of one that is built in, or a number
//! that another has, too; or a number that is not stated as its relation says.

use super::catalogue::{self, Kind};
use super::quotes::Quote;
use crate::error::LabError;
use crate::text::{number, report_unit};
use pageferry_sourced::{ConfigError, Fault, load_toml};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A paper and the numbers of it that are used here.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Title.
    pub title: String,
    /// Authors.
    pub authors: String,
    /// Where and when it appeared.
    pub venue: String,
    /// How sources call it.
    pub short: String,
    /// The numbers.
    #[serde(default, rename = "number")]
    pub numbers: Vec<Published>,
}

/// Whether a number was given to the model or measured by the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A property of the hardware or the set-up; the model was given it.
    Input,
    /// An outcome.
    Result,
}

/// How a number is stated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// As a value.
    Eq,
    /// As an approximate value.
    About,
    /// As a range.
    Range,
    /// As an order or a tendency, in words.
    Direction,
    /// As a number that is withheld: it cannot be compared with, and what is found here is predicted without it.
    HeldOut,
}

/// One published number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its name, unique in all papers.
    pub id: String,
    /// The section that states it.
    pub section: String,
    /// The machine, in the paper's words.
    #[serde(default)]
    pub machine: String,
    /// What is stated.
    pub metric: String,
    /// The value.
    pub value: Option<f64>,
    /// The lower end of a range.
    pub low: Option<f64>,
    /// The upper end of a range.
    pub high: Option<f64>,
    /// The statement in words.
    pub direction: Option<String>,
    /// Its unit.
    pub unit: String,
    /// How it is stated.
    pub relation: Relation,
    /// Given or measured.
    pub role: Role,
    /// Why it does not come out here, where that is known. `book/src/caveats.md` says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
    /// The figures of that reason that are those of runs.
    #[serde(default, rename = "quote", skip_serializing_if = "Vec::is_empty")]
    pub quotes: Vec<Quote>,
    /// Its other figures, as they stand there: of the paper, of constants, of runs that `reproduce` does not make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<String>,
    /// Why nothing here is held against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<String>,
    /// The id of the statement that it repeats, or sums up: what is found about that one is found about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restates: Option<String>,
    /// Why what is held against it cannot come out otherwise: that checks the model, and tells nothing of the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_construction: Option<String>,
}

impl Published {
    /// The statement for tables, in the unit that reports have it in: `67 %`, `500 to 1000 cycles`, `none`.
    pub fn shown(&self) -> String {
        let about = if self.relation == Relation::About { "about " } else { "" };
        let (unit, by) = report_unit(&self.unit);
        let number = match (self.value, self.low, self.high) {
            (Some(value), ..) => format!("{about}{}", number(value * by)),
            (None, Some(low), Some(high)) => format!("{} to {}", number(low * by), number(high * by)),
            _ if self.relation == Relation::HeldOut => return "held out".to_owned(),
            _ => return self.direction.clone().unwrap_or_default(),
        };
        format!("{number} {unit}").trim_end().to_owned()
    }
}

impl Paper {
    /// The paper called `name`.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be used.
    pub fn find(name: &str) -> Result<Paper, LabError> {
        let source = catalogue::find(Kind::Paper, name)?;
        Ok(load_toml(&source.file, &source.text)?)
    }

    /// The paper that the file at `from` calls `name`: one that is built in, or a path beside that file. A name that
    /// nothing has is a fault of the key `paper`.
    pub(super) fn named(name: &str, from: &str) -> Result<Result<Paper, Fault>, LabError> {
        if !name.ends_with(".toml") {
            return match Paper::find(name) {
                Err(LabError::Unknown { nearest, known, .. }) => Ok(Err(Fault {
                    key: "paper".into(),
                    problem: format!(
                        "there is no paper `{name}`, expected one of {}, or a path that ends in .toml",
                        known.join(", ")
                    ),
                    suggestion: nearest,
                })),
                other => other.map(Ok),
            };
        }
        let path = Path::new(from).parent().unwrap_or(Path::new("")).join(name);
        let source = catalogue::find(Kind::Paper, &path.display().to_string())?;
        let paper: Paper = load_toml(&source.file, &source.text).map_err(of_number)?;
        let checked = valid_name(&source.name).and_then(|()| paper.validate());
        checked.map_err(|Fault { key, problem, suggestion }| {
            let error = ConfigError::of_value(&source.file, &source.text, &key, problem);
            ConfigError { suggestion, ..error }
        })?;
        Ok(Ok(paper))
    }

    /// Refuses numbers that are there twice, or that are not stated.
    fn validate(&self) -> Result<(), Fault> {
        let fault = |key: &str, problem: String| Err(Fault { key: key.into(), problem, suggestion: None });
        if self.short.is_empty() {
            return fault("short", "it is empty, expected how sources call the paper".into());
        }
        for (i, number) in self.numbers.iter().enumerate() {
            let id = &number.id;
            let key = |name: &str| format!("number[{i}].{name}");
            if id.is_empty() || self.numbers[..i].iter().any(|other| other.id == *id) {
                return fault(
                    &key("id"),
                    format!("`{id}` is empty or there twice, expected a name of its own"),
                );
            }
            for name in catalogue::names(Kind::Paper) {
                if Paper::find(name).is_ok_and(|paper| paper.number(id).is_some()) {
                    return fault(&key("id"), format!("`{id}` is a number of the paper `{name}`"));
                }
            }
            let (value, low, high) = (number.value.is_some(), number.low, number.high);
            let (stated, expected) = match number.relation {
                Relation::Eq | Relation::About => (value, "a `value`"),
                Relation::Range => {
                    (low.zip(high).is_some_and(|(low, high)| low <= high), "`low` up to `high`")
                }
                Relation::Direction => (number.direction.is_some(), "a `direction`"),
                Relation::HeldOut => (!value && low.is_none() && high.is_none(), "no number"),
            };
            if !stated {
                let relation = serde_json::to_string(&number.relation).expect("a word");
                return fault(&key("relation"), format!("{relation} of `{id}`, expected {expected} with it"));
            }
        }
        Ok(())
    }

    /// The number called `id`.
    pub fn number(&self, id: &str) -> Option<&Published> {
        self.numbers.iter().find(|number| number.id == id)
    }
}

/// Refuses the name of a paper of one's own that is that of another, or that cannot be a file's and a link's.
fn valid_name(name: &str) -> Result<(), Fault> {
    let plain = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    let problem = if catalogue::names(Kind::Paper).contains(&name) {
        format!("the paper `{name}` is built in, expected another name for the file of one of your own")
    } else if name.is_empty() || !name.chars().all(plain) {
        format!("`{name}.toml`, expected a name of letters, digits, `-`, `_` and `.`")
    } else {
        return Ok(());
    };
    Err(Fault { key: String::new(), problem, suggestion: None })
}

/// `error` with the key of a number that is at fault, and not that of its table, in what it gives for an example.
fn of_number(error: ConfigError) -> ConfigError {
    let last = error.key.rsplit('.').next().unwrap_or_default();
    let problem = error.problem.replace("`number = 1.5`", &format!("`{last} = 25`"));
    ConfigError { problem, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_is_judged_once_or_says_why_not() {
        let mut ruled = std::collections::BTreeSet::new();
        for name in catalogue::names(Kind::Experiment) {
            let experiment = crate::files::Experiment::unchecked(name);
            ruled.extend(experiment.file.compare.iter().map(|rule| rule.published.clone()));
        }
        for name in catalogue::names(Kind::Paper) {
            let paper = Paper::find(name).expect("embedded");
            for number in paper.numbers.iter().filter(|number| number.role == Role::Result) {
                let ways = [
                    ruled.contains(&number.id),
                    number.not_judged.is_some(),
                    number.restates.is_some(),
                    number.relation == Relation::HeldOut,
                ];
                assert_eq!(ways.iter().filter(|way| **way).count(), 1, "{}: {ways:?}", number.id);
                if let Some(id) = &number.restates {
                    let other = paper.number(id).unwrap_or_else(|| panic!("{} restates {id}", number.id));
                    assert!(other.restates.is_none() && other.role == Role::Result, "{}", number.id);
                }
                assert!(number.by_construction.is_none() || ruled.contains(&number.id), "{}", number.id);
            }
        }
    }

    #[test]
    fn every_figure_in_a_reason_is_quoted_from_runs_or_given() {
        for name in catalogue::names(Kind::Paper) {
            let paper = Paper::find(name).expect("embedded");
            for number in &paper.numbers {
                let Some(reason) = &number.otherwise else {
                    assert!(number.quotes.is_empty() && number.given.is_empty(), "{}", number.id);
                    continue;
                };
                // Numbers with one reason have its figures once.
                let same = || paper.numbers.iter().filter(|other| other.otherwise.as_ref() == Some(reason));
                let quoted = same().flat_map(|other| &other.quotes).map(|quote| quote.text.as_str());
                let given = same().flat_map(|other| &other.given).map(String::as_str);
                let known: Vec<&str> = quoted.chain(given).collect();
                let plain = reason.split_whitespace().collect::<Vec<_>>().join(" ");
                for text in &known {
                    assert!(plain.contains(text), "{}: `{text}` is not in its reason", number.id);
                }
                let left = crate::files::figures_beside(reason, known.into_iter());
                assert_eq!(left, [""; 0], "{}: neither a `quote` nor `given`", number.id);
                for quote in &number.quotes {
                    let experiment = crate::files::Experiment::unchecked(&quote.experiment);
                    let runs_on = |m: &String| experiment.file.matrix.iter().any(|b| b.machines.contains(m));
                    assert!(quote.machines.iter().all(runs_on), "{}: {}", number.id, quote.text);
                }
            }
        }
    }

    #[test]
    fn numbers_are_named_once_and_stated_somehow() {
        for name in catalogue::names(Kind::Paper) {
            let paper = Paper::find(name).expect("embedded");
            for (i, number) in paper.numbers.iter().enumerate() {
                assert!(paper.numbers[..i].iter().all(|other| other.id != number.id), "{}", number.id);
                assert!(!number.shown().is_empty(), "{}", number.id);
                let stated = number.value.is_some() || number.low.is_some() || number.direction.is_some();
                assert_eq!(stated, number.relation != Relation::HeldOut, "{}", number.id);
            }
        }
        let paper = Paper::find("sf-buf").expect("embedded");
        assert_eq!(paper.number("sfbuf-pipe-gain-xeon-up").map(Published::shown).as_deref(), Some("67 %"));
    }

    const OWN: &str = "title = \"T\"\nauthors = \"A\"\nvenue = \"V\"\nshort = \"my paper\"\n[[number]]\nid = \"mine\"\n\
                       section = \"2\"\nmetric = \"gain\"\nvalue = 20\nunit = \"%\"\nrelation = \"eq\"\n\
                       role = \"result\"\n";

    /// What is said of a paper of one's own with this text, in a file of this name.
    fn own(file: &str, text: &str) -> String {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join(file), text).expect("written");
        let from = dir.path().join("experiment.toml").display().to_string();
        match Paper::named(file, &from) {
            Ok(Ok(paper)) => format!("{} with {} numbers", paper.short, paper.numbers.len()),
            Ok(Err(fault)) => fault.to_string(),
            Err(error) => error.to_string().replace(&format!("{}/", dir.path().display()), ""),
        }
    }

    #[test]
    fn a_paper_of_ones_own_is_read_from_beside_the_experiment_and_checked() {
        assert_eq!(own("mine.toml", OWN), "my paper with 1 numbers");
        let none = OWN.split("[[number]]").next().expect("a head");
        assert_eq!(own("mine.toml", none), "my paper with 0 numbers");
        let told = own("mine.toml", &OWN.replace("value = 20", "low = 20"));
        assert!(
            told.ends_with("`number[0].relation`: \"eq\" of `mine`, expected a `value` with it"),
            "{told}"
        );
        assert!(told.starts_with("mine.toml:"), "{told}");
        let told = own(
            "mine.toml",
            &OWN.replace("value = 20", "low = 20\nhigh = 10").replace("\"eq\"", "\"range\""),
        );
        assert!(told.ends_with("expected `low` up to `high` with it"), "{told}");
        let told = own("mine.toml", &OWN.replace("\"mine\"", "\"sfbuf-pipe-gain-xeon-up\""));
        assert!(told.ends_with("`sfbuf-pipe-gain-xeon-up` is a number of the paper `sf-buf`"), "{told}");
        let told = own("mine.toml", &OWN.replace("role = \"result\"\n", ""));
        assert!(told.contains("missing key `role`"), "{told}");
        assert!(own("uvm.toml", OWN).contains("the paper `uvm` is built in"));
        assert!(own("my paper.toml", OWN).contains("expected a name of letters"));
    }

    #[test]
    fn a_paper_that_is_not_there_is_told_with_those_that_are() {
        let fault = Paper::named("sf-buff", "e.toml").expect("no file is read").expect_err("no such paper");
        assert_eq!(fault.suggestion.as_deref(), Some("sf-buf"));
        assert!(fault.problem.contains("page-flip, ppc-bat, sf-buf, sh4-tlb, uvm"), "{fault}");
        let error = Paper::named("none.toml", "e.toml").expect_err("no such file").to_string();
        assert!(error.contains("none.toml"), "{error}");
    }
}
