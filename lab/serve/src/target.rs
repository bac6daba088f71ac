//! What a request is for (RFC 9112, 3.2): a path below the directory, whatever form it is asked in.

use super::site::SitePath;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

/// What is not to stand as it is in the path of a URI (RFC 3986, 3.3).
const IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'[')
    .add(b']')
    .add(b'\\')
    .add(b'^')
    .add(b'|');

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A path, without slashes before and behind; and whether one was behind it.
    Path(SitePath, bool),
    /// A path that leaves the directory, or that no file can have.
    Outside,
    /// The server itself (`*`), or another one (`CONNECT`).
    Server,
}

/// The target of a request; `None` for what is none.
pub(super) fn parse(method: &str, text: &str) -> Option<Target> {
    match (method, text) {
        ("CONNECT", _) | ("OPTIONS", "*") => return Some(Target::Server),
        _ => {}
    }
    let scheme = |name: &str| text.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name));
    let path = match scheme("http://").or_else(|| scheme("https://")) {
        Some(scheme) => {
            let rest = &text[scheme.len()..];
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            if !is_authority(&rest.as_bytes()[..end]) || end == 0 {
                return None;
            }
            &rest[end..]
        }
        None if text.starts_with('/') => text,
        None => return None,
    };
    let path = path.split('?').next().unwrap_or("");
    if path.contains('#') || !escapes_are_whole(path.as_bytes()) {
        return None;
    }
    let bytes: Vec<u8> = percent_decode(path.as_bytes()).collect();
    let parts = || bytes.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    if parts().any(|part| part == b"..") || bytes.contains(&0) {
        return Some(Target::Outside);
    }
    let parts: Vec<&[u8]> = parts().collect();
    Some(Target::Path(parts.join(&b'/'), bytes.last().is_none_or(|&byte| byte == b'/')))
}

/// A host, and a port perhaps, as they stand in a URI or in `Host` (RFC 3986, 3.2). None at all is one, too.
pub(super) fn is_authority(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=:%[]".contains(byte))
}

fn escapes_are_whole(path: &[u8]) -> bool {
    let escape =
        |at: usize| path.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    (0..path.len()).filter(|&at| path[at] == b'%').all(escape)
}

/// A path as it stands in a URI.
pub(super) fn written(path: &[u8]) -> String {
    percent_encode(path, IN_PATHS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Option<Target> {
        parse("GET", text)
    }

    fn at(path: &[u8], slash: bool) -> Option<Target> {
        Some(Target::Path(path.to_vec(), slash))
    }

    #[test]
    fn no_target_leaves_the_directory() {
        assert_eq!(path("/"), at(b"", true));
        assert_eq!(path("/a/./b.txt?x=1"), at(b"a/b.txt", false));
        assert_eq!(path("/a%20b//c/"), at(b"a b/c", true));
        assert_eq!(path("/%ff"), at(b"\xff", false));
        for outside in ["/..", "/a/../../etc/passwd", "/%2e%2e/x", "/a%00b", "/a%2f..%2fb"] {
            assert_eq!(path(outside), Some(Target::Outside), "{outside}");
        }
        for none in ["x", "", "*", "/%zz", "/%", "/%4", "/a#b", "ftp://x/a"] {
            assert_eq!(path(none), None, "{none}");
        }
    }

    #[test]
    fn the_four_forms_are_understood() {
        assert_eq!(path("http://x/a.txt"), at(b"a.txt", false));
        assert_eq!(path("HTTP://x:80"), at(b"", true));
        assert_eq!(path("https://[::1]:8/a?b"), at(b"a", false));
        for none in ["http://", "http:///a", "http://x y/a", "http://u@x/a"] {
            assert_eq!(path(none), None, "{none}");
        }
        assert_eq!(parse("OPTIONS", "*"), Some(Target::Server));
        assert_eq!(parse("CONNECT", "x:80"), Some(Target::Server));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for name in [&b"a b"[..], b"100%", b"\xff\xfe", b"a?b#c", b"\"<>`", b"[x]|\\^"] {
            assert_eq!(path(&format!("/{}", written(name))), at(name, false));
        }
    }
}
