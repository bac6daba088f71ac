//! Reading a file, alone or laid upon those that it extends.

use super::error::{ConfigError, Fault, nearest};
use super::place::position;
use super::range::Ranges;
use super::value::{Refusal, SpannedValue};
use super::wanted;
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads `text`, the contents of the file called `path_name`, as a `T`.
///
/// # Errors
/// When `text` is not TOML, or not what `T` wants: file, line, column, key, and what was expected.
pub fn load_toml<T: DeserializeOwned>(path_name: &str, text: &str) -> Result<T, ConfigError> {
    from_table(path_name, text, parse_table(path_name, text)?, &[], &Ranges(&[]))
}

/// Reads the file called `name`, whose contents are `text`, laid upon the files that it names in `extends`, which
/// `lookup` gives; `word` is what such a file describes, for errors. Each is read and checked as it is laid on, the
/// last first, so that a fault is always one of the file that is being laid. Their numbers have to be in `ranges`. Of
/// each pair of keys in `instead` a file has one at most: which tells one takes the other away from those that it
/// extends.
///
/// # Errors
/// When a file is not TOML, not a `T`, out of range, refused by `check`, not there, or extends itself; with the place
/// of the fault.
pub fn load_extending<T: DeserializeOwned>(
    name: &str,
    text: &str,
    word: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    ranges: &Ranges,
    instead: &[(&str, &str)],
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
        for (one, other) in instead.iter().flat_map(|&(a, b)| [(a, b), (b, a)]) {
            if has(&over, one) && !has(&over, other) {
                remove(&mut merged, other);
            }
        }
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
    // A key that is in no table stands before the first of them; what is before a line like the first of a table is no
    // TOML if it ends within a value.
    let head = text.find("\n[").map_or(text.as_str(), |end| &text[..end]);
    let table = DeTable::parse(head).or_else(|_| parse_table(file, text))?.into_inner();
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
    DeTable::parse(text).map_err(|error| of_syntax(file, text, &error))
}

/// Reads a parsed `table`, whose places are in `text`, as a `T`; `also` are keys that a file may have beside those of a
/// `T`, and `ranges` are of its numbers: both for errors.
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
    T::deserialize(SpannedValue::table(table)).map_err(|refusal| of_value(file, text, &refusal, also, ranges))
}

/// What a table says of its value alone: another value has its own, or none.
const OF_A_VALUE: [&str; 6] = ["value", "source", "kind", "against", "quick", "reproduce"];

/// `over` laid upon `base`, table by table and key by key. A sourced constant is replaced as a whole, so that a value
/// never keeps the source of another; so is an array. A parameter, which says more than a constant does (a unit, the
/// smallest that makes sense), keeps that; a plain value is its value.
fn merge<'a>(base: &mut DeTable<'a>, over: DeTable<'a>) {
    for (key, mut value) in over {
        if let Some(DeValue::Table(old)) = base.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut)
            && is_parameter(old)
        {
            let keeps_value = matches!(value.get_ref(), DeValue::Table(new) if !new.contains_key("value"));
            if !keeps_value {
                OF_A_VALUE.into_iter().for_each(|key| drop(old.remove(key)));
            }
            match value.get_mut() {
                DeValue::Table(new) => merge(old, std::mem::take(new)),
                _ => {
                    old.insert(Spanned::new(key.span(), "value".into()), value);
                }
            }
            continue;
        }
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

/// A table has a key, whose parts have points between them.
fn has(table: &DeTable<'_>, key: &str) -> bool {
    match key.split_once('.') {
        None => table.contains_key(key),
        Some((first, rest)) => table
            .get(first)
            .is_some_and(|value| matches!(value.get_ref(), DeValue::Table(inner) if has(inner, rest))),
    }
}

/// Removes such a key.
fn remove(table: &mut DeTable<'_>, key: &str) {
    match key.split_once('.') {
        None => drop(table.remove(key)),
        Some((first, rest)) => {
            if let Some(DeValue::Table(inner)) = table.get_mut(first).map(Spanned::get_mut) {
                remove(inner, rest);
            }
        }
    }
}

fn is_parameter(table: &DeTable<'_>) -> bool {
    table.contains_key("value") && table.keys().any(|key| !OF_A_VALUE.contains(&key.get_ref().as_ref()))
}

/// The error of a text that is not TOML, in our words.
fn of_syntax(file: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let at = error.span();
    let (line, column) = at.as_ref().map_or((0, 0), |at| position(text, at.start));
    ConfigError {
        file: file.to_owned(),
        line,
        column,
        key: at.map_or(String::new(), |at| key_at(text, &at)),
        problem: error.message().replace('\n', ", "),
        suggestion: None,
    }
}

/// The error of a value, in our words.
fn of_value(file: &str, text: &str, refusal: &Refusal, also: &[&str], ranges: &Ranges) -> ConfigError {
    let message = refusal.message.replace('\n', ", ");
    let mut key = refusal.key();
    let (line, column) = refusal.at.as_ref().map_or((0, 0), |at| position(text, at.start));
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
