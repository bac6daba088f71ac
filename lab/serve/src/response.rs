//! What is answered: the header of a response (RFC 9110, RFC 9112), and the page that lists a directory.

use super::target::written;
use std::time::SystemTime;

/// What the server can do with a file.
pub(super) const ALLOWED: &str = "GET, HEAD, PUT, OPTIONS";

/// What follows the header of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Length {
    /// Nothing, and that is clear from the status.
    Nothing,
    /// So many bytes; or none, but so many in the answer to a `GET`.
    Bytes(u64),
}

/// The header of an answer; `fields` are lines of their own, each with its end.
pub(super) fn header(status: u16, fields: &str, length: Length, keep: bool) -> String {
    let length = match length {
        Length::Nothing => String::new(),
        Length::Bytes(len) => format!("Content-Length: {len}\r\n"),
    };
    let date = httpdate::fmt_http_date(SystemTime::now());
    let keep = if keep { "keep-alive" } else { "close" };
    format!(
        "HTTP/1.1 {status} {}\r\nDate: {date}\r\nServer: pageferry\r\n{fields}{length}Connection: {keep}\r\n\r\n",
        reason(status)
    )
}

/// What a status means (RFC 9110, 15).
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

/// What kind of thing a file is, by its name.
pub(super) fn kind(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let kind = mime_guess::from_path(&*name).first_or_octet_stream();
    let text = kind.type_() == "text" || matches!(kind.subtype().as_str(), "json" | "javascript" | "xml");
    if text && kind.get_param("charset").is_none() {
        format!("{kind}; charset=utf-8")
    } else {
        kind.to_string()
    }
}

/// A page that lists what is in a directory: names, each with what is behind it, and bytes where it is a file.
pub(super) fn listing(path: &[u8], entries: &[(Vec<u8>, Option<u64>)]) -> String {
    let title = escaped(&String::from_utf8_lossy(path));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>/{title}</title></head>\n\
         <body>\n<h1>/{title}</h1>\n<ul>\n"
    );
    if !path.is_empty() {
        page += "<li><a href=\"../\">../</a></li>\n";
    }
    for (name, len) in entries {
        let slash = if len.is_none() { "/" } else { "" };
        let (link, shown) = (escaped(&written(name)), escaped(&String::from_utf8_lossy(name)));
        let len = len.map_or_else(String::new, |len| format!(" {len} bytes"));
        // Behind `./`, a colon in a name is none of a scheme's.
        page += &format!("<li><a href=\"./{link}{slash}\">{shown}{slash}</a>{len}</li>\n");
    }
    page + "</ul>\n</body>\n</html>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_names() {
        for (name, expected) in [
            (&b"a.html"[..], "text/html; charset=utf-8"),
            (b"a.txt", "text/plain; charset=utf-8"),
            (b"A.PNG", "image/png"),
            (b"none", "application/octet-stream"),
            (b"\xff.css", "text/css; charset=utf-8"),
        ] {
            assert_eq!(kind(name), expected, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_listing_leads_to_every_name() {
        let entries = [(b"a<b".to_vec(), None), (b"x:y&z".to_vec(), Some(7)), (b"\xff\"".to_vec(), Some(0))];
        let page = listing(b"d<", &entries);
        for part in [
            "<h1>/d&lt;</h1>",
            "href=\"../\"",
            "<a href=\"./a%3Cb/\">a&lt;b/</a></li>",
            "<a href=\"./x:y&amp;z\">x:y&amp;z</a> 7 bytes",
            "<a href=\"./%FF%22\">",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!listing(b"", &[]).contains("../"));
    }

    #[test]
    fn a_header_says_how_long_the_rest_is() {
        let header = header(206, "A: b\r\n", Length::Bytes(3), false);
        assert!(header.starts_with("HTTP/1.1 206 Partial Content\r\nDate: "), "{header}");
        assert!(header.ends_with("\r\nA: b\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"), "{header}");
    }
}
