//! The web server: HTTP/1.1 (RFC 9110, 9112), GET and HEAD, single ranges, connections that are kept. Each process of several takes
//! connections from one listening socket, one after the other; files go by `sendfile`.
//!
//! Requests are read into the process's own memory and loaded from there, as a program on that machine would; only their meaning is
//! found out on the host (`httparse`). A path is looked up among the names of the site and nowhere else: there is no way out of it.

use super::site::{Page, Site, kind};
use super::{HTTP, MACHINE};
use crate::workload::process::room_for;
use pageferry_hal::{Cycles, Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, Polled, Program, SendMode, SocketKind, User};
use pageferry_model::{Model, Snapshot};
use pageferry_vm::Inherit;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddrV4;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Processes that take connections: as many can be served at a time, and as many more wait.
const WORKERS: usize = 48;
/// The longest request that is understood.
const MOST_REQUEST_BYTES: usize = 16 << 10;
/// How often a process looks whether it is to end, and how long it keeps a connection that says nothing.
const LOOK_MS: u64 = 200;
const KEEP_MS: u64 = 15_000;

/// What the processes have done.
#[derive(Default)]
pub(super) struct State {
    pub(super) connections: u64,
    pub(super) requests: BTreeMap<u16, u64>,
    pub(super) file_bytes: u64,
    pub(super) failed: Option<String>,
    start: Option<(u64, Snapshot)>,
    pub(super) measured: Option<Snapshot>,
    pub(super) elapsed_cycles: u64,
}

/// The server, before it runs and in each of its processes.
#[derive(Clone)]
pub(super) struct Server {
    model: Model,
    site: Rc<Site>,
    stop: Arc<AtomicBool>,
    state: Rc<RefCell<State>>,
}

impl Server {
    pub(super) fn new(model: Model, site: Site, stop: Arc<AtomicBool>) -> Server {
        Server { model, site: Rc::new(site), stop, state: Rc::default() }
    }

    pub(super) fn state(&self) -> Rc<RefCell<State>> {
        self.state.clone()
    }

    /// The first process: writes the files, listens, and forks the others.
    pub(super) fn program(self) -> Program<Model> {
        Box::new(move |user: &User<Model>| {
            if let Err(problem) = self.run(user) {
                self.state.borrow_mut().failed.get_or_insert(problem);
            }
        })
    }

    fn run(&self, user: &User<Model>) -> Result<(), String> {
        room_for(user, usize::try_from(self.site.len_bytes()).unwrap_or(usize::MAX))?;
        for (name, page) in &self.site.pages {
            self.install(user, name, page)
                .map_err(|problem| format!("{}: {problem}", page.host.display()))?;
        }
        let listening = self.listen(user).map_err(|e| format!("listen: {e}"))?;
        self.state.borrow_mut().start = Some((user.machine().now().0, self.model.snapshot()));
        let mut children = 0;
        for _ in 1..WORKERS {
            let worker = self.clone();
            let body = Box::new(move |user: &User<Model>| worker.work(user, listening));
            // As many as there is memory for.
            match user.fork("httpd", body) {
                Ok(_) => children += 1,
                Err(_) => break,
            }
        }
        self.work(user, listening);
        for _ in 0..children {
            let _ = user.wait();
        }
        let mut state = self.state.borrow_mut();
        if let Some((began, before)) = state.start.take() {
            state.elapsed_cycles = user.machine().now().0.saturating_sub(began);
            state.measured = Some(self.model.snapshot().since(&before));
        }
        drop(state);
        self.site.pages.keys().for_each(|name| {
            let _ = user.unlink(name);
        });
        Ok(())
    }

    /// Makes a file of the modelled kernel with the bytes of one of the host.
    fn install(&self, user: &User<Model>, name: &str, page: &Page) -> Result<(), String> {
        const CHUNK: usize = 256 << 10;
        let mut input = File::open(&page.host).map_err(|e| e.to_string())?;
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let file = user.open(name, flags).map_err(|e| e.to_string())?;
        let buffer = user.map(CHUNK, Prot::RW, Inherit::Copy).map_err(|e| e.to_string())?;
        let mut chunk = vec![0; CHUNK];
        let mut left = page.len_bytes;
        user.store(buffer, &chunk);
        while left > 0 {
            let want = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
            input.read_exact(&mut chunk[..want]).map_err(|e| format!("it has become shorter: {e}"))?;
            // What a process computes to have a file's bytes is none of what is measured.
            self.model.poke(buffer, &chunk[..want]);
            let mut done = 0;
            while done < want {
                done += user.write(file, buffer + done, want - done).map_err(|e| e.to_string())?;
            }
            left -= want as u64;
        }
        user.unmap(buffer, CHUNK).and_then(|()| user.close(file)).map_err(|e| e.to_string())
    }

    fn listen(&self, user: &User<Model>) -> Result<Fd, Errno> {
        let listening = user.socket(SocketKind::Stream)?;
        user.bind(listening, SocketAddrV4::new(MACHINE, HTTP))?;
        user.listen(listening, WORKERS)?;
        user.set_nonblocking(listening, true)?;
        Ok(listening)
    }

    fn stops(&self, user: &User<Model>) -> bool {
        self.stop.load(Ordering::Relaxed) || user.is_killed()
    }

    fn ms(&self, user: &User<Model>, ms: u64) -> Cycles {
        let config = user.kernel().config().net.expect("it listens");
        Cycles(config.ms_cycles.0 * ms)
    }

    /// Takes connections until it is to end.
    fn work(&self, user: &User<Model>, listening: Fd) {
        let Ok(buffer) = user.map(MOST_REQUEST_BYTES, Prot::RW, Inherit::Copy) else { return };
        while !self.stops(user) {
            let look = self.ms(user, LOOK_MS);
            let ready = user.poll(&mut [Polled::new(listening, true, false)], Some(look));
            if ready.unwrap_or(0) == 0 {
                continue;
            }
            // Another process may have been faster.
            let Ok((fd, _)) = user.accept(listening) else { continue };
            self.state.borrow_mut().connections += 1;
            // A client that goes away midway ends its connection, and nothing else.
            let _ = self.converse(user, fd, buffer);
            let _ = user.close(fd);
        }
        let _ = user.close(listening);
    }

    /// Answers the requests of one connection.
    fn converse(&self, user: &User<Model>, fd: Fd, buffer: Va) -> Result<(), Errno> {
        let mut have: Vec<u8> = Vec::new();
        loop {
            let request = loop {
                match parse(&have) {
                    Parsed::Whole(request, len) => {
                        have.drain(..len);
                        break request;
                    }
                    Parsed::Bad => return self.refuse(user, fd, buffer, 400, "Bad Request"),
                    Parsed::Part if have.len() >= MOST_REQUEST_BYTES => {
                        return self.refuse(user, fd, buffer, 431, "Request Header Fields Too Large");
                    }
                    Parsed::Part => {}
                }
                if !self.wait_for(user, fd)? {
                    return Ok(());
                }
                let len = user.read(fd, buffer, MOST_REQUEST_BYTES - have.len())?;
                if len == 0 {
                    return Ok(());
                }
                let mut part = vec![0; len];
                user.load(buffer, &mut part);
                have.extend(part);
            };
            self.answer(user, fd, buffer, &request)?;
            if !request.keep {
                return Ok(());
            }
        }
    }

    /// Waits until something can be read; false when the connection is not worth keeping any more.
    fn wait_for(&self, user: &User<Model>, fd: Fd) -> Result<bool, Errno> {
        for _ in 0..KEEP_MS / LOOK_MS {
            if self.stops(user) {
                return Ok(false);
            }
            let look = self.ms(user, LOOK_MS);
            if user.poll(&mut [Polled::new(fd, true, false)], Some(look))? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn count(&self, status: u16) {
        *self.state.borrow_mut().requests.entry(status).or_default() += 1;
    }

    fn say(&self, user: &User<Model>, fd: Fd, buffer: Va, text: &str) -> Result<(), Errno> {
        assert!(text.len() <= MOST_REQUEST_BYTES, "an answer's header is short");
        user.store(buffer, text.as_bytes());
        let mut done = 0;
        while done < text.len() {
            done += user.write(fd, buffer + done, text.len() - done)?;
        }
        Ok(())
    }

    fn refuse(&self, user: &User<Model>, fd: Fd, buffer: Va, status: u16, why: &str) -> Result<(), Errno> {
        self.count(status);
        let text = format!("HTTP/1.1 {status} {why}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.say(user, fd, buffer, &text)
    }

    fn answer(&self, user: &User<Model>, fd: Fd, buffer: Va, request: &Request) -> Result<(), Errno> {
        let keep = if request.keep { "keep-alive" } else { "close" };
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            self.count(405);
            let text = format!(
                "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\nConnection: {keep}\r\n\r\n"
            );
            return self.say(user, fd, buffer, &text);
        }
        let found = name_of(&request.target).and_then(|name| {
            let index = if name.is_empty() { "index.html".to_owned() } else { format!("{name}/index.html") };
            [name, index].into_iter().find_map(|name| Some((self.site.pages.get(&name)?, name)))
        });
        let Some((page, name)) = found else {
            self.count(404);
            let body = if request.method == "HEAD" { "" } else { "not found\n" };
            let text = format!(
                "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 10\r\nConnection: {keep}\r\n\r\n{body}"
            );
            return self.say(user, fd, buffer, &text);
        };
        let whole = 0..page.len_bytes;
        let (status, bytes) = match request.range.as_deref().map(|range| parse_range(range, page.len_bytes)) {
            Some(Some(bytes)) if !bytes.is_empty() => ("206 Partial Content", bytes),
            Some(Some(_)) => {
                self.count(416);
                let text = format!(
                    "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{}\r\nContent-Length: 0\r\nConnection: {keep}\r\n\r\n",
                    page.len_bytes
                );
                return self.say(user, fd, buffer, &text);
            }
            // No range, or one that is not understood, which is to be ignored (RFC 9110, 14.2).
            _ => ("200 OK", whole),
        };
        let len = bytes.end - bytes.start;
        let range = match status.starts_with("206") {
            true => format!("Content-Range: bytes {}-{}/{}\r\n", bytes.start, bytes.end - 1, page.len_bytes),
            false => String::new(),
        };
        self.count(if range.is_empty() { 200 } else { 206 });
        let text = format!(
            "HTTP/1.1 {status}\r\nServer: pageferry\r\nContent-Type: {}\r\nAccept-Ranges: bytes\r\n{range}Content-Length: {len}\r\nConnection: {keep}\r\n\r\n",
            kind(&name)
        );
        self.say(user, fd, buffer, &text)?;
        if request.method == "HEAD" {
            return Ok(());
        }
        let file = user.open(&name, OpenFlags::READ)?;
        let sent = self.send(user, fd, file, bytes);
        user.close(file)?;
        sent
    }

    fn send(&self, user: &User<Model>, fd: Fd, file: Fd, bytes: Range<u64>) -> Result<(), Errno> {
        let mut at = bytes.start;
        while at < bytes.end {
            let want = usize::try_from(bytes.end - at).unwrap_or(usize::MAX).min(64 * PAGE_SIZE);
            let sent = user.send_file(fd, file, at, want, SendMode::Copy)?;
            if sent == 0 {
                // Shorter than was promised: the client must not wait for the rest.
                return Err(Errno::Io);
            }
            at += sent as u64;
            self.state.borrow_mut().file_bytes += sent as u64;
        }
        Ok(())
    }
}

/// A request, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    target: String,
    keep: bool,
    range: Option<String>,
}

enum Parsed {
    /// A request, and its length.
    Whole(Request, usize),
    Part,
    Bad,
}

fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Parsed::Part,
        Err(_) => return Parsed::Bad,
    };
    let header = |name: &str| {
        let found = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.and_then(|h| std::str::from_utf8(h.value).ok()).map(str::trim)
    };
    let (Some(method), Some(target)) = (request.method, request.path) else { return Parsed::Bad };
    // Nothing is uploaded here: a body would be taken for the next request.
    let has_body =
        header("content-length").is_some_and(|len| len != "0") || header("transfer-encoding").is_some();
    let says = |word: &str| header("connection").is_some_and(|value| value.eq_ignore_ascii_case(word));
    let keep = if request.version == Some(0) { says("keep-alive") } else { !says("close") };
    let request = Request {
        method: method.to_owned(),
        target: target.to_owned(),
        keep: keep && !has_body,
        range: header("range").map(str::to_owned),
    };
    Parsed::Whole(request, len)
}

/// The path below the directory that a target asks for: decoded, without a query. `None` for what leaves it, or is none.
fn name_of(target: &str) -> Option<String> {
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
fn parse_range(text: &str, len: u64) -> Option<Range<u64>> {
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
        assert!(matches!(parse(&text[..30]), Parsed::Part));
        let Parsed::Whole(request, len) = parse(text) else { panic!("whole") };
        assert_eq!((len, request.keep, request.range.as_deref()), (text.len() - 3, true, Some("bytes=1-2")));
        assert!(matches!(parse(b"\x01\x02\r\n\r\n"), Parsed::Bad));
        let Parsed::Whole(old, _) = parse(b"GET / HTTP/1.0\r\n\r\n") else { panic!("whole") };
        assert!(!old.keep);
    }
}
