//! Numbers that say where they are from, and files of them.
//!
//! Every constant of a machine or kernel file is a [`Sourced`] value: the number, the text that names its source, and
//! how far that source can be trusted ([`SourceKind`]). A calibrated number names the published one that it was fitted
//! to, so that the report can set the calibrated apart from the predicted. Who writes a file of their own need not give a
//! source: a plain value is theirs ([`SourceKind::Yours`]), and is shown as that.
//!
//! [`load_toml`] reads a file of them. Everything that can be wrong with such a file is one [`ConfigError`]: the file is
//! always to blame, and the error says where in it, which key, and what was expected there.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::range::Ranges;
use crate::wanted;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// How a constant came by its value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Stated by one of the reproduced papers.
    Paper,
    /// From a vendor's manual or data sheet, or computed from one.
    Datasheet,
    /// Read in the public source code of the system that is modelled.
    Code,
    /// Measured by others on such hardware and published.
    Measured,
    /// Fitted, so that the model gives the published number named by [`Sourced::against`].
    Calibrated,
    /// Taken to be so; the source says why it is plausible.
    Assumed,
    /// Set by who wrote the file, who does not say why.
    Yours,
}

impl SourceKind {
    /// The word used in the files.
    pub const fn name(self) -> &'static str {
        match self {
            SourceKind::Paper => "paper",
            SourceKind::Datasheet => "datasheet",
            SourceKind::Code => "code",
            SourceKind::Measured => "measured",
            SourceKind::Calibrated => "calibrated",
            SourceKind::Assumed => "assumed",
            SourceKind::Yours => "yours",
        }
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A constant with its source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sourced<T> {
    /// The constant. Its unit is in the name of its key.
    pub value: T,
    /// Where it is from: a key of the file's `[sources]`, a comma, and the place in it; or the reasoning. Empty for a value that
    /// is [`SourceKind::Yours`].
    pub source: String,
    /// How it came by its value.
    pub kind: SourceKind,
    /// The id of the published number that a calibrated value was fitted to; there exactly when it is calibrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
}

impl<T> Sourced<T> {
    /// A value with the reasoning for it, for machines made up in tests.
    pub fn assumed(value: T, why: &str) -> Self {
        Sourced { value, source: why.to_owned(), kind: SourceKind::Assumed, against: None }
    }
}

/// How a sourced value is written.
const FORM: &str = "{ value = ..., source = \"...\", kind = \"...\" }";

/// What is written in a file for a [`Sourced`] value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSourced<T> {
    value: T,
    source: Option<String>,
    kind: Option<SourceKind>,
    against: Option<String>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Sourced<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written(PhantomData))
    }
}

/// Reads a sourced value from a table, or a plain one that has no source.
struct Written<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Written<T> {
    fn plain<E: de::Error>(value: impl IntoDeserializer<'de, E>) -> Result<Sourced<T>, E> {
        let value = T::deserialize(value.into_deserializer()).map_err(|error: E| {
            E::custom(format!("{}; expected such a value, or {FORM}", error.to_string().trim_end()))
        })?;
        Ok(Sourced { value, source: String::new(), kind: SourceKind::Yours, against: None })
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Written<T> {
    type Value = Sourced<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value, or {FORM}")
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Sourced<T>, E> {
        Written::plain(value)
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Sourced<T>, E> {
        Written::plain(value)
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Sourced<T>, E> {
        Written::plain(value)
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Sourced<T>, E> {
        Written::plain(value.to_owned())
    }
    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Sourced<T>, A::Error> {
        let raw = RawSourced::deserialize(MapAccessDeserializer::new(table))?;
        Sourced::try_from(raw).map_err(de::Error::custom)
    }
}

impl<T> TryFrom<RawSourced<T>> for Sourced<T> {
    type Error = String;

    fn try_from(raw: RawSourced<T>) -> Result<Self, String> {
        let RawSourced { value, source, kind, against } = raw;
        let missing = |key: &str| format!("missing field `{key}`");
        if kind == Some(SourceKind::Yours) && against.is_none() {
            let source = source.unwrap_or_default();
            return Ok(Sourced { value, source, kind: SourceKind::Yours, against });
        }
        let source = source.ok_or_else(|| missing("source"))?;
        let kind = kind.ok_or_else(|| missing("kind"))?;
        if source.trim().is_empty() {
            return Err("empty `source`, expected where the value is from, or why it is plausible".to_owned());
        }
        match (kind, &against) {
            (SourceKind::Calibrated, None) => {
                Err("missing `against`, expected the id of the published number it was calibrated to"
                    .to_owned())
            }
            (SourceKind::Calibrated, Some(id)) if id.trim().is_empty() => {
                Err("empty `against`, expected the id of a published number".to_owned())
            }
            (SourceKind::Calibrated, Some(_)) | (_, None) => Ok(Sourced { value, source, kind, against }),
            (_, Some(_)) => {
                Err(format!("`against` given, expected only where kind is calibrated, not {kind}"))
            }
        }
    }
}

/// One constant as the report lists it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Constant {
    /// The path of its key: `cpu.clock_mhz`, `cache.L1.ways`.
    pub key: String,
    /// Its value as written in TOML.
    pub value: String,
    /// See [`Sourced::source`].
    pub source: String,
    /// See [`Sourced::kind`].
    pub kind: SourceKind,
    /// See [`Sourced::against`].
    pub against: Option<String>,
}

/// All [`Sourced`] values within `config`, sorted by key. Elements of an array go by their `name` where they have one.
///
/// # Panics
/// When `config` cannot be written as TOML, or holds a table with a key `value` that is not a [`Sourced`].
pub fn constants_of<T: Serialize>(config: &T) -> Vec<Constant> {
    let table = toml::Table::try_from(config)
        .expect("a configuration that was read from TOML can be written as TOML");
    let mut found = Vec::new();
    collect("", &toml::Value::Table(table), &mut found);
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found
}

fn collect(path: &str, value: &toml::Value, found: &mut Vec<Constant>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        toml::Value::Table(table) if table.contains_key("value") => {
            let constant: Sourced<toml::Value> =
                table.clone().try_into().expect("a table with a key `value` is a sourced constant");
            found.push(Constant {
                key: path.to_owned(),
                value: constant.value.to_string(),
                source: constant.source,
                kind: constant.kind,
                against: constant.against,
            });
        }
        toml::Value::Table(table) => {
            for (name, value) in table {
                collect(&below(name), value, found);
            }
        }
        toml::Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let name =
                    item.get("name").and_then(|name| name.as_str()).map_or(i.to_string(), str::to_owned);
                collect(&below(&name), item, found);
            }
        }
        _ => {}
    }
}

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

/// Reads `text`, the contents of the file called `path_name`, as a `T`.
///
/// # Errors
/// When `text` is not TOML, or not what `T` wants: file, line, column, key, and what was expected.
pub fn load_toml<T: DeserializeOwned>(path_name: &str, text: &str) -> Result<T, ConfigError> {
    from_table(path_name, text, parse_table(path_name, text)?, &[], &Ranges(&[]))
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

/// Reads the file called `name`, whose contents are `text`, laid upon the files that it names in `extends`, which
/// `lookup` gives; `word` is what such a file describes, for errors. Each is read and checked as it is laid on, the
/// last first, so that a fault is always one of the file that is being laid. Their numbers have to be in `ranges`.
///
/// # Errors
/// When a file is not TOML, not a `T`, out of range, refused by `check`, not there, or extends itself; with the place of the
/// fault.
pub fn load_extending<T: DeserializeOwned>(
    name: &str,
    text: &str,
    word: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    ranges: &Ranges,
    check: &dyn Fn(&T) -> Result<(), Fault>,
) -> Result<T, ConfigError> {
    let mut chain = vec![(name.to_owned(), text.to_owned())];
    while let Some(base) = extends(&chain[chain.len() - 1])? {
        let (file, text) = &chain[chain.len() - 1];
        let fault = |problem: String| Err(ConfigError::of_value(file, text, "extends", problem));
        if chain.iter().any(|(seen, _)| *seen == base) {
            return fault(format!("`{base}` extends itself"));
        }
        match lookup(&base) {
            Some(text) => chain.push((base, text)),
            None => return fault(format!("there is no {word} `{base}` to extend")),
        }
    }
    let mut merged = DeTable::default();
    let mut whole = None;
    for (file, text) in chain.iter().rev() {
        let parsed = parse_table(file, text)?;
        let span = parsed.span();
        let mut over = parsed.into_inner();
        over.remove("extends");
        ranges.text(file, text, &over)?;
        merge(&mut merged, over);
        let config: T = from_table(file, text, Spanned::new(span, merged.clone()), &["extends"], ranges)?;
        check(&config).map_err(|Fault { key, problem, suggestion }| ConfigError {
            suggestion,
            ..ConfigError::of_value(file, text, &key, problem)
        })?;
        whole = Some(config);
    }
    Ok(whole.expect("the chain has at least one file"))
}

/// The file that `file` extends.
fn extends((file, text): &(String, String)) -> Result<Option<String>, ConfigError> {
    let table = parse_table(file, text)?.into_inner();
    match table.get("extends").map(|value| value.get_ref()) {
        None => Ok(None),
        Some(DeValue::String(base)) => Ok(Some(base.to_string())),
        Some(_) => Err(ConfigError::of_value(file, text, "extends", "expected a name")),
    }
}

/// Reads `text` as TOML without asking what is in it.
///
/// # Errors
/// When `text` is not TOML.
fn parse_table<'a>(file: &str, text: &'a str) -> Result<Spanned<DeTable<'a>>, ConfigError> {
    DeTable::parse(text).map_err(|error| translate(file, text, error, &[], &Ranges(&[])))
}

/// Reads a parsed `table`, whose places are in `text`, as a `T`; `also` are keys that a file may have beside those of a `T`, and
/// `ranges` are of its numbers: both for errors.
///
/// # Errors
/// When it is not what `T` wants.
fn from_table<T: DeserializeOwned>(
    file: &str,
    text: &str,
    table: Spanned<DeTable<'_>>,
    also: &[&str],
    ranges: &Ranges,
) -> Result<T, ConfigError> {
    T::deserialize(toml::de::Deserializer::from(table))
        .map_err(|error| translate(file, text, error, also, ranges))
}

/// `over` laid upon `base`, table by table and key by key. A sourced constant is replaced as a whole, so that a value
/// never keeps the source of another; so is an array.
fn merge<'a>(base: &mut DeTable<'a>, over: DeTable<'a>) {
    for (key, mut value) in over {
        if let Some(old) = base.get_mut(key.get_ref().as_ref())
            && let (DeValue::Table(old), DeValue::Table(new)) = (old.get_mut(), value.get_mut())
            && !old.contains_key("value")
            && !new.contains_key("value")
        {
            merge(old, std::mem::take(new));
            continue;
        }
        base.remove(key.get_ref().as_ref());
        base.insert(key, value);
    }
}

/// The parser's error in our words.
fn translate(
    file: &str,
    text: &str,
    mut error: toml::de::Error,
    also: &[&str],
    ranges: &Ranges,
) -> ConfigError {
    let at = error.span();
    let message = error.message().replace('\n', ", ");
    // Without its input the error shows the path of the key, which it does not offer otherwise.
    error.set_input(None);
    let shown = error.to_string();
    let mut key =
        shown.rsplit_once("\nin `").map_or("", |(_, path)| path.trim_end().trim_end_matches('`')).to_owned();
    let (line, column) = at.as_ref().map_or((0, 0), |at| position(text, at.start));
    let mut problem = message.clone();
    let mut suggestion = None;
    if let Some((what, name, mut valid)) = unknown_name(&message) {
        if what == "key" && (key.is_empty() || key == name) {
            valid.extend(also);
        }
        suggestion = nearest(name, valid.iter().copied()).map(str::to_owned);
        problem = format!("unknown {what} `{name}`, expected one of: {}", valid.join(", "));
        if what == "key" && key.rsplit('.').next() != Some(name) {
            key = if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
        }
    } else if let Some(name) = message.strip_prefix("missing field `") {
        problem = format!("missing key `{}`", name.trim_end_matches('`'));
    } else if key.is_empty()
        && let Some(at) = at
    {
        key = key_at(text, &at);
    }
    let constant = key.strip_suffix(".value").unwrap_or(&key);
    if let Some(words) = wanted::in_words(&problem, &key, ranges.of(constant)) {
        problem = words;
    }
    ConfigError { file: file.to_owned(), line, column, key, problem, suggestion }
}

/// Takes serde's message about an unknown field or variant apart: what it is, its name, and the valid names.
fn unknown_name(message: &str) -> Option<(&'static str, &str, Vec<&str>)> {
    let (what, rest) = if let Some(rest) = message.strip_prefix("unknown field `") {
        ("key", rest)
    } else {
        ("word", message.strip_prefix("unknown variant `")?)
    };
    let (name, rest) = rest.split_once('`')?;
    Some((what, name, rest.split('`').skip(1).step_by(2).collect()))
}

/// The key whose value `at` lies in, for texts that are not TOML and so have no tree to ask.
fn key_at(text: &str, at: &Range<usize>) -> String {
    let start = text[..at.start].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next().unwrap_or("");
    line.split_once('=').map_or(String::new(), |(key, _)| key.trim().to_owned())
}

/// Where the value of `key` (as in `cpu.clock_mhz` or `cache[1].ways`) begins in `text`.
fn locate(text: &str, key: &str) -> Option<usize> {
    let mut table = DeTable::parse(text).ok()?.into_inner();
    let mut at = None;
    for segment in key.split('.') {
        let (name, index) = match segment.split_once('[') {
            Some((name, index)) => (name, Some(index.trim_end_matches(']').parse::<usize>().ok()?)),
            None => (segment, None),
        };
        let Some(mut value) = table.remove(name) else { break };
        if let Some(index) = index {
            let DeValue::Array(items) = value.into_inner() else { return None };
            value = items.into_iter().nth(index)?;
        }
        at = Some(value.span().start);
        table = match value.into_inner() {
            DeValue::Table(inner) => inner,
            _ => DeTable::default(),
        };
    }
    at
}

/// Line and column, both from 1, of a byte offset.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        cpu: Cpu,
        #[serde(default)]
        cache: Vec<Level>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Cpu {
        clock_mhz: Sourced<u64>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Level {
        name: String,
        ways: Sourced<u64>,
    }

    fn fault(text: &str) -> ConfigError {
        load_toml::<Sample>("m.toml", text).expect_err("the file is faulty")
    }

    const GOOD: &str = "[cpu]\nclock_mhz = { value = 2400, source = \"paper, 3\", kind = \"paper\" }\n";

    #[test]
    fn a_good_file_is_read() {
        let sample: Sample = load_toml("m.toml", GOOD).expect("good");
        assert_eq!(sample.cpu.clock_mhz.value, 2400);
        assert_eq!(sample.cpu.clock_mhz.kind, SourceKind::Paper);
    }

    #[test]
    fn an_unknown_key_gets_the_nearest_name() {
        let e = fault("[cpu]\nclok_mhz = { value = 2400, source = \"s\", kind = \"paper\" }\n");
        assert_eq!((e.line, e.column, e.key.as_str()), (2, 1, "cpu.clok_mhz"));
        assert_eq!(e.suggestion.as_deref(), Some("clock_mhz"));
        assert!(e.to_string().starts_with("m.toml:2:1: `cpu.clok_mhz`: unknown key"), "{e}");
        assert!(e.to_string().ends_with("did you mean `clock_mhz`?"), "{e}");
    }

    #[test]
    fn a_plain_number_is_yours_and_goes_through_toml() {
        let sample: Sample = load_toml("m.toml", "[cpu]\nclock_mhz = 3000\n").expect("good");
        let clock = &sample.cpu.clock_mhz;
        assert_eq!((clock.value, clock.source.as_str(), clock.kind), (3000, "", SourceKind::Yours));
        let written = toml::to_string(&sample).expect("TOML");
        assert_eq!(load_toml::<Sample>("m.toml", &written).expect("good").cpu.clock_mhz, *clock);
        assert_eq!(constants_of(&sample)[0].kind, SourceKind::Yours);
    }

    #[test]
    fn anything_else_is_told_what_was_expected() {
        for (wrong, found) in [
            ("\"fast\"", "the text \"fast\""),
            ("[1]", "a list"),
            ("-1", "the number -1"),
            ("1.5", "the number 1.5"),
        ] {
            let told = format!(
                "found {found}, expected a whole number of megahertz, such as `clock_mhz = 3000`, or {{"
            );
            let e = fault(&format!("[cpu]\nclock_mhz = {wrong}\n"));
            assert_eq!((e.line, e.column, e.key.as_str()), (2, 13, "cpu.clock_mhz"), "{e}");
            assert!(e.problem.starts_with(&told), "{e}");
            assert!(e.problem.contains("or { value = ..., source = \"...\", kind = \"...\" }"), "{e}");
        }
        let e = fault("[cpu]\nclock_mhz = { value = 3000 }\n");
        assert_eq!(
            (e.line, e.problem.as_str(), e.key.as_str()),
            (2, "missing key `source`", "cpu.clock_mhz")
        );
        let e = fault("[cpu]\nclock_mhz = { value = 3000, source = \"s\" }\n");
        assert_eq!((e.line, e.problem.as_str(), e.key.as_str()), (2, "missing key `kind`", "cpu.clock_mhz"));
    }

    #[test]
    fn a_file_that_may_extend_others_is_told_so() {
        let load = |text: &str| {
            let none = Ranges(&[]);
            load_extending::<Sample>("m.toml", text, "machine", &|_| None, &none, &|_| Ok(()))
                .expect_err("the file is faulty")
        };
        let e = load(&format!("extend = \"xeon-up\"\n{GOOD}"));
        assert_eq!((e.suggestion.as_deref(), e.line), (Some("extends"), 1), "{e}");
        assert!(e.problem.ends_with("expected one of: cpu, cache, extends"), "{e}");
        // Not in a table, where it means nothing.
        assert!(!load("[cpu]\nextends = 1\n").problem.contains("clock_mhz, extends"));
    }

    #[test]
    fn a_wrong_type_and_a_wrong_word_are_placed() {
        let e = fault("[cpu]\nclock_mhz = { value = \"fast\", source = \"s\", kind = \"paper\" }\n");
        assert_eq!((e.line, e.column, e.key.as_str()), (2, 23, "cpu.clock_mhz.value"));
        assert!(
            e.problem.contains("expected a whole number of megahertz, such as `clock_mhz = 3000`"),
            "{e}"
        );
        let e = fault("[cpu]\nclock_mhz = { value = 1, source = \"s\", kind = \"mesured\" }\n");
        assert_eq!(
            (e.line, e.key.as_str(), e.suggestion.as_deref()),
            (2, "cpu.clock_mhz.kind", Some("measured"))
        );
    }

    #[test]
    fn calibrated_goes_with_against_and_only_so() {
        let e = fault("[cpu]\nclock_mhz = { value = 1, source = \"s\", kind = \"calibrated\" }\n");
        assert!(e.problem.contains("missing `against`"), "{e}");
        assert_eq!((e.line, e.key.as_str()), (2, "cpu.clock_mhz"));
        let e =
            fault("[cpu]\nclock_mhz = { value = 1, source = \"s\", kind = \"paper\", against = \"x\" }\n");
        assert!(e.problem.contains("only where kind is calibrated"), "{e}");
    }

    #[test]
    fn broken_toml_and_missing_keys_are_placed() {
        let e = fault("[cpu]\nclock_mhz = { value = 1, source = \n");
        assert_eq!(e.line, 2);
        assert_eq!(e.key, "clock_mhz");
        let e = fault("[cpu]\n");
        assert_eq!((e.line, e.problem.as_str(), e.key.as_str()), (1, "missing key `clock_mhz`", "cpu"));
    }

    #[test]
    fn names_are_found_by_likeness_only() {
        let names = ["xeon-up", "xeon-htt", "opteron-mp"];
        assert_eq!(nearest("xeonup", names), Some("xeon-up"));
        assert_eq!(nearest("XEON-HT", names), Some("xeon-htt"));
        assert_eq!(nearest("sparc64", names), None);
        assert_eq!(nearest("ab", ["cd"]), None);
        assert_eq!(nearest("x", Vec::<&str>::new()), None);
    }

    #[test]
    fn merging_replaces_a_constant_as_a_whole() {
        let base =
            "[cpu]\na = { value = 1, source = \"s\", kind = \"calibrated\", against = \"i\" }\nb = 1\n";
        let over = "[cpu]\na = { value = 2, source = \"t\", kind = \"paper\" }\n[new]\nc = 3\n";
        let mut table = parse_table("b", base).expect("base").into_inner();
        merge(&mut table, parse_table("o", over).expect("over").into_inner());
        let merged: toml::Table =
            from_table("o", over, Spanned::new(0..0, table), &[], &Ranges(&[])).expect("merged");
        assert!(merged["cpu"]["a"].get("against").is_none());
        assert_eq!(merged["cpu"]["b"].as_integer(), Some(1));
        assert_eq!(merged["new"]["c"].as_integer(), Some(3));
    }

    #[test]
    fn constants_are_listed_with_their_path() {
        let text = format!(
            "{GOOD}[[cache]]\nname = \"L1\"\nways = {{ value = 4, source = \"s\", kind = \"calibrated\", against = \"i\" }}\n"
        );
        let sample: Sample = load_toml("m.toml", &text).expect("good");
        let constants = constants_of(&sample);
        let keys: Vec<_> = constants.iter().map(|c| (c.key.as_str(), c.value.as_str())).collect();
        assert_eq!(keys, [("cache.L1.ways", "4"), ("cpu.clock_mhz", "2400")]);
        assert_eq!(constants[0].against.as_deref(), Some("i"));
    }

    #[test]
    fn values_are_located_in_the_text() {
        let text = "[cpu]\nclock_mhz = 1\n[[cache]]\nways = 2\n[[cache]]\nways = 3\n";
        assert_eq!(locate(text, "cpu.clock_mhz").map(|at| position(text, at)), Some((2, 13)));
        assert_eq!(locate(text, "cache[1].ways").map(|at| position(text, at)), Some((6, 8)));
        assert_eq!(locate(text, "tlb"), None);
    }
}
