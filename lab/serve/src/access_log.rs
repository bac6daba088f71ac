//! A line for each request, in the Common Log Format, which the `web` workload reads as a trace.
//!
//! # What can fail
//! Writing it. The first failure is kept, to be told at the end; the requests go on.

use pageferry_lab::LabError;
use std::fs::File;
use std::io::{LineWriter, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A log that is written.
#[derive(Debug)]
pub(super) struct AccessLog {
    path: PathBuf,
    to: LineWriter<File>,
}

/// What a line says of a request.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) from: Ipv4Addr,
    /// The line that the request begins with, if one came.
    pub(super) line: &'a [u8],
    pub(super) status: u16,
    /// Bytes that were sent behind the header.
    pub(super) body_bytes: u64,
}

impl AccessLog {
    /// Begins a log, or goes on with one.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(path: &Path) -> Result<AccessLog, LabError> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|e| LabError::io("write", path, e))?;
        Ok(AccessLog { path: path.to_owned(), to: LineWriter::new(file) })
    }

    /// # Errors
    /// When it cannot be written.
    pub(super) fn add(&mut self, entry: &Entry<'_>) -> Result<(), LabError> {
        let line = format(entry, SystemTime::now());
        self.to.write_all(line.as_bytes()).map_err(|e| LabError::io("write", &self.path, e))
    }
}

fn format(entry: &Entry<'_>, now: SystemTime) -> String {
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let date = httpdate::fmt_http_date(now);
    let words: Vec<&str> = date.split(' ').collect();
    let [_, day, month, year, time, _] = words[..] else { unreachable!("a date has six words") };
    let line = if entry.line.is_empty() { "-".to_owned() } else { shown(entry.line) };
    let Entry { from, status, body_bytes, .. } = entry;
    format!("{from} - - [{day}/{month}/{year}:{time} +0000] \"{line}\" {status} {body_bytes}\n")
}

/// A line as it stands between quotes.
fn shown(line: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        other => format!("\\x{other:02x}"),
    };
    line.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_common_form() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        let line = |line, status, body_bytes| {
            format(&Entry { from: Ipv4Addr::new(10, 0, 0, 1), line, status, body_bytes }, now)
        };
        assert_eq!(
            line(b"GET /a.txt HTTP/1.1", 200, 100),
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a.txt HTTP/1.1\" 200 100\n"
        );
        assert!(line(b"", 408, 0).ends_with("\"-\" 408 0\n"));
        assert!(line(b"GET /\"\\\x01\xff", 400, 0).ends_with("\"GET /\\\"\\\\\\x01\\xff\" 400 0\n"));
    }
}
