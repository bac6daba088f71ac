//! What clients ask for: the header of an HTTP/1.1 request (RFC 9112), and how its body, if it has one, is told from
//! what follows. What could be read in two ways is refused. Nothing here touches a machine.

use super::fields::{Fields, Single};
use super::target::{self, Target};
use std::ops::Range;

/// The most fields of a request.
const MAX_FIELDS: usize = 128;

/// A request, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: Target,
    /// The connection is to be kept.
    pub(super) keep: bool,
    pub(super) body: Body,
    /// The client waits to be told to go on before it sends the body.
    pub(super) expects_to_go_on: bool,
    pub(super) fields: Fields,
}

/// What follows a request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Nothing is said of a body: there is none.
    None,
    /// So many bytes.
    Bytes(u64),
    /// Chunks.
    Chunked,
}

/// What the bytes are that have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parse {
    /// A request, and its length.
    Whole(Request, usize),
    /// The beginning of one.
    Part,
    /// What is answered with this status, and nothing behind it is understood.
    Refused(u16),
}

impl Request {
    /// What is answered has no body.
    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}

/// Looks for a request at the beginning of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Parse {
    let known = as_known_version(bytes);
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(known.as_deref().unwrap_or(bytes)) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Parse::Part,
        Err(httparse::Error::TooManyHeaders) => return Parse::Refused(431),
        Err(httparse::Error::Version) if version(first_line(bytes)).is_some() => return Parse::Refused(505),
        Err(_) => return Parse::Refused(400),
    };
    match understood(&request) {
        Ok(request) => Parse::Whole(request, len),
        Err(status) => Parse::Refused(status),
    }
}

/// Where the first line that is not empty is, as far as it is there.
fn first_line_at(bytes: &[u8]) -> Range<usize> {
    let is_end = |byte: &u8| b"\r\n".contains(byte);
    let begin = bytes.iter().position(|byte| !is_end(byte)).unwrap_or(bytes.len());
    let len = bytes[begin..].iter().position(is_end).unwrap_or(bytes.len() - begin);
    begin..begin + len
}

/// The first line that is not empty, as far as it is there.
pub(super) fn first_line(bytes: &[u8]) -> &[u8] {
    &bytes[first_line_at(bytes)]
}

/// The version that a line ends with (RFC 9112, 2.3).
fn version(line: &[u8]) -> Option<(u8, u8)> {
    match *line.rsplit(|&byte| byte == b' ').next()? {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Some((major - b'0', minor - b'0'))
        }
        _ => None,
    }
}

/// A request of a later minor version, as one of the last that is known here: so it is to be understood (RFC 9110,
/// 2.5).
fn as_known_version(bytes: &[u8]) -> Option<Vec<u8>> {
    let at = first_line_at(bytes);
    let later = matches!(version(&bytes[at.clone()]), Some((1, minor)) if minor > 1);
    later.then(|| {
        let mut known = bytes.to_vec();
        known[at.end - 1] = b'1';
        known
    })
}

fn understood(request: &httparse::Request<'_, '_>) -> Result<Request, u16> {
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(400);
    };
    let fields = Fields::new(request.headers.iter().map(|field| (field.name, field.value)));
    let hosts: Vec<&[u8]> = fields.all("host").collect();
    match hosts[..] {
        [] if minor == 0 => {}
        [host] if target::is_authority(host) => {}
        _ => return Err(400),
    }
    let target = target::parse(method, target).ok_or(400_u16)?;
    let body = body(minor, &fields)?;
    // An expectation of an older client is ignored, one that is not known cannot be met (RFC 9110, 10.1.1).
    let expects = minor > 0 && fields.has("expect");
    if expects && !fields.list("expect").all(|what| what.eq_ignore_ascii_case(b"100-continue")) {
        return Err(417);
    }
    let closes = fields.lists("connection", "close");
    let keep = !closes && (minor > 0 || fields.lists("connection", "keep-alive"));
    Ok(Request { method: method.to_owned(), target, keep, body, expects_to_go_on: expects, fields })
}

/// How the body ends (RFC 9112, 6.3); or how what cannot be told is refused.
fn body(minor: u8, fields: &Fields) -> Result<Body, u16> {
    if fields.has("transfer-encoding") {
        // A length beside it may be what another reader believes, and of an older client it means nothing.
        if minor == 0 || fields.has("content-length") {
            return Err(400);
        }
        let codings: Vec<&[u8]> = fields.list("transfer-encoding").collect();
        let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
        return match codings.split_last() {
            Some((last, [])) if is_chunked(last) => Ok(Body::Chunked),
            Some((last, before)) if is_chunked(last) && !before.iter().any(is_chunked) => Err(501),
            _ => Err(400),
        };
    }
    match fields.single("content-length") {
        Single::None => Ok(Body::None),
        Single::Value(len) if !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit()) => {
            len.parse().map(Body::Bytes).map_err(|_| 413)
        }
        _ => Err(400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parse::Whole(request, _) => request,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn requests_come_in_parts_and_one_behind_the_other() {
        let text = b"\r\nGET /a HTTP/1.1\r\nHost: x\r\nRange: bytes=1-2\r\n\r\nGET";
        assert_eq!(parse(&text[..30]), Parse::Part);
        let Parse::Whole(request, len) = parse(text) else { panic!("whole") };
        assert_eq!((len, request.keep), (text.len() - 3, true));
        assert_eq!(request.fields.single("range"), Single::Value("bytes=1-2"));
        for (bad, status) in [
            (&b"\x01\x02\r\n\r\n"[..], 400),
            (b"nonsense\r\n\r\n", 400),
            (b"GET /\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
            (b"GET / FTP/1.1\r\nHost: x\r\n\r\n", 400),
            (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        ] {
            assert_eq!(parse(bad), Parse::Refused(status), "{}", bad.escape_ascii());
        }
        let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(200));
        assert_eq!(parse(many.as_bytes()), Parse::Refused(431));
    }

    #[test]
    fn a_later_minor_version_is_the_last_that_is_known() {
        assert!(whole("GET / HTTP/1.7\r\nHost: x\r\n\r\n").keep);
        for end in 0.."GET / HTTP/1.7\r\nHost: x\r\n".len() {
            assert_eq!(parse(&b"GET / HTTP/1.7\r\nHost: x\r\n"[..end]), Parse::Part, "{end}");
        }
    }

    #[test]
    fn whether_a_connection_is_kept() {
        let keep =
            |version: &str, fields: &str| whole(&format!("GET / {version}\r\nHost: x\r\n{fields}\r\n")).keep;
        assert!(keep("HTTP/1.1", "") && !keep("HTTP/1.0", ""));
        assert!(keep("HTTP/1.0", "Connection: Keep-Alive\r\n"));
        for closes in ["close", "TE, close", "close, keep-alive", "te\r\nConnection: Close"] {
            assert!(!keep("HTTP/1.1", &format!("Connection: {closes}\r\n")), "{closes}");
            assert!(!keep("HTTP/1.0", &format!("Connection: {closes}\r\n")), "{closes}");
        }
    }

    #[test]
    fn there_is_one_host_and_nothing_else_in_it() {
        let parsed = |version: &str, hosts: &str| parse(format!("GET / {version}\r\n{hosts}\r\n").as_bytes());
        for good in ["Host: x\r\n", "Host: [::1]:80\r\n", "Host:\r\n", "hOST: a.b:1\r\n"] {
            assert!(matches!(parsed("HTTP/1.1", good), Parse::Whole(..)), "{good}");
        }
        for bad in [
            "",
            "Host: x\r\nHost: x\r\n",
            "Host: x, y\r\n",
            "Host: x/y\r\n",
            "Host: u@x\r\n",
            "Host: \u{e9}\r\n",
        ] {
            assert_eq!(parsed("HTTP/1.1", bad), Parse::Refused(400), "{bad}");
        }
        assert!(matches!(parsed("HTTP/1.0", ""), Parse::Whole(..)));
    }

    #[test]
    fn a_body_ends_in_one_way_or_is_refused() {
        let body =
            |fields: &str| match parse(format!("PUT /x HTTP/1.1\r\nHost: x\r\n{fields}\r\n").as_bytes()) {
                Parse::Whole(request, _) => Ok(request.body),
                Parse::Refused(status) => Err(status),
                Parse::Part => panic!("whole"),
            };
        assert_eq!(body(""), Ok(Body::None));
        assert_eq!(body("Content-Length: 12\r\n"), Ok(Body::Bytes(12)));
        assert_eq!(body("Transfer-Encoding: Chunked\r\n"), Ok(Body::Chunked));
        assert_eq!(body("Content-Length: 99999999999999999999\r\n"), Err(413));
        for bad in [
            "-1",
            "1, 1",
            "+1",
            "x",
            "",
            "1\r\nContent-Length: 2",
            "1\r\nContent-Length: 1",
            "3\u{ff}",
            "0x1",
            "1 1",
        ] {
            assert_eq!(body(&format!("Content-Length: {bad}\r\n")), Err(400), "{bad}");
        }
        for (coding, status) in [
            ("gzip", 400),
            ("", 400),
            ("chunked, gzip", 400),
            ("chunked, chunked", 400),
            ("gzip, chunked", 501),
            ("chunked\r\nContent-Length: 3", 400),
        ] {
            assert_eq!(body(&format!("Transfer-Encoding: {coding}\r\n")), Err(status), "{coding}");
        }
        assert_eq!(parse(b"PUT /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Parse::Refused(400));
    }

    #[test]
    fn only_one_expectation_is_known() {
        let text =
            |version: &str, what: &str| format!("PUT /x {version}\r\nHost: x\r\nExpect: {what}\r\n\r\n");
        assert!(whole(&text("HTTP/1.1", "100-Continue")).expects_to_go_on);
        assert!(!whole(&text("HTTP/1.0", "100-continue")).expects_to_go_on);
        assert_eq!(parse(text("HTTP/1.1", "200-ok").as_bytes()), Parse::Refused(417));
    }
}
