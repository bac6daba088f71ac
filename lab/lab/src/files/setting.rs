//! A setting: a key, and a number or a word as its value. In texts, `key=value`.

use serde::{Deserialize, Serialize};

/// A setting's value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Integer(i64),
    /// A word.
    Text(String),
}

impl Setting {
    /// What `text` says: a number, or else a word.
    pub fn parse(text: &str) -> Setting {
        parse_integer(text).map_or_else(|| Setting::Text(text.to_owned()), Setting::Integer)
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<i64> {
        match self {
            Setting::Integer(number) => Some(*number),
            Setting::Text(_) => None,
        }
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Setting::Integer(number) => number.fmt(f),
            Setting::Text(text) => text.fmt(f),
        }
    }
}

/// A whole number as people write them: `65536`, `65_536`.
pub(super) fn parse_integer(text: &str) -> Option<i64> {
    text.replace('_', "").parse().ok()
}

/// Key and value of a setting; the value is empty where there is none.
pub(super) fn key_value(text: &str) -> (&str, &str) {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    (key.trim(), value.trim())
}
