//! `serve` under many clients that ask, upload, stall, reset and half-close at random. Every byte that one gets is
//! compared, no answer is cut short, and at the end the server ends well.
//!
//! `PAGEFERRY_SERVE_SECONDS=3600` makes it an hour, `PAGEFERRY_SEED=7` another one; what was done is printed.

use crate::common::server::{Server, bytes};
use rustix::net::sockopt::set_socket_linger;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 200;
/// Files that are served, by their bytes.
const SIZES: [usize; 8] = [0, 1, 100, 4096, 20_000, 65_537, 400_001, 3_000_001];

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Numbers at random (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn pause(&mut self, max_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.below(max_ms)));
    }

    fn size(&mut self) -> usize {
        // Most are small.
        let max = if self.below(20) == 0 { SIZES.len() } else { SIZES.len() - 1 };
        SIZES[self.below(max as u64) as usize]
    }
}

/// What was done.
#[derive(Default)]
struct Tally {
    connections: AtomicU64,
    answers: AtomicU64,
    bytes: AtomicU64,
    uploads: AtomicU64,
    resets: AtomicU64,
    half_closes: AtomicU64,
    stalls: AtomicU64,
}

fn add(to: &AtomicU64, more: u64) {
    to.fetch_add(more, Ordering::Relaxed);
}

struct Client<'a> {
    server: &'a Server,
    files: &'a [Vec<u8>],
    done: &'a Tally,
    random: Random,
    /// Its own path, and what is there.
    path: String,
    uploaded: Option<Vec<u8>>,
}

/// True when the server has ended a connection between two requests, as it may while others wait.
fn is_over(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(len) => len == 0,
        Err(_) => true,
    }
}

/// Reads an answer with a body: its status, and the body.
fn answer(stream: &mut TcpStream, pause: &mut dyn FnMut()) -> (u16, Vec<u8>) {
    let mut header = Vec::new();
    while !header.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap_or_else(|e| panic!("a header: {e}, {}", header.escape_ascii()));
        header.push(byte[0]);
    }
    let header = String::from_utf8(header).expect("text");
    let len = header.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; len.map_or(0, |len| len.parse().expect("a length"))];
    let mut done = 0;
    while done < body.len() {
        pause();
        let piece = body.len().min(done + 100_000);
        let len = stream.read(&mut body[done..piece]).expect("a body");
        assert!(len > 0, "cut short at {done} of {}", body.len());
        done += len;
    }
    (header[9..12].parse().expect("a status"), body)
}

impl Client<'_> {
    fn connect(&self) -> TcpStream {
        add(&self.done.connections, 1);
        let stream = self.server.connect();
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a socket");
        stream
    }

    fn ask(stream: &mut TcpStream, size: usize, fields: &str) -> io::Result<()> {
        write!(stream, "GET /{size} HTTP/1.1\r\nHost: x\r\n{fields}\r\n")
    }

    fn expect(&mut self, stream: &mut TcpStream, status: u16, body: &[u8], max_ms: u64) {
        let random = &mut self.random;
        let mut pause = || {
            if max_ms > 0 {
                random.pause(max_ms);
            }
        };
        let (got, bytes) = answer(stream, &mut pause);
        assert_eq!(got, status);
        assert!(bytes == body, "{} bytes differ from {}", bytes.len(), body.len());
        add(&self.done.answers, 1);
        add(&self.done.bytes, bytes.len() as u64);
    }

    fn file(&self, size: usize) -> &[u8] {
        let at = SIZES.iter().position(|its| *its == size).expect("one of them");
        &self.files[at]
    }

    /// Some files on one connection.
    fn read(&mut self, max_ms: u64) {
        let mut stream = self.connect();
        let mut has_asked = false;
        for _ in 0..=self.random.below(4) {
            let size = self.random.size();
            let body = self.file(size).to_owned();
            let asked = Client::ask(&mut stream, size, "");
            // Then the request may come again (RFC 9112, 9.3.1).
            if has_asked && (asked.is_err() || is_over(&stream)) {
                break;
            }
            self.expect(&mut stream, 200, &body, max_ms);
            has_asked = true;
        }
    }

    fn read_part(&mut self) {
        let mut stream = self.connect();
        let (size, from) = (400_001, self.random.below(400_001) as usize);
        let body = self.file(size)[from..].to_owned();
        Client::ask(&mut stream, size, &format!("Range: bytes={from}-\r\n")).expect("sent");
        self.expect(&mut stream, 206, &body, 0);
    }

    fn half_close(&mut self) {
        add(&self.done.half_closes, 1);
        let mut stream = self.connect();
        let size = self.random.size();
        let body = self.file(size).to_owned();
        Client::ask(&mut stream, size, "").expect("sent");
        stream.shutdown(Shutdown::Write).expect("shut");
        self.random.pause(1000);
        self.expect(&mut stream, 200, &body, 0);
        assert_eq!(stream.read(&mut [0]).expect("an end"), 0);
    }

    fn reset(&mut self) {
        add(&self.done.resets, 1);
        let mut stream = self.connect();
        let size = self.random.size();
        let text = format!("GET /{size} HTTP/1.1\r\nHost: x\r\n\r\n");
        let said = self.random.below(text.len() as u64 + 1) as usize;
        stream.write_all(&text.as_bytes()[..said]).expect("sent");
        if said == text.len() {
            let mut some = vec![0; self.random.below(50_000) as usize];
            let len = stream.read(&mut some).expect("an answer");
            add(&self.done.bytes, len as u64);
        }
        self.random.pause(100);
        set_socket_linger(&stream, Some(Duration::ZERO)).expect("set");
    }

    fn stall(&mut self) {
        add(&self.done.stalls, 1);
        let mut stream = self.connect();
        if self.random.below(2) == 0 {
            Client::ask(&mut stream, 3_000_001, "").expect("sent");
        }
        self.random.pause(3000);
    }

    fn upload(&mut self) {
        let mut stream = self.connect();
        let body = bytes(self.random.below(200_000) as usize);
        let (path, len) = (self.path.clone(), body.len());
        let is_chunked = self.random.below(3) == 0;
        let framing = if is_chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {len}")
        };
        write!(stream, "PUT /{path} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n").expect("sent");
        let whole = len == 0 || self.random.below(4) > 0;
        let said = if whole { len } else { self.random.below(len as u64) as usize };
        let mut at = 0;
        while at < said {
            let piece = (said - at).min(1 + self.random.below(60_000) as usize);
            if is_chunked {
                write!(stream, "{piece:x}\r\n").expect("sent");
            }
            stream.write_all(&body[at..at + piece]).expect("sent");
            if is_chunked {
                stream.write_all(b"\r\n").expect("sent");
            }
            at += piece;
        }
        if !whole {
            // It is gone in the middle, or says that this is all.
            return match self.random.below(3) {
                0 => set_socket_linger(&stream, Some(Duration::ZERO)).expect("set"),
                1 => {}
                _ => {
                    stream.shutdown(Shutdown::Write).expect("shut");
                    let (status, _) = answer(&mut stream, &mut || {});
                    assert_eq!(status, 400);
                }
            };
        }
        if is_chunked {
            stream.write_all(b"0\r\n\r\n").expect("sent");
        }
        let status = if self.uploaded.is_some() { 204 } else { 201 };
        self.expect(&mut stream, status, b"", 0);
        add(&self.done.uploads, 1);
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        self.expect(&mut stream, 200, &body, 0);
        self.uploaded = Some(body);
    }

    fn nonsense(&mut self) {
        let mut stream = self.connect();
        stream.write_all(b"\x00nonsense\r\n\r\n").expect("sent");
        assert_eq!(answer(&mut stream, &mut || {}).0, 400);
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..=4 => self.read(0),
            5 => self.read(20),
            6 | 7 => self.read_part(),
            8 | 9 => self.half_close(),
            10 | 11 => self.reset(),
            12 => self.stall(),
            13 | 14 => self.upload(),
            _ => self.nonsense(),
        }
    }
}

#[test]
fn clients_at_random_get_every_byte() {
    let (seconds, seed) = (number("PAGEFERRY_SERVE_SECONDS", 5), number("PAGEFERRY_SEED", 1));
    let dir = tempfile::tempdir().expect("a directory");
    let files: Vec<Vec<u8>> = SIZES.iter().map(|size| bytes(*size)).collect();
    for (size, file) in SIZES.iter().zip(&files) {
        fs::write(dir.path().join(size.to_string()), file).expect("written");
    }
    let server = Server::start(dir.path(), &["--json"]);
    let (done, until) = (Tally::default(), Instant::now() + Duration::from_secs(seconds));
    std::thread::scope(|scope| {
        for nth in 0..CLIENTS {
            let random = Random(seed.wrapping_mul(1_000_003) ^ nth);
            let (server, files, done) = (&server, &files, &done);
            let mut client =
                Client { server, files, done, random, path: format!("up/{nth}"), uploaded: None };
            scope.spawn(move || {
                while Instant::now() < until {
                    client.step();
                }
            });
        }
    });
    let (told, code) = server.interrupt();
    assert_eq!(code, Some(0), "{told}");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    println!(
        "{seconds} s, {CLIENTS} clients: {} connections, {} answers and {} bytes compared, {} uploads, {} resets, {} \
         half-closes, {} stalls; the server: {} in {} µs of its time, {} cut short",
        count(&done.connections),
        count(&done.answers),
        count(&done.bytes),
        count(&done.uploads),
        count(&done.resets),
        count(&done.half_closes),
        count(&done.stalls),
        told["requests"],
        told["elapsed_us"],
        told["cut_short"],
    );
}
