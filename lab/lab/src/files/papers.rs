//! Published numbers: `papers/*.toml`.

use super::catalogue::{self, Kind};
use crate::error::LabError;
use pageferry_sourced::load_toml;
use serde::{Deserialize, Serialize};

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
    #[serde(rename = "number")]
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
}

impl Published {
    /// The statement for tables: `67 %`, `500 to 1000 cycles`, `none`.
    pub fn shown(&self) -> String {
        let about = if self.relation == Relation::About { "about " } else { "" };
        let number = match (self.value, self.low, self.high) {
            (Some(value), ..) => format!("{about}{}", crate::text::number(value)),
            (None, Some(low), Some(high)) => {
                format!("{} to {}", crate::text::number(low), crate::text::number(high))
            }
            _ if self.relation == Relation::HeldOut => return "held out".to_owned(),
            _ => return self.direction.clone().unwrap_or_default(),
        };
        format!("{number} {}", self.unit).trim_end().to_owned()
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

    /// The number called `id`.
    pub fn number(&self, id: &str) -> Option<&Published> {
        self.numbers.iter().find(|number| number.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
