//! Numbers that say where they are from.
//!
//! Every constant of a machine or kernel file is a [`Sourced`] value: the number, the text that names its source, and
//! how far that source can be trusted ([`SourceKind`]). A calibrated number names the published one that it was fitted
//! to, so that the report can set the calibrated apart from the predicted. Who writes a file of their own need not give
//! a source: a plain value is theirs ([`SourceKind::Yours`]), and is shown as that.

use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// Measured on such hardware: by others, who published it, or by us; the source says by whom.
    Measured,
    /// Fitted, so that the model gives the published number named by [`Sourced::against`].
    Calibrated,
    /// Taken to be so; the source says why it is plausible.
    Assumed,
    /// Decided, and nothing to be measured: how large a part of what exists is modelled, what an owner sets up, the
    /// grain of the simulation. The source says why so.
    Chosen,
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
            SourceKind::Chosen => "chosen",
            SourceKind::Yours => "yours",
        }
    }

    /// The source begins with the key of a document that says so; of other kinds it is a sentence.
    pub const fn cites(self) -> bool {
        match self {
            SourceKind::Paper | SourceKind::Datasheet | SourceKind::Code | SourceKind::Measured => true,
            SourceKind::Calibrated | SourceKind::Assumed | SourceKind::Chosen | SourceKind::Yours => false,
        }
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A constant with its source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "RawSourced<T>")]
pub struct Sourced<T> {
    /// The constant. Its unit is in the name of its key.
    pub value: T,
    /// Where it is from: a key of the file's `[sources]`, a comma, and the place in it; or the reasoning. Empty for a
    /// value that is [`SourceKind::Yours`].
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

/// The name by which the reader of a file knows a sourced value: it reads a plain one as a table with that value, of
/// the kind [`SourceKind::Yours`].
pub(super) const SOURCED: &str = "Sourced";

/// How a sourced value is written.
pub(super) const FORM: &str = "{ value = ..., source = \"...\", kind = \"...\" }";

/// What is written in a file for a [`Sourced`] value.
#[derive(Deserialize)]
#[serde(rename = "Sourced", deny_unknown_fields)]
struct RawSourced<T> {
    value: T,
    source: Option<String>,
    kind: Option<SourceKind>,
    against: Option<String>,
}

impl<T> TryFrom<RawSourced<T>> for Sourced<T> {
    type Error = String;

    fn try_from(raw: RawSourced<T>) -> Result<Self, String> {
        let RawSourced { value, source, kind, against } = raw;
        let (source, kind) = origin(source, kind, against.as_deref())?;
        Ok(Sourced { value, source, kind, against })
    }
}

/// Source and kind of a constant, if they go together and with what it was fitted to.
fn origin(
    source: Option<String>,
    kind: Option<SourceKind>,
    against: Option<&str>,
) -> Result<(String, SourceKind), String> {
    let missing = |key: &str| format!("missing field `{key}`");
    if kind == Some(SourceKind::Yours) && against.is_none() {
        return Ok((source.unwrap_or_default(), SourceKind::Yours));
    }
    let source = source.ok_or_else(|| missing("source"))?;
    let kind = kind.ok_or_else(|| missing("kind"))?;
    if source.trim().is_empty() {
        return Err("empty `source`, expected where the value is from, or why it is plausible".to_owned());
    }
    match (kind, against) {
        (SourceKind::Calibrated, None) => {
            Err("missing `against`, expected the id of the published number it was calibrated to".to_owned())
        }
        (SourceKind::Calibrated, Some(id)) if id.trim().is_empty() => {
            Err("empty `against`, expected the id of a published number".to_owned())
        }
        (SourceKind::Calibrated, Some(_)) | (_, None) => Ok((source, kind)),
        (_, Some(_)) => Err(format!("`against` given, expected only where kind is calibrated, not {kind}")),
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
            let text = |key: &str| table.get(key).and_then(toml::Value::as_str).map(str::to_owned);
            let kind = SourceKind::deserialize(table["kind"].clone());
            found.push(Constant {
                key: path.to_owned(),
                value: table["value"].to_string(),
                source: text("source").expect("a sourced constant has one"),
                kind: kind.expect("a sourced constant has one"),
                against: text("against"),
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
