//! A file written anew, so that it loads again: what it was laid upon included.
//!
//! A constant with its source is one entry, `key = { value = ..., source = "...", kind = "..." }`; tables are sections,
//! with what is short before what is long. Lines are at most 120 characters wide where texts can be cut.

use serde::Serialize;
use std::fmt::Write as _;
use toml::{Table, Value};

/// How wide a line may be, where it can be cut.
const MAX_WIDTH: usize = 120;

/// What `config` is as the text of a TOML file.
///
/// # Panics
/// When `config` cannot be written as TOML.
pub fn to_toml<T: Serialize>(config: &T) -> String {
    let table =
        Table::try_from(config).expect("a configuration that was read from TOML can be written as TOML");
    let mut out = String::new();
    section(&mut out, "", &table);
    out
}

/// A table's entries, and below them the tables in it.
fn section(out: &mut String, path: &str, table: &Table) {
    for (name, value) in table.iter().filter(|(_, value)| is_entry(value)) {
        entry(out, name, value);
    }
    for (name, value) in table.iter().filter(|(_, value)| !is_entry(value)) {
        let path = if path.is_empty() { key(name) } else { format!("{path}.{}", key(name)) };
        let (open, close, tables) = match value {
            Value::Array(tables) => ("[[", "]]", tables.iter().filter_map(Value::as_table).collect()),
            Value::Table(table) => ("[", "]", vec![table]),
            _ => unreachable!("all else is an entry"),
        };
        for table in tables {
            // A table of tables alone needs no line of its own, unless it is empty.
            if open == "[[" || table.is_empty() || table.values().any(is_entry) {
                let _ = writeln!(out, "{}{open}{path}{close}", if out.is_empty() { "" } else { "\n" });
            }
            section(out, &path, table);
        }
    }
}

/// Whether a value is written behind its key, and not as a section: a constant with its source is.
fn is_entry(value: &Value) -> bool {
    match value {
        Value::Table(table) => table.contains_key("value"),
        Value::Array(all) => all.is_empty() || !all.iter().all(|one| matches!(one, Value::Table(_))),
        _ => true,
    }
}

fn entry(out: &mut String, name: &str, value: &Value) {
    let begun = format!("{} = ", key(name));
    let plain = format!("{begun}{}", inline(value));
    if plain.chars().count() <= MAX_WIDTH {
        out.push_str(&plain);
    } else if let Value::Table(table) = value {
        let parts: Vec<_> = ordered(table).filter(|(name, _)| *name != "source").collect();
        let parts: Vec<_> =
            parts.iter().map(|(name, value)| format!("{} = {}", key(name), inline(value))).collect();
        let before = format!("{begun}{{ {}, source = ", parts.join(", "));
        let source = table.get("source").and_then(Value::as_str).unwrap_or_default();
        out.push_str(&cut(&before, source, " }"));
    } else if let Value::String(text) = value {
        out.push_str(&cut(&begun, text, ""));
    } else {
        out.push_str(&plain);
    }
    out.push('\n');
}

/// A text over several lines, which is the same text when it is read.
fn cut(before: &str, text: &str, after: &str) -> String {
    let escaped = escape(text);
    let mut out = format!("{before}\"\"\"");
    let mut width = out.chars().count();
    let words = escaped.split_inclusive(' ').collect::<Vec<_>>();
    for (at, word) in words.iter().enumerate() {
        // What ends a line beside the word: a backslash, or the end of the text.
        let end = if at + 1 < words.len() { 1 } else { 3 + after.len() };
        // What is cut off on the left of a new line would be lost from a word that begins with a blank.
        let may_break = at > 0 && !word.starts_with(' ');
        if may_break && width + word.chars().count() + end > MAX_WIDTH {
            out.push_str("\\\n    ");
            width = 4;
        }
        out.push_str(word);
        width += word.chars().count();
    }
    let _ = write!(out, "\"\"\"{after}");
    out
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", escape(text)),
        Value::Array(all) => format!("[{}]", all.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) => {
            let parts = ordered(table).map(|(name, value)| format!("{} = {}", key(name), inline(value)));
            format!("{{ {} }}", parts.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// The entries of a table, those of a constant in the order in which people write them.
fn ordered(table: &Table) -> impl Iterator<Item = (&String, &Value)> {
    let first = ["value", "source", "kind", "against"];
    let known = first.into_iter().filter_map(|name| table.get_key_value(name));
    known.chain(table.iter().filter(move |(name, _)| !first.contains(&name.as_str())))
}

fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { format!("\"{}\"", escape(name)) }
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => drop(write!(out, "\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) {
        let table: Table = text.parse().expect("TOML");
        let written = to_toml(&table);
        assert_eq!(written.parse::<Table>().expect("TOML again"), table, "{written}");
        let wide = written.lines().find(|line| line.chars().count() > MAX_WIDTH);
        assert_eq!(wide, None, "{written}");
    }

    #[test]
    fn what_is_written_reads_as_it_was() {
        let long = "word ".repeat(60);
        again(&format!("title = \"{long}\"\nnumber = -3\nreal = 0.5\nyes = true\n"));
        again(&format!("[cpu]\nclock = {{ value = 1, source = \"{long}\", kind = \"assumed\" }}\n"));
        again("[cpu]\nclock = { value = \"w\", source = \"\", kind = \"yours\" }\n");
        again(
            "[[cache]]\nname = \"L1\"\nways = { value = 4, source = \"s\", kind = \"paper\" }\n\
             [[cache]]\nname = \"L2\"\n",
        );
        again("[a.b.c]\nx = 1\n[a.b.d]\n[e]\n\"a key\" = [1, 2]\n");
        again("text = \"a \\\"quoted\\\" \\\\ one\\n\\ttab\\u0001 é\"\nempty = \"\"\nlist = []\n");
        again(&format!("text = \"{}  two blanks  {long}\"\n", "x".repeat(100)));
    }

    #[test]
    fn a_constant_is_one_entry() {
        let table: Table =
            "[cpu.clock]\nvalue = 1\nsource = \"s\"\nkind = \"paper\"\n".parse().expect("TOML");
        assert_eq!(to_toml(&table), "[cpu]\nclock = { value = 1, source = \"s\", kind = \"paper\" }\n");
    }
}
