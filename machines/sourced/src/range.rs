//! Ranges: what each whole number of a file may be.
//!
//! Every kind of file has one table of [`Range`]s, which is its documentation as well. The table is asked wherever a
//! number comes from: [`Ranges::text`] for a file, before anything reads its numbers as a type that they may not fit;
//! [`Ranges::setting`] for a setting; [`Ranges::config`] for a configuration that a program made. What depends on other
//! values (a power of two, a multiple, an order) is asked behind it, of numbers that are small enough to be reckoned
//! with.

use super::error::{ConfigError, Fault};
use serde::Serialize;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// What the numbers of one key, or of several, may be.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The path of the key, without the places in arrays: `cache.ways`. A `*` stands for any characters.
    pub key: &'static str,
    /// The least that is allowed.
    pub min: i64,
    /// The most that is allowed.
    pub max: i64,
}

/// A range, for tables.
pub const fn range(key: &'static str, min: i64, max: i64) -> Range {
    Range { key, min, max }
}

/// The ranges of a kind of file; the first that fits a key counts. A number whose key is not among them has to fit 64
/// bits with a sign, as all numbers of TOML.
#[derive(Clone, Copy, Debug)]
pub struct Ranges(pub &'static [Range]);

impl Ranges {
    /// The range of a key, which may have the places of arrays in it.
    pub fn of(&self, key: &str) -> Option<Range> {
        let plain = without_places(key);
        self.0.iter().copied().find(|range| match range.key.split_once('*') {
            None => range.key == plain,
            Some((start, end)) => {
                plain.len() >= start.len() + end.len() && plain.starts_with(start) && plain.ends_with(end)
            }
        })
    }

    /// `text` as a number of `key`.
    ///
    /// # Errors
    /// What was found, and what is expected.
    pub fn setting(&self, key: &str, text: &str) -> Result<i64, String> {
        let number = whole_number(&text.replace('_', ""), 10);
        let number = number.ok_or_else(|| format!("`{text}`, expected a whole number"))?;
        self.check(key, number).map_err(|expected| format!("{text}, {expected}"))?;
        Ok(i64::try_from(number).expect("it is in a range"))
    }

    /// Refuses numbers of the parsed file `file`, whose text is `text`.
    ///
    /// # Errors
    /// The first that is out of its range, with its place.
    pub fn text(&self, file: &str, text: &str, table: &DeTable<'_>) -> Result<(), ConfigError> {
        self.table("", table)
            .map_err(|Fault { key, problem, .. }| ConfigError::of_value(file, text, &key, problem))
    }

    /// Refuses numbers of `config`.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn config<T: Serialize>(&self, config: &T) -> Result<(), Fault> {
        let value = serde_json::to_value(config).expect("a configuration is plain data");
        self.value("", &value)
    }

    fn check(&self, key: &str, number: i128) -> Result<(), String> {
        let Range { min, max, .. } = self.of(key).unwrap_or(range("", i64::MIN, i64::MAX));
        if (i128::from(min)..=i128::from(max)).contains(&number) {
            return Ok(());
        }
        Err(format!("expected {min} to {max}"))
    }

    fn number(&self, key: &str, number: i128, shown: impl std::fmt::Display) -> Result<(), Fault> {
        self.check(key, number).map_err(|expected| Fault {
            key: key.to_owned(),
            problem: format!("{shown}, {expected}"),
            suggestion: None,
        })
    }

    fn table(&self, path: &str, table: &DeTable<'_>) -> Result<(), Fault> {
        // A sourced constant is known by its own key.
        let sourced = table.contains_key("value") && table.contains_key("kind");
        table.iter().try_for_each(|(name, value)| {
            let name = name.get_ref();
            let key = if sourced && name == "value" { path.to_owned() } else { below(path, name) };
            self.de_value(&key, value.get_ref())
        })
    }

    fn de_value(&self, key: &str, value: &DeValue<'_>) -> Result<(), Fault> {
        match value {
            DeValue::Table(table) => self.table(key, table),
            DeValue::Array(items) => (items.iter().enumerate())
                .try_for_each(|(i, v)| self.de_value(&format!("{key}[{i}]"), v.get_ref())),
            DeValue::Integer(text) => {
                let number = whole_number(&text.as_str().replace('_', ""), text.radix());
                self.number(key, number.unwrap_or(i128::MAX), text)
            }
            _ => Ok(()),
        }
    }

    fn value(&self, key: &str, value: &Value) -> Result<(), Fault> {
        match value {
            Value::Object(table) => table.iter().try_for_each(|(name, value)| {
                let sourced = name == "value" && table.contains_key("kind");
                self.value(&if sourced { key.to_owned() } else { below(key, name) }, value)
            }),
            Value::Array(items) => {
                items.iter().enumerate().try_for_each(|(i, v)| self.value(&format!("{key}[{i}]"), v))
            }
            Value::Number(number) => {
                let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
                whole.map_or(Ok(()), |whole| self.number(key, whole, number))
            }
            _ => Ok(()),
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `key` without the places of arrays.
fn without_places(key: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for c in key.chars() {
        inside |= c == '[';
        if !inside {
            plain.push(c);
        }
        inside &= c != ']';
    }
    plain
}

/// The whole number that `text` is; the largest or the smallest there is for one of more digits.
fn whole_number(text: &str, radix: u32) -> Option<i128> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let extreme = if text.starts_with('-') { i128::MIN } else { i128::MAX };
    Some(i128::from_str_radix(text, radix).unwrap_or(extreme))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: Ranges = Ranges(&[range("a.b", 1, 9), range("*_cycles", 0, 100), range("list.n", 0, 3)]);

    fn fault(text: &str) -> String {
        let table = DeTable::parse(text).expect("TOML").into_inner();
        RANGES.text("x.toml", text, &table).map_or_else(|e| e.to_string(), |()| "nothing".into())
    }

    #[test]
    fn numbers_of_any_length_are_told_with_their_place_and_their_bounds() {
        assert_eq!(fault("a = { b = 9 }\nc_cycles = 100\nd = -9223372036854775808\n"), "nothing");
        assert_eq!(fault("[a]\nb = 10\n"), "x.toml:2:5: `a.b`: 10, expected 1 to 9");
        assert_eq!(fault("[a]\nb = -1\n"), "x.toml:2:5: `a.b`: -1, expected 1 to 9");
        let long = "9".repeat(60);
        let said = format!("x.toml:2:5: `a.b`: {long}, expected 1 to 9");
        assert_eq!(fault(&format!("[a]\nb = {long}\n")), said);
        assert!(fault("d = 9223372036854775808\n").contains("expected -9223372036854775808 to"));
        assert!(
            fault("[t.x_cycles]\nvalue = 101\nkind = 'k'\n")
                .ends_with("`t.x_cycles`: 101, expected 0 to 100")
        );
        assert!(
            fault("[[list]]\nn = 1\n[[list]]\nn = 4\n").starts_with("x.toml:4:5: `list[1].n`: 4, expected 0")
        );
    }

    #[test]
    fn settings_and_configurations_have_the_same_ranges() {
        assert_eq!(RANGES.setting("a.b", "0_9"), Ok(9));
        assert_eq!(RANGES.setting("a.b", "many"), Err("`many`, expected a whole number".into()));
        assert_eq!(RANGES.setting("a.b", "10"), Err("10, expected 1 to 9".into()));
        assert!(RANGES.setting("a.b", &"9".repeat(99)).is_err());
        let config = serde_json::json!({ "x_cycles": { "value": u64::MAX, "kind": "k" } });
        let fault = RANGES.config(&config).expect_err("too many");
        assert_eq!(fault.to_string(), "`x_cycles`: 18446744073709551615, expected 0 to 100");
    }
}
