//! What is wrong with a configuration file, and where.

use super::place::{locate, position};

/// What is wrong with a configuration file, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{}{problem}{}", self.place(), self.named_key(), self.hint())]
pub struct ConfigError {
    /// The file as the caller named it.
    pub file: String,
    /// Line, from 1; 0 where the fault has no place in the file.
    pub line: usize,
    /// Column in characters, from 1; 0 where the fault has no place in the file.
    pub column: usize,
    /// The path of the offending key, such as `cpu.clock_mhz`; empty where no key is to blame.
    pub key: String,
    /// What was found and what was expected.
    pub problem: String,
    /// The valid name that is nearest to an unknown one.
    pub suggestion: Option<String>,
}

impl ConfigError {
    /// A fault of a value, found at `key` in `text` if it stands there.
    pub fn of_value(file: &str, text: &str, key: &str, problem: impl Into<String>) -> Self {
        let (line, column) = locate(text, key).map_or((0, 0), |at| position(text, at));
        ConfigError {
            file: file.to_owned(),
            line,
            column,
            key: key.to_owned(),
            problem: problem.into(),
            suggestion: None,
        }
    }

    fn place(&self) -> String {
        if self.line == 0 {
            format!("{}: ", self.file)
        } else {
            format!("{}:{}:{}: ", self.file, self.line, self.column)
        }
    }

    fn named_key(&self) -> String {
        if self.key.is_empty() { String::new() } else { format!("`{}`: ", self.key) }
    }

    fn hint(&self) -> String {
        self.suggestion.as_ref().map_or(String::new(), |name| format!("; did you mean `{name}`?"))
    }
}

/// A value that nothing real could have: what a check of a whole configuration finds, before it has a place in a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{key}`: {problem}")]
pub struct Fault {
    /// The path of the offending key.
    pub key: String,
    /// What was found and what was expected.
    pub problem: String,
    /// The valid name that is nearest to an unknown one.
    pub suggestion: Option<String>,
}

/// The candidate that `name` was most likely meant to be, or `None` where all are too far from it.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let allowed = (wanted.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|&(distance, candidate)| distance <= allowed && distance < candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
}
