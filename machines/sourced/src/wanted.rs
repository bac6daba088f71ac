//! What a value of a file should have been: the parser's words about types in words about machines.
//!
//! The parser says `invalid type: string "fast", expected u64`. The reader of the error has written `clock_mhz =
//! "fast"`, and is told that a whole number of megahertz goes there, which ones there may be, and what one looks like.
//! The unit is in the key's name; the bounds are those of the file's [`Range`]s.

use super::range::Range;

/// How keys end, what they are in, and a number of those that is not unusual.
const UNITS: [(&str, &str, i64); 15] = [
    ("_cycles", "cycles", 100),
    ("_instructions", "instructions", 100),
    ("_mhz", "megahertz", 3000),
    ("_hz", "hertz", 100),
    ("_bytes", "bytes", 4096),
    ("_kb", "KB (1024 bytes)", 64),
    ("_mb", "MB (1024 KB)", 64),
    ("_pages", "pages", 16),
    ("_percent", "percent", 50),
    ("_ms", "milliseconds", 10),
    ("_us", "microseconds", 10),
    ("_ns", "nanoseconds", 100),
    ("_ps", "picoseconds", 100),
    ("_mbit_s", "megabits a second", 1000),
    ("_mb_s", "MB (1,000,000 bytes) a second", 100),
];

/// What the parser's `message` says of the value of `key`, whose numbers have to be in `range`; `None` if it is not
/// about its type.
pub(crate) fn in_words(message: &str, key: &str, range: Option<Range>) -> Option<String> {
    let said = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, wanted) = said.rsplit_once(", expected ")?;
    let (wanted, form) = match wanted.split_once("; expected such a value, or ") {
        None => wanted.split_once(", or ").map_or((wanted, None), |(wanted, form)| (wanted, Some(form))),
        Some((wanted, form)) => (wanted, Some(form)),
    };
    // A constant is known by its own key, and an element of a list by the list's.
    let name = key.strip_suffix(".value").unwrap_or(key);
    let name = name.rsplit('.').next().unwrap_or_default();
    let name = name.split('[').next().unwrap_or_default();
    let unit = UNITS.iter().find(|(end, ..)| name.ends_with(end));
    let number = || {
        let of = unit.map_or(String::new(), |(_, unit, _)| format!(" of {unit}"));
        let (min, max) = range.map_or((0, i64::MAX), |r| (r.min, r.max));
        let bounds = range.map_or(String::new(), |_| format!(" from {min} to {max}"));
        let usual = unit.map_or(1, |(.., usual)| *usual).clamp(min, max);
        format!("a whole number{of}{bounds}, such as `{name} = {usual}`")
    };
    let wanted = match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" => number(),
        // What may have a source may be of any type; the key tells.
        "a value" if range.is_some() || unit.is_some() => number(),
        "a value" => "a single value".to_owned(),
        "f32" | "f64" => format!("a number, such as `{name} = 1.5`"),
        "a boolean" => format!("true or false, as in `{name} = true`"),
        "a string" => format!("a text in quotes, as in `{name} = \"...\"`"),
        "a sequence" => format!("a list in brackets, as in `{name} = [...]`"),
        "a map" => "a table".to_owned(),
        of if of.starts_with("struct ") => "a table".to_owned(),
        _ => return None,
    };
    let form = form.map_or(String::new(), |form| format!(", or {form}"));
    Some(format!("found {}, expected {wanted}{form}", found_in_words(found)))
}

fn found_in_words(found: &str) -> String {
    let plain = |text: &str| text.trim_matches('`').to_owned();
    if let Some(text) = found.strip_prefix("string ") {
        format!("the text {text}")
    } else if let Some(number) = found.strip_prefix("integer ").or(found.strip_prefix("floating point ")) {
        format!("the number {}", plain(number))
    } else if let Some(flag) = found.strip_prefix("boolean ") {
        plain(flag)
    } else {
        match found {
            "sequence" => "a list".to_owned(),
            "map" => "a table".to_owned(),
            other => other.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::range::range;
    use super::*;

    #[test]
    fn types_are_told_as_what_goes_there() {
        let mhz = Some(range("cpu.clock_mhz", 1, 100_000));
        let said = |message: &str, key: &str, range| in_words(message, key, range).expect("about a type");
        assert_eq!(
            said("invalid type: string \"fast\", expected u64", "cpu.clock_mhz", mhz),
            "found the text \"fast\", expected a whole number of megahertz from 1 to 100000, such as `clock_mhz = 3000`"
        );
        assert_eq!(
            said(
                "invalid type: boolean `true`, expected u32; expected such a value, or { value = ... }",
                "x.ways",
                None
            ),
            "found true, expected a whole number, such as `ways = 1`, or { value = ... }"
        );
        assert!(
            said("invalid type: sequence, expected a value, or { value = ... }", "a.cost_cycles[3]", None)
                .starts_with(
                    "found a list, expected a whole number of cycles, such as `cost_cycles = 100`, or {"
                )
        );
        // The usual number is told only where it may stand.
        assert!(
            said("invalid type: map, expected u64", "a.len_pages", Some(range("a.len_pages", 1, 8)))
                .ends_with("such as `len_pages = 8`")
        );
        assert_eq!(
            said("invalid type: integer `3`, expected a boolean", "tlb.global", None),
            "found the number 3, expected true or false, as in `global = true`"
        );
        assert_eq!(in_words("missing field `value`", "a.b", None), None);
        assert_eq!(in_words("invalid type: string \"x\", expected a lucky number", "a.b", None), None);
    }
}
