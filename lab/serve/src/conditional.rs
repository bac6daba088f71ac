//! Conditions of a request (RFC 9110, 13): whether what the client knows is what is there.

use super::fields::{Fields, Single};
use std::time::{Duration, SystemTime};

/// What is there, as far as conditions can ask for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators<'a> {
    /// Its entity tag, in quotes; a strong one.
    pub(super) tag: &'a str,
    /// When it was last changed, in whole seconds.
    pub(super) modified: SystemTime,
}

/// What the conditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They are met, or there are none.
    Met,
    /// The client has what is there (304).
    NotModified,
    /// They are not met (412).
    Failed,
}

/// Looks at the conditions of a request in the order of 13.2.2; `there` is what the target has now, if it has anything.
pub(super) fn verdict(fields: &Fields, is_read: bool, there: Option<Validators<'_>>) -> Verdict {
    if fields.has("if-match") {
        if !matches(fields, "if-match", there, strongly) {
            return Verdict::Failed;
        }
    } else if let (Some(date), Some(there)) = (fields.date("if-unmodified-since"), there)
        && there.modified > date
    {
        return Verdict::Failed;
    }
    if fields.has("if-none-match") {
        if matches(fields, "if-none-match", there, weakly) {
            return if is_read { Verdict::NotModified } else { Verdict::Failed };
        }
    } else if let (true, Some(date), Some(there)) = (is_read, fields.date("if-modified-since"), there)
        && there.modified <= date
    {
        return Verdict::NotModified;
    }
    Verdict::Met
}

/// True when a part may be sent: `If-Range` names what is there, or is not there itself (13.1.5).
pub(super) fn part_is_wanted(fields: &Fields, there: Validators<'_>, now: SystemTime) -> bool {
    match fields.single("if-range") {
        Single::None => true,
        Single::Value(tag) if tag.starts_with(['"', 'W']) && tag.ends_with('"') => tag == there.tag,
        // A date is as good as a strong tag if nothing else can have been there in the same second (8.8.2.2).
        Single::Value(_) => {
            let settled = now.duration_since(there.modified).is_ok_and(|age| age > Duration::from_secs(1));
            settled && fields.date("if-range") == Some(there.modified)
        }
        Single::Unclear => false,
    }
}

/// True when a field's list has what is there, or says that anything will do.
fn matches(
    fields: &Fields,
    name: &str,
    there: Option<Validators<'_>>,
    are_same: fn(&[u8], &str) -> bool,
) -> bool {
    let Some(there) = there else { return false };
    fields.list(name).any(|element| element == b"*" || are_same(element, there.tag))
}

/// Comparison of tags (8.8.3.2), where what is there is strong.
fn strongly(theirs: &[u8], tag: &str) -> bool {
    theirs == tag.as_bytes()
}

fn weakly(theirs: &[u8], tag: &str) -> bool {
    strongly(theirs.strip_prefix(b"W/").unwrap_or(theirs), tag)
}

#[cfg(test)]
mod tests {
    use super::super::fields::fields;
    use super::*;

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const WHEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn there() -> Validators<'static> {
        Validators { tag: "\"a\"", modified: httpdate::parse_http_date(WHEN).expect("a date") }
    }

    #[test]
    fn conditions_are_looked_at_in_order() {
        use Verdict::{Failed, Met, NotModified};
        for (lines, read, write) in [
            (&[][..], Met, Met),
            (&[("If-Match", "\"b\", \"a\"")], Met, Met),
            (&[("If-Match", "W/\"a\"")], Failed, Failed),
            (&[("If-Match", "*")], Met, Met),
            (&[("If-None-Match", "W/\"a\"")], NotModified, Failed),
            (&[("If-None-Match", "\"b\""), ("If-Modified-Since", WHEN)], Met, Met),
            (&[("If-None-Match", "*")], NotModified, Failed),
            (&[("If-Modified-Since", WHEN)], NotModified, Met),
            (&[("If-Modified-Since", BEFORE)], Met, Met),
            (&[("If-Modified-Since", "soon")], Met, Met),
            (&[("If-Modified-Since", WHEN), ("If-Modified-Since", WHEN)], Met, Met),
            (&[("If-Unmodified-Since", BEFORE)], Failed, Failed),
            (&[("If-Unmodified-Since", BEFORE), ("If-Match", "\"a\"")], Met, Met),
            (&[("If-Unmodified-Since", WHEN)], Met, Met),
        ] {
            let fields = fields(lines);
            assert_eq!(verdict(&fields, true, Some(there())), read, "{lines:?}");
            assert_eq!(verdict(&fields, false, Some(there())), write, "{lines:?}");
        }
    }

    #[test]
    fn conditions_about_nothing() {
        let nothing = |lines| verdict(&fields(lines), false, None);
        assert_eq!(nothing(&[("If-Match", "*")]), Verdict::Failed);
        assert_eq!(nothing(&[("If-None-Match", "*")]), Verdict::Met);
        assert_eq!(nothing(&[("If-Unmodified-Since", BEFORE)]), Verdict::Met);
    }

    #[test]
    fn a_part_is_sent_of_what_the_client_knows() {
        let later = there().modified + Duration::from_secs(60);
        let wanted = |value, now| part_is_wanted(&fields(&[("If-Range", value)]), there(), now);
        assert!(part_is_wanted(&Fields::default(), there(), later));
        assert!(wanted("\"a\"", later) && wanted(WHEN, later));
        for other in ["\"b\"", "W/\"a\"", BEFORE, "a", ""] {
            assert!(!wanted(other, later), "{other}");
        }
        // It may change again within that second.
        assert!(!wanted(WHEN, there().modified));
    }
}
