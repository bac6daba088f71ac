//! A real access log in the Common Log Format, plain or packed with gzip.
//!
//! Each `GET` that was answered with a file (status 200, and a length) is a request. A file is what was asked for,
//! queries and all, and is as long as its longest answer. The last requests of a log are made again; what came before
//! them says in which order files were last used. A log with fewer requests than are to be made is read over again from
//! its beginning.
//!
//! # What can fail
//! Reading the file; a log without such a request. Lines in another form are passed over and counted.

use super::site::{Site, SkippedLines};
use crate::error::LabError;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

/// Reads the log at `path`, and has it ask for the next `count` files.
///
/// # Errors
/// A file that cannot be read, or has no request that was answered with a file.
pub(super) fn read(path: &Path, count: usize) -> Result<Site, LabError> {
    let unreadable = |error| LabError::io("read the log", path, error);
    let mut file = BufReader::new(std::fs::File::open(path).map_err(unreadable)?);
    let packed = file.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]);
    let log: Box<dyn Read> =
        if packed { Box::new(flate2::bufread::MultiGzDecoder::new(file)) } else { Box::new(file) };
    parse(log, count)
        .map_err(unreadable)?
        .map_err(|problem| LabError::Input { file: path.display().to_string(), problem })
}

/// The outer error is of reading, the inner of what was read.
fn parse(log: impl Read, count: usize) -> std::io::Result<Result<Site, String>> {
    let (mut sizes, mut all, mut skipped) = (Vec::new(), Vec::new(), SkippedLines::default());
    let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut lines = 0;
    for line in BufReader::new(log).split(b'\n') {
        let line = line?;
        lines += 1;
        let line = line.trim_ascii();
        match entry(line) {
            _ if line.is_empty() => {}
            Err(problem) => skipped.add(lines, problem),
            Ok(None) => {}
            Ok(Some((path, bytes))) => {
                let file = *known.entry(path.to_vec()).or_insert_with(|| {
                    sizes.push(0);
                    sizes.len() as u32 - 1
                });
                let size: &mut u64 = &mut sizes[file as usize];
                *size = (*size).max(bytes);
                all.push(file);
            }
        }
    }
    if all.is_empty() {
        let why = match &skipped.first {
            Some((line, problem)) => {
                format!("; line {line} is the first that is no line of a log: {problem}")
            }
            None => String::new(),
        };
        return Ok(Err(format!(
            "none of its {lines} lines is a GET that was answered with a file (Common Log Format){why}"
        )));
    }
    let before = if count < all.len() { all.len() - count } else { all.len() };
    let mut last_used = Vec::new();
    let mut seen = vec![false; sizes.len()];
    for &file in all[..before].iter().rev() {
        if !std::mem::replace(&mut seen[file as usize], true) {
            last_used.push(file);
        }
    }
    last_used.reverse();
    let from = before % all.len();
    let requests = all.iter().cycle().skip(from).take(count).copied().collect();
    Ok(Ok(Site { sizes, last_used, requests, skipped }))
}

/// What a line asked for, and how many bytes were the answer; nothing where that was no file.
fn entry(line: &[u8]) -> Result<Option<(&[u8], u64)>, &'static str> {
    let open = line.iter().position(|&b| b == b'"').ok_or("no request in quotes")?;
    let head = &line[..open];
    let has = |bracket| head.contains(&bracket);
    if !has(b'[') || !has(b']') {
        return Err("no date in brackets");
    }
    // What was asked for may have quotes in it: it ends where a status and a length follow.
    let rest = &line[open + 1..];
    let ends = (0..rest.len()).filter(|&at| rest[at] == b'"');
    let (request, status, bytes) = ends
        .filter_map(|at| answer(&rest[at + 1..]).map(|(status, bytes)| (&rest[..at], status, bytes)))
        .next()
        .ok_or("no status and length behind the request")?;
    let mut words = request.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (Some(b"GET"), Some(path), 200, Some(bytes)) = (words.next(), words.next(), status, bytes) else {
        return Ok(None);
    };
    Ok((bytes > 0).then_some((path, bytes)))
}

/// ` 200 1234`, and what may follow it.
fn answer(text: &[u8]) -> Option<(u16, Option<u64>)> {
    let mut words = text.strip_prefix(b" ")?.split(|&b| b == b' ');
    let number = |word: &[u8]| -> Option<u64> { std::str::from_utf8(word).ok()?.parse().ok() };
    let status = words.next().filter(|word| word.len() == 3).and_then(number)?;
    let bytes = match words.next()? {
        b"-" => None,
        word => Some(number(word)?),
    };
    Some((status as u16, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const LOG: &str = "\
in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] \"GET /shuttle/a.txt HTTP/1.0\" 200 1839
uplherc.upl.com - - [01/Aug/1995:00:00:07 -0400] \"GET / HTTP/1.0\" 304 0
this is no line of a log
host - - [01/Aug/1995:00:00:08 -0400] \"GET /images/ksc.gif HTTP/1.0\" 200 7008
host - - [01/Aug/1995:00:00:09 -0400] \"POST /cgi HTTP/1.0\" 200 10
host - - [01/Aug/1995:00:00:10 -0400] \"GET /gone HTTP/1.0\" 404 -
host - - [01/Aug/1995:00:00:11 -0400] \"GET /odd\"name HTTP/1.0\" 200 5 \"-\" \"Mozilla/1.0\"
host - - [01/Aug/1995:00:00:12 -0400] \"GET /cut off

host - - [01/Aug/1995:00:00:13 -0400] \"GET /shuttle/a.txt\" 200 1840
";

    fn site(log: &[u8], count: usize) -> Result<Site, String> {
        parse(log, count).expect("bytes can be read")
    }

    #[test]
    fn files_that_were_answered_are_asked_for_again() {
        let site = site(LOG.as_bytes(), 2).expect("a log");
        // a.txt with its longest answer, ksc.gif, and the one with a quote in its name.
        assert_eq!(site.sizes, [1840, 7008, 5]);
        assert_eq!(site.last_used, [0, 1]);
        assert_eq!(site.requests, [2, 0]);
    }

    #[test]
    fn broken_lines_are_counted_and_the_first_is_named() {
        let skipped = site(LOG.as_bytes(), 1).expect("a log").skipped;
        assert_eq!(skipped, SkippedLines { count: 2, first: Some((3, "no request in quotes")) });
    }

    #[test]
    fn a_short_log_is_read_over_again() {
        let site = site(LOG.as_bytes(), 6).expect("a log");
        assert_eq!(site.requests, [0, 1, 2, 0, 0, 1]);
        assert_eq!(site.last_used, [1, 2, 0]);
    }

    #[test]
    fn a_packed_log_is_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let (plain, packed) = (folder.path().join("a.log"), folder.path().join("b"));
        std::fs::write(&plain, LOG).expect("written");
        let file = std::fs::File::create(&packed).expect("made");
        let mut to = flate2::write::GzEncoder::new(file, flate2::Compression::default());
        to.write_all(LOG.as_bytes()).and_then(|()| to.finish()).expect("written");
        assert_eq!(read(&packed, 4).expect("a log"), read(&plain, 4).expect("a log"));
        // Cut in the middle.
        let bytes = std::fs::read(&packed).expect("there");
        std::fs::write(&packed, &bytes[..bytes.len() / 2]).expect("written");
        let error = read(&packed, 4).expect_err("cut").to_string();
        assert!(error.contains("cannot read the log"), "{error}");
    }

    #[test]
    fn what_is_no_log_is_refused() {
        assert!(site(b"", 1).expect_err("empty").contains("none of its 0 lines"));
        let problem = site(b"hello\n\xff\xfe\n", 1).expect_err("no log");
        assert!(
            problem.contains("line 1 is the first") && problem.contains("no request in quotes"),
            "{problem}"
        );
        let error = read(Path::new("/nowhere/access.log"), 1).expect_err("no file").to_string();
        assert!(error.contains("/nowhere/access.log"), "{error}");
    }
}
