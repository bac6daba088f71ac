//! Where in a text something is: of a key, the byte at which its value begins; of a byte, line and column.

use toml::de::{DeTable, DeValue};

/// Where the value of `key` (as in `cpu.clock_mhz` or `cache[1].ways`) begins in `text`.
pub(crate) fn locate(text: &str, key: &str) -> Option<usize> {
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
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}
