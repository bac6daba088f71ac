//! What clients ask for, as text: HTTP/1.1 requests (RFC 9110, 9112), the paths and the ranges in them. Nothing here
//! touches a machine.

use std::ops::Range;

/// A request, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) keep: bool,
    pub(super) range: Option<String>,
    pub(super) body: Body,
    /// The client waits to be told to go on before it sends the body.
    pub(super) expects_to_go_on: bool,
    /// A `PUT` of a part, which is to be refused (RFC 9110, 14.5).
    pub(super) of_a_part: bool,
}

/// What follows a request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Nothing is said of a body: there is none.
    None,
    /// So many bytes.
    Bytes(u64),
    /// In a coding that is not understood: where it ends is not known.
    Coded,
}

pub(super) enum Parse {
    /// A request, and its length.
    Whole(Request, usize),
    Part,
    Bad,
}

pub(super) fn parse(bytes: &[u8]) -> Parse {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Parse::Part,
        Err(_) => return Parse::Bad,
    };
    let header = |name: &str| {
        let found = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.and_then(|h| std::str::from_utf8(h.value).ok()).map(str::trim)
    };
    let (Some(method), Some(target)) = (request.method, request.path) else { return Parse::Bad };
    let lengths = request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case("content-length"));
    let body = match (header("transfer-encoding"), header("content-length")) {
        (Some(_), _) => Body::Coded,
        (None, Some(len)) if lengths.count() == 1 && len.bytes().all(|byte| byte.is_ascii_digit()) => {
            match len.parse() {
                Ok(len) => Body::Bytes(len),
                Err(_) => return Parse::Bad,
            }
        }
        (None, Some(_)) => return Parse::Bad,
        (None, None) => Body::None,
    };
    let says = |word: &str| header("connection").is_some_and(|value| value.eq_ignore_ascii_case(word));
    let keep = if request.version == Some(0) { says("keep-alive") } else { !says("close") };
    let request = Request {
        method: method.to_owned(),
        target: target.to_owned(),
        keep,
        range: header("range").map(str::to_owned),
        body,
        expects_to_go_on: header("expect").is_some_and(|what| what.eq_ignore_ascii_case("100-continue")),
        of_a_part: header("content-range").is_some(),
    };
    Parse::Whole(request, len)
}

/// The path below the directory that a target asks for: decoded, without a query. `None` for what leaves it, or is
/// none.
pub(super) fn name_of(target: &str) -> Option<String> {
    let path = target.split(['?', '#']).next()?.strip_prefix('/')?;
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, more @ ..] = rest {
        match (first, more) {
            (b'%', [a, b, more @ ..]) => {
                let digit = |c: u8| (c as char).to_digit(16);
                bytes.push((digit(*a)? * 16 + digit(*b)?) as u8);
                rest = more;
            }
            (b'%', _) => return None,
            (byte, more) => {
                bytes.push(*byte);
                rest = more;
            }
        }
    }
    let path = String::from_utf8(bytes).ok()?;
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.contains(&"..") && !path.contains('\0')).then(|| parts.join("/"))
}

/// The bytes that a single range asks for; empty if there are none, `None` if it is not understood.
pub(super) fn parse_range(text: &str, len: u64) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        (true, false) => {
            let suffix: u64 = last.parse().ok()?;
            Some(len.saturating_sub(suffix)..len)
        }
        (false, _) => {
            let first: u64 = first.parse().ok()?;
            let last: u64 = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
            if last < first {
                return None;
            }
            Some(first.min(len)..last.saturating_add(1).min(len))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_target_leaves_the_directory() {
        assert_eq!(name_of("/"), Some(String::new()));
        assert_eq!(name_of("/a/./b.txt?x=1"), Some("a/b.txt".into()));
        assert_eq!(name_of("/a%20b//c"), Some("a b/c".into()));
        for bad in ["/..", "/a/../../etc/passwd", "/%2e%2e/x", "x", "/%zz", "/%", "/a%00b", "/%ff"] {
            assert_eq!(name_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn ranges_are_those_of_the_rfc() {
        assert_eq!(parse_range("bytes=0-0", 10), Some(0..1));
        assert_eq!(parse_range("bytes=5-", 10), Some(5..10));
        assert_eq!(parse_range("bytes=-3", 10), Some(7..10));
        assert_eq!(parse_range("bytes=-30", 10), Some(0..10));
        assert_eq!(parse_range("bytes=5-100", 10), Some(5..10));
        assert_eq!(parse_range("bytes=10-", 10), Some(10..10));
        assert_eq!(parse_range("bytes=0-1,4-5", 10), None);
        assert_eq!(parse_range("bytes=7-3", 10), None);
        assert_eq!(parse_range("lines=1-2", 10), None);
    }

    #[test]
    fn requests_come_in_parts_and_one_behind_the_other() {
        let text = b"GET /a HTTP/1.1\r\nHost: x\r\nRange: bytes=1-2\r\n\r\nGET";
        assert!(matches!(parse(&text[..30]), Parse::Part));
        let Parse::Whole(request, len) = parse(text) else { panic!("whole") };
        assert_eq!((len, request.keep, request.range.as_deref()), (text.len() - 3, true, Some("bytes=1-2")));
        assert!(matches!(parse(b"\x01\x02\r\n\r\n"), Parse::Bad));
        let Parse::Whole(old, _) = parse(b"GET / HTTP/1.0\r\n\r\n") else { panic!("whole") };
        assert!(!old.keep);
    }

    #[test]
    fn a_body_has_a_length_that_is_a_number_or_none_that_is_known() {
        let body = |headers: &str| match parse(format!("PUT /x HTTP/1.1\r\n{headers}\r\n").as_bytes()) {
            Parse::Whole(request, _) => Some(request.body),
            _ => None,
        };
        assert_eq!(body(""), Some(Body::None));
        assert_eq!(body("Content-Length: 12\r\n"), Some(Body::Bytes(12)));
        assert_eq!(body("Transfer-Encoding: chunked\r\n"), Some(Body::Coded));
        // Both: the coding counts, and a length that a front end might believe does not (RFC 9112, 6.3).
        assert_eq!(body("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), Some(Body::Coded));
        for bad in ["-1", "1, 1", "+1", "x", "", "1\r\nContent-Length: 2", "99999999999999999999"] {
            assert_eq!(body(&format!("Content-Length: {bad}\r\n")), None, "{bad}");
        }
    }
}
