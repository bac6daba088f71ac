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
        plain_integer(text).map_or_else(|| Setting::Text(text.to_owned()), Setting::Integer)
    }

    /// As [`Setting::parse`], where no word is expected: `64K` is 65536. K, M and G are powers of 1024.
    pub fn with_unit(text: &str) -> Setting {
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

/// A whole number as people write them: `65536`, `65_536`, `64K`. K, M and G are powers of 1024.
pub(super) fn parse_integer(text: &str) -> Option<i64> {
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'K' | 'k') => (&text[..at], 1 << 10),
        (at, 'M' | 'm') => (&text[..at], 1 << 20),
        (at, 'G' | 'g') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    plain_integer(digits)?.checked_mul(unit)
}

fn plain_integer(text: &str) -> Option<i64> {
    text.replace('_', "").parse().ok()
}

/// Key and value of a setting; the value is empty where there is none.
pub(super) fn key_value(text: &str) -> (&str, &str) {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    (key.trim(), value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_gaps() {
        assert_eq!(
            ["64K", "1m", "65_536", "-2K"].map(parse_integer),
            [65536, 1 << 20, 65536, -2048].map(Some)
        );
        assert_eq!(["K", "4KB", "9999999999G", ""].map(parse_integer), [None; 4]);
        assert_eq!(Setting::with_unit("2G"), Setting::Integer(1 << 31));
        // A word may look like a number with a unit: pages of 2 MB are `2m`.
        assert_eq!(Setting::parse("2m"), Setting::Text("2m".into()));
        assert_eq!(Setting::parse("2_048"), Setting::Integer(2048));
    }
}
