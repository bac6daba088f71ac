//! The part of a file that is asked for (RFC 9110, 14): one range of bytes. Several, other units and what is no range
//! are ignored, which the RFC allows (14.2).

use super::fields::{Fields, Single};
use std::ops::Range;

/// What is to be sent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// These bytes, at least one.
    Bytes(Range<u64>),
    /// There are no such bytes.
    Unsatisfiable,
}

/// What the fields of a request ask for of `len` bytes.
pub(super) fn part(fields: &Fields, len: u64) -> Part {
    let Single::Value(text) = fields.single("range") else { return Part::Whole };
    parse(text, len).unwrap_or(Part::Whole)
}

fn parse(text: &str, len: u64) -> Option<Part> {
    let (unit, ranges) = text.split_once('=')?;
    let mut ranges = ranges.split(',').map(str::trim).filter(|range| !range.is_empty());
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return None };
    let (first, last) = range.split_once('-')?;
    if !unit.eq_ignore_ascii_case("bytes") || !is_number(first) || !is_number(last) {
        return None;
    }
    let bytes = match (number(first), number(last)) {
        (None, None) => return None,
        // The last so many. Of no bytes these are all, and no part.
        (None, Some(suffix)) if suffix > 0 && len == 0 => return None,
        (None, Some(suffix)) => len.saturating_sub(suffix)..len,
        (Some(first), Some(last)) if last < first => return None,
        (Some(first), last) => first.min(len)..last.map_or(len, |last| last.saturating_add(1).min(len)),
    };
    Some(if bytes.is_empty() { Part::Unsatisfiable } else { Part::Bytes(bytes) })
}

/// Digits, or nothing.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What digits say; more than can be written down is as much as can.
fn number(digits: &str) -> Option<u64> {
    (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_rfc() {
        let ten = |text: &str| parse(text, 10);
        let bytes = |bytes| Some(Part::Bytes(bytes));
        assert_eq!(ten("bytes=0-0"), bytes(0..1));
        assert_eq!(ten("Bytes=5-"), bytes(5..10));
        assert_eq!(ten("bytes=-3"), bytes(7..10));
        assert_eq!(ten("bytes=-30"), bytes(0..10));
        assert_eq!(ten("bytes=5-100"), bytes(5..10));
        assert_eq!(ten("bytes= ,5-6 ,"), bytes(5..7));
        assert_eq!(ten("bytes=5-99999999999999999999999"), bytes(5..10));
        for none in ["bytes=10-", "bytes=-0", "bytes=99999999999999999999999-", "bytes=10-11"] {
            assert_eq!(ten(none), Some(Part::Unsatisfiable), "{none}");
        }
        for ignored in [
            "bytes=0-1,4-5",
            "bytes=7-3",
            "lines=1-2",
            "bytes=+1-2",
            "bytes=1-+2",
            "bytes=-",
            "bytes=",
            "bytes",
            "bytes=a-b",
        ] {
            assert_eq!(ten(ignored), None, "{ignored}");
        }
        assert_eq!(parse("bytes=0-", 0), Some(Part::Unsatisfiable));
        assert_eq!(parse("bytes=-5", 0), None);
    }
}
