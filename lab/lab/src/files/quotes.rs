//! Figures that the reasons of a paper's file quote from the runs: `[[number.quote]]` in `papers/*.toml`.
//!
//! A reason (`otherwise`) is prose, and prose does not follow the runs. So each figure in it either names the runs that
//! it is of, and `reproduce --check` holds it to them, or is among those that come from elsewhere (`given`). Nothing
//! here can fail: what is left over is answered.

use serde::{Deserialize, Serialize};

/// A figure in a reason, and the runs that it is of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quote {
    /// The figure as it stands in the reason: one number, several, or a range (`5 to 7 %`). Digits say how exact it is:
    /// 11,600 is so within 50, 26 within a half.
    pub text: String,
    /// Of this experiment.
    pub experiment: String,
    /// On each of these machines.
    pub machines: Vec<String>,
    /// Under this kernel.
    pub kernel: String,
    /// This metric, in its own unit.
    pub metric: String,
    /// Of the runs with these settings; of those that differ in others, each is a value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Of those with these settings, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub or_set: Vec<String>,
    /// What it is more or less than under this kernel, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// What it is more or less than in runs that have these settings instead, in percent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base: Vec<String>,
    /// The difference to those runs, and not the percentage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub difference: bool,
    /// Divided by this: 2,048 for a page where 8 MB were moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<f64>,
    /// Each repeat is a value, and not their median.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each: bool,
}

impl Quote {
    /// Whether the figure says what was found: no value in it may be without one found, and none found without it.
    /// Signs are left to the words.
    pub fn says(&self, found: &[f64]) -> bool {
        let numbers: Vec<(f64, f64)> = numbers(&self.text).map(|(_, word)| value(word)).collect();
        let near = |(quoted, within): (f64, f64), value: f64| {
            // What lies on the edge may be rounded either way.
            (value.abs() - quoted).abs() <= within * (1.0 + 1e-6)
        };
        let ends = found.iter().map(|v| v.abs()).fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        match numbers.as_slice() {
            _ if found.is_empty() => false,
            [low, high] if self.text.contains(" to ") => near(*low, ends.0) && near(*high, ends.1),
            [one] => near(*one, ends.0) && near(*one, ends.1),
            all => all.len() == found.len() && all.iter().zip(found).all(|(n, v)| near(*n, *v)),
        }
    }
}

/// The figures in `reason` that are in no text of `known`: not those in code or in brackets, and none of a size, a
/// clock or a count that is set.
pub fn figures_beside<'a>(reason: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    const SET: [&str; 9] = ["KB", "MB", "GB", "MHz", "GHz", "bytes", "page", "pages", "entries"];
    let mut rest = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in known {
        rest = rest.replace(text, " ");
    }
    for (open, close) in [('`', '`'), ('(', ')')] {
        while let Some((before, inside)) = rest.split_once(open)
            && let Some((_, after)) = inside.split_once(close)
        {
            rest = format!("{before} {after}");
        }
    }
    let unit = |at: usize, word: &str| {
        let behind = rest[at + word.len()..].trim_start_matches([',', '.', ':', ';']);
        let next = behind.split_whitespace().next().unwrap_or_default();
        next.trim_end_matches([',', '.', ':', ';']).to_owned()
    };
    let left = numbers(&rest).filter(|(at, word)| !SET.contains(&unit(*at, word).as_str()));
    left.map(|(at, word)| format!("{word} {}", unit(at, word))).collect()
}

/// The numbers in `text`, with their places: digits, with commas and points between.
fn numbers(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text[from..].find(|c: char| c.is_ascii_digit())?;
        let end = text[start..].find(|c| !is_part(c)).map_or(text.len(), |at| start + at);
        from = end;
        Some((start, text[start..end].trim_end_matches([',', '.'])))
    })
}

/// A number, and how far from it still reads so: half a unit of its last digit, where zeros at the end of a hundred or
/// more are no digits.
fn value(word: &str) -> (f64, f64) {
    let plain = word.replace(',', "");
    let number: f64 = plain.parse().unwrap_or(f64::NAN);
    let unit = match plain.split_once('.') {
        Some((_, decimals)) => 0.1_f64.powi(decimals.len() as i32),
        None if number >= 100.0 => 10_f64.powi((plain.len() - plain.trim_end_matches('0').len()) as i32),
        None => 1.0,
    };
    (number, 0.5 * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str, found: &[f64]) -> bool {
        let quote = Quote {
            text: text.into(),
            experiment: String::new(),
            machines: Vec::new(),
            kernel: String::new(),
            metric: String::new(),
            set: Vec::new(),
            or_set: Vec::new(),
            over: None,
            base: Vec::new(),
            difference: false,
            per: None,
            each: false,
        };
        quote.says(found)
    }

    #[test]
    fn a_figure_says_what_rounds_to_it() {
        for (text, found) in [
            ("26", &[25.6, 26.4][..]),
            ("11,600 cycles", &[11_561.2]),
            ("474.8 MB/s", &[474.84]),
            ("5 to 7 %", &[6.0, 7.2, 4.9]),
            ("10 and 15 %", &[-10.2, -14.7]),
        ] {
            assert!(says(text, found), "{text}: {found:?}");
        }
        for (text, found) in [
            ("26", &[25.4][..]),
            ("26", &[]),
            ("474.8 MB/s", &[474.9]),
            ("5 to 7 %", &[5.0, 6.0]),
            ("5 to 7 %", &[5.0, 7.0, 8.0]),
            ("10 and 15 %", &[15.0, 10.0]),
            ("10 and 15 %", &[10.0]),
        ] {
            assert!(!says(text, found), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_neither_quoted_nor_given_is_found() {
        let reason = "It is 22 MB/s at 4 KB (5.4), and `--set x=3` makes it 25: FreeBSD 5\n has 1,024 pages.";
        let left = |known: &[&str]| figures_beside(reason, known.iter().copied());
        assert_eq!(left(&[]), ["22 MB/s", "25 FreeBSD", "5 has"]);
        assert_eq!(left(&["22 MB/s", "FreeBSD 5"]), ["25 has"]);
    }
}
