//! The fields of a message (RFC 9110, 5): by name, whatever its case; one value, or all of them as one list.

use std::time::SystemTime;

/// The fields, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, Vec<u8>)>);

/// What is said by a field that can be there once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Single<'a> {
    /// It is not there.
    None,
    /// It is there, and has this value.
    Value(&'a str),
    /// It is there several times, or its value is not what any field may have that is defined so.
    Unclear,
}

impl Fields {
    pub(super) fn new<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Fields {
        Fields(fields.map(|(name, value)| (name.to_owned(), value.trim_ascii().to_owned())).collect())
    }

    /// The values of all fields of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.0.iter().filter(move |(its, _)| its.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_slice())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// The value of a field that can be there once.
    pub(super) fn single<'a>(&'a self, name: &'a str) -> Single<'a> {
        let mut all = self.all(name);
        match (all.next(), all.next()) {
            (None, _) => Single::None,
            (Some(value), None) if value.is_ascii() => {
                std::str::from_utf8(value).map_or(Single::Unclear, Single::Value)
            }
            _ => Single::Unclear,
        }
    }

    /// The elements of a list, over all fields of the name (5.6.1): what is between commas that are in no quotes.
    pub(super) fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let elements = self.all(name).flat_map(|value| {
            let mut is_quoted = false;
            value.split(move |&byte| {
                is_quoted ^= byte == b'"';
                byte == b',' && !is_quoted
            })
        });
        elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
    }

    /// True when a list has this word.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.list(name).any(|element| element.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The date that a field has, if it is one (5.6.7); another value counts as none.
    pub(super) fn date(&self, name: &str) -> Option<SystemTime> {
        match self.single(name) {
            Single::Value(text) => httpdate::parse_http_date(text).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) fn fields(lines: &[(&str, &str)]) -> Fields {
    Fields::new(lines.iter().map(|(name, value)| (*name, value.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_one_name_are_one_list() {
        let fields = fields(&[
            ("Connection", "TE, close"),
            ("connection", " , upgrade,"),
            ("If-Match", "\"a,b\", \"c\""),
        ]);
        let list: Vec<&[u8]> = fields.list("CONNECTION").collect();
        assert_eq!(list, [&b"TE"[..], b"close", b"upgrade"]);
        assert!(fields.lists("connection", "Close") && !fields.lists("connection", "keep-alive"));
        assert_eq!(fields.list("if-match").count(), 2);
        assert_eq!(fields.single("Connection"), Single::Unclear);
        assert_eq!(fields.single("Host"), Single::None);
    }

    #[test]
    fn a_date_is_in_one_of_the_three_forms_or_none() {
        let at = |text: &str| fields(&[("Date", text)]).date("date");
        let date = at("Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(date.is_some());
        assert_eq!(at("Sunday, 06-Nov-94 08:49:37 GMT"), date);
        assert_eq!(at("Sun Nov  6 08:49:37 1994"), date);
        for none in ["", "yesterday", "784111777", "Sun, 06 Nov 1994 08:49:37"] {
            assert_eq!(at(none), None, "{none}");
        }
    }
}
