//! What `serve` understands of HTTP, section by section of RFC 9110 and RFC 9112: a table of what is sent and what is
//! to be answered. Each row is sent to a server and its answers are read as a client reads them; the book has the table
//! as a chapter.

use crate::common::server::Server;
use rows::{End, ROWS, Row};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

mod rows;

/// What there is before the rows.
const FILE: &str = "0123456789";

fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
    fs::create_dir_all(dir.path().join("dir/list")).expect("made");
    write("a.txt", &FILE.repeat(10));
    write("empty", "");
    write("dir/index.html", "<p>index</p>");
    write("dir/list/b c.txt", "b");
    let when = httpdate();
    fs::File::options()
        .write(true)
        .open(dir.path().join("a.txt"))
        .expect("there")
        .set_modified(when)
        .expect("set");
    dir
}

/// When `a.txt` was changed: Sun, 06 Nov 1994 08:49:37 GMT, the RFC's own example.
fn httpdate() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
}

/// An answer as it was read.
struct Answer {
    status: u16,
    header: String,
    body: Vec<u8>,
}

impl Answer {
    /// Reads one; `None` where the connection ends instead.
    fn read(stream: &mut TcpStream, is_head: bool) -> Option<Answer> {
        let mut header = Vec::new();
        while !header.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(1) => header.push(byte[0]),
                _ if header.is_empty() => return None,
                other => panic!("a header ends early: {other:?}, {}", header.escape_ascii()),
            }
        }
        let header = String::from_utf8(header).expect("text");
        let status = header[9..12].parse().expect("a status");
        let len = header.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let len: Option<usize> = len.map(|len| len.parse().expect("a length"));
        // RFC 9110, 6.4.1 and 8.6.
        let has_none = status == 204 || status == 304 || (100..200).contains(&status);
        assert_eq!(len.is_none(), has_none, "{header}");
        let mut body = vec![0; if is_head || has_none { 0 } else { len.unwrap_or(0) }];
        stream.read_exact(&mut body).expect("a body");
        Some(Answer { status, header, body })
    }

    fn meets(&self, check: &str) -> bool {
        let has = |line: &str| {
            self.header.lines().any(|its| its == line || line.ends_with(": ") && its.starts_with(line))
        };
        match check.split_at(1) {
            ("!", line) => !has(line),
            ("=", body) => self.body == body.as_bytes(),
            ("~", part) => String::from_utf8_lossy(&self.body).contains(part),
            _ => has(check),
        }
    }
}

fn run(server: &Server, row: &Row, tag: &str) -> Result<(), String> {
    let sent = row.sent().replace("{tag}", tag);
    let mut stream = server.connect();
    // A server that refuses closes while it is still spoken to.
    let _ = stream.write_all(&bytes_of(&sent));
    let mut last = None;
    for (nth, status) in row.statuses.iter().enumerate() {
        let is_head = methods(&sent).nth(nth).is_some_and(|method| method == "HEAD");
        let answer = Answer::read(&mut stream, is_head).ok_or_else(|| format!("answer {nth} is missing"))?;
        if answer.status != *status {
            return Err(format!("answer {nth} is {}", answer.header));
        }
        if *status != 100 {
            for line in ["Date: ", "Connection: "] {
                if !answer.meets(line) {
                    return Err(format!("{line}is missing: {}", answer.header));
                }
            }
            let closes = answer.meets("Connection: close");
            let is_last = nth + 1 == row.statuses.len();
            if closes != (is_last && row.end == End::Closed) {
                return Err(format!("what is said of the connection: {}", answer.header));
            }
        }
        last = Some(answer);
    }
    let last = last.ok_or("a row has an answer")?;
    for check in row.checks {
        let check = check.replace("{tag}", tag);
        if !last.meets(&check) {
            return Err(format!("{check}: {}{}", last.header, last.body.escape_ascii()));
        }
    }
    // Whether it is closed, and nothing more is said.
    if row.end == End::Kept {
        stream
            .write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .map_err(|e| e.to_string())?;
        let answer = Answer::read(&mut stream, false).ok_or("the connection is not kept")?;
        if answer.body != FILE.repeat(10).as_bytes() {
            return Err(format!("the next answer is {}", answer.header));
        }
    }
    match Answer::read(&mut stream, false) {
        None => Ok(()),
        Some(more) => Err(format!("one more answer: {}", more.header)),
    }
}

/// Bytes of a text in which each character is one.
fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u32 as u8).collect()
}

/// The methods of the requests in a row.
fn methods(sent: &str) -> impl Iterator<Item = &str> {
    sent.lines().filter(|line| line.contains(" HTTP/1.")).filter_map(|line| line.split(' ').next())
}

#[test]
fn the_table_holds() {
    let dir = site();
    let server = Server::start(dir.path(), &[]);
    let (header, _) = server.ask("HEAD /a.txt HTTP/1.1");
    let tag = header.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("a tag");
    let failed: Vec<String> = ROWS
        .iter()
        .filter_map(|row| {
            run(&server, row, tag).err().map(|why| format!("{} {}: {why}", row.section, row.what))
        })
        .collect();
    let (told, code) = server.interrupt();
    assert!(failed.is_empty(), "{} of {} rows fail:\n{}", failed.len(), ROWS.len(), failed.join("\n"));
    assert_eq!(code, Some(0), "{told}");
}

/// The table as the book has it. `PAGEFERRY_BLESS=1` writes it there.
#[test]
fn the_book_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/http.md");
    let book = fs::read_to_string(&path).expect("the chapter");
    let mark = "<!-- The table: lab/cli/tests/it/http/rows.rs -->\n";
    let begin = book.find(mark).expect("a mark where the table begins") + mark.len();
    let expected = format!("{}{}", &book[..begin], table());
    if std::env::var_os("PAGEFERRY_BLESS").is_some() {
        fs::write(&path, &expected).expect("written");
    }
    assert!(
        fs::read_to_string(&path).expect("there") == expected,
        "PAGEFERRY_BLESS=1 brings the book up to date"
    );
}

fn table() -> String {
    let mut text = String::new();
    for (rfc, name) in [("9112", "RFC 9112, HTTP/1.1"), ("9110", "RFC 9110, HTTP Semantics")] {
        text += &format!("\n## {name}\n\n```text\n");
        for row in ROWS.iter().filter(|row| row.section.starts_with(rfc)) {
            text += &row.text();
        }
        text += "```\n";
    }
    text
}
