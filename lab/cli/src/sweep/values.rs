//! The values that a setting takes in turn, as the command line says them.
//!
//! `KEY=ITEM,ITEM,...`, where an item is a word, a number, `A..B:STEP` (equal steps) or `A..B:*FACTOR` (equal ratios).
//! Numbers may end in K, M or G, which are powers of 1024. B belongs to a range if a step leads there.
//!
//! What can fail: there is no key, an item is empty, a range goes nowhere, has no step or too many values, or a value
//! is there twice. Each is refused with the option and the key; whether the setting has such a value is seen later.

use pageferry_lab::LabError;
use pageferry_lab::files::Setting;
use serde::{Deserialize, Serialize};

/// So many values a setting may take.
pub(super) const MAX_VALUES: usize = 10_000;

/// A setting and what it takes in turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Values {
    pub(super) key: String,
    pub(super) values: Vec<Setting>,
}

impl Values {
    /// What `text` says; `is_word` says of a key whether its values are words, which may look like numbers with a unit.
    pub(super) fn parse(text: &str, is_word: &dyn Fn(&str) -> bool) -> Result<Values, LabError> {
        let (key, list) = text.split_once('=').unwrap_or((text, ""));
        let (key, list) = (key.trim(), list.trim());
        if key.is_empty() || list.is_empty() {
            let problem = "expected KEY=VALUES, such as chunk_bytes=4K..256K:4K or send=copy,loan";
            return Err(LabError::Option { option: format!("--vary {text}"), problem: problem.to_owned() });
        }
        let refuse = |problem| refused(key, problem);
        let mut values: Vec<Setting> = Vec::new();
        let is_word = is_word(key);
        for item in list.split(',') {
            values.extend(items(item.trim(), is_word).map_err(refuse)?);
            if values.len() > MAX_VALUES {
                return Err(refuse(format!("expected at most {MAX_VALUES} values")));
            }
        }
        let all = Values { key: key.to_owned(), values };
        all.check()?;
        Ok(all)
    }

    /// Refuses values that are too many or too few, or one that is there twice.
    pub(super) fn check(&self) -> Result<(), LabError> {
        if !(1..=MAX_VALUES).contains(&self.values.len()) {
            return Err(refused(&self.key, format!("expected 1 to {MAX_VALUES} values")));
        }
        let mut sorted: Vec<&Setting> = self.values.iter().collect();
        sorted.sort();
        match sorted.windows(2).find(|two| two[0] == two[1]) {
            Some(same) => Err(refused(&self.key, format!("`{}` is there twice", same[0]))),
            None => Ok(()),
        }
    }
}

/// A `problem` with what `--vary` gives for `key`.
pub(super) fn refused(key: &str, problem: impl Into<String>) -> LabError {
    LabError::Option { option: format!("--vary {key}"), problem: problem.into() }
}

/// A whole number, with K, M or G behind it or without.
fn size(text: &str) -> Option<i64> {
    Setting::with_unit(text).number()
}

/// The values of one item of a list.
fn items(item: &str, is_word: bool) -> Result<Vec<Setting>, String> {
    if item.is_empty() {
        return Err("there is nothing between two commas, or behind the last".to_owned());
    }
    if is_word {
        return Ok(vec![Setting::parse(item)]);
    }
    // A path may have `..` in it, and no number before it.
    match item.split_once("..") {
        Some((from, rest)) if size(from).is_some() => range(item, from, rest),
        _ => Ok(vec![Setting::with_unit(item)]),
    }
}

fn range(item: &str, from: &str, rest: &str) -> Result<Vec<Setting>, String> {
    let wrong = |what: &str| format!("`{item}`, {what}");
    let (to, step) = rest
        .split_once(':')
        .ok_or_else(|| wrong("expected a step behind it: `:4K` for equal steps, `:*2` for doubling"))?;
    let (Some(from), Some(to)) = (size(from), size(to)) else {
        return Err(wrong("expected numbers on both sides of `..`, such as 4K..256K:4K"));
    };
    if from > to {
        return Err(wrong("expected the smaller number first"));
    }
    let next: Box<dyn Fn(i64) -> Option<i64>> = match step.strip_prefix('*') {
        Some(factor) => {
            let factor = size(factor).filter(|factor| *factor >= 2);
            let factor = factor.ok_or_else(|| wrong("expected a factor of at least 2 behind `:*`"))?;
            if from < 1 {
                return Err(wrong("expected at least 1 to begin with: no factor leads on from there"));
            }
            Box::new(move |value| value.checked_mul(factor))
        }
        None => {
            let step = size(step).filter(|step| *step >= 1);
            let step = step.ok_or_else(|| wrong("expected a step of at least 1, or `*2` for doubling"))?;
            Box::new(move |value| value.checked_add(step))
        }
    };
    let up_to = |value: &i64| next(*value).filter(|next| *next <= to);
    let values: Vec<i64> = std::iter::successors(Some(from), up_to).take(MAX_VALUES + 1).collect();
    if values.len() > MAX_VALUES {
        return Err(wrong(&format!("expected at most {MAX_VALUES} values")));
    }
    Ok(values.into_iter().map(Setting::Integer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> String {
        match Values::parse(text, &|key| key == "word") {
            Ok(of) => of.values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn lists_and_ranges_are_taken_apart() {
        assert_eq!(values("size=4K..16K:4K"), "4096 8192 12288 16384");
        assert_eq!(values("size=4K..17K:4K"), "4096 8192 12288 16384");
        assert_eq!(values("size=1..10:*2"), "1 2 4 8");
        assert_eq!(values("size=1, 2..4:1 ,1M"), "1 2 3 4 1048576");
        assert_eq!(values("trace=rice,../my.log"), "rice ../my.log");
        assert_eq!(values("size=0..0:1"), "0");
        assert_eq!(values("size=1_000,2G"), "1000 2147483648");
        assert_eq!(values("word=pages,2m,1g"), "pages 2m 1g");
    }

    #[test]
    fn what_makes_no_values_is_refused() {
        for (text, problem) in [
            ("size", "--vary size: expected KEY=VALUES"),
            ("=4", "--vary =4: expected KEY=VALUES"),
            ("size=", "expected KEY=VALUES"),
            ("size=4K,,8K", "--vary size: there is nothing between two commas"),
            ("size=4K..8K", "--vary size: `4K..8K`, expected a step behind it"),
            ("size=4K..many:4K", "expected numbers on both sides"),
            ("size=8K..4K:4K", "expected the smaller number first"),
            ("size=4K..8K:0", "expected a step of at least 1"),
            ("size=4K..8K:*1", "expected a factor of at least 2"),
            ("size=0..8K:*2", "expected at least 1 to begin with"),
            ("size=0..100G:1", "expected at most 10000 values"),
            ("size=9223372036854775807..9223372036854775807:1,9223372036854775807", "is there twice"),
            ("size=4096,4K", "`4096` is there twice"),
        ] {
            let said = values(text);
            assert!(said.contains(problem), "{text}: {said}");
        }
    }
}
