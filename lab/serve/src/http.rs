//! The web server: HTTP/1.1 (RFC 9110, 9112), GET and HEAD, single ranges, PUT, connections that are kept. Each process
//! of several takes connections from one listening socket, one after the other; files go by `sendfile`, and come as
//! [`upload`](super::upload) has it.
//!
//! Requests are read into the process's own memory and loaded from there, as a program on that machine would; only
//! their meaning is found out on the host (`httparse`). A path is looked up among the names of the site and nowhere
//! else: there is no way out of it.

use super::request::{Body, Parse, Request, name_of, parse, parse_range};
use super::service::{HTTP, Service};
use super::site::{Page, Site, kind};
use pageferry_hal::{Cycles, Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{
    Errno, Fd, OpenFlags, Polled, Program, ReceiveMode, SendMode, Shutdown, SocketKind, User,
};
use pageferry_lab::kit::room_for;
use pageferry_lab::run::MACHINE;
use pageferry_model::{Model, Snapshot};
use pageferry_vm::Inherit;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddrV4;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Processes that take connections: as many can be served at a time, and as many more wait.
const WORKERS: usize = 48;
/// The longest request that is understood.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// How often a process looks whether it is to end, and how long it keeps a connection that says nothing.
const LOOK_MS: u64 = 200;
const KEEP_MS: u64 = 15_000;

/// What the processes have done.
#[derive(Default)]
pub(super) struct State {
    pub(super) connections: u64,
    pub(super) requests: BTreeMap<u16, u64>,
    pub(super) file_bytes: u64,
    pub(super) uploaded_bytes: u64,
    pub(super) failed: Option<String>,
    /// Why an upload could not be written to the host, of the first of those.
    pub(super) host_failed: Option<String>,
    start: Option<(u64, Snapshot)>,
    pub(super) measured: Option<Snapshot>,
    pub(super) elapsed_cycles: u64,
}

/// The server, before it runs and in each of its processes.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) model: Model,
    pub(super) site: Rc<RefCell<Site>>,
    pub(super) service: Service,
    stop: Arc<AtomicBool>,
    pub(super) state: Rc<RefCell<State>>,
}

impl Server {
    pub(super) fn new(model: Model, site: Site, service: Service, stop: Arc<AtomicBool>) -> Server {
        Server { model, site: Rc::new(RefCell::new(site)), service, stop, state: Rc::default() }
    }

    pub(super) fn state(&self) -> Rc<RefCell<State>> {
        self.state.clone()
    }

    /// The first process: listens, writes the files, and forks the others.
    pub(super) fn program(self) -> Program<Model> {
        Box::new(move |user: &User<Model>| {
            if let Err(problem) = self.run(user) {
                self.state.borrow_mut().failed.get_or_insert(problem);
            }
        })
    }

    fn run(&self, user: &User<Model>) -> Result<(), String> {
        // Before all else: clients that come meanwhile wait, and are not refused.
        let listening = self.listen(user).map_err(|e| format!("listen: {e}"))?;
        room_for(user, self.site.borrow().memory_bytes())?;
        let installs = self.site.borrow().installs();
        for (host, page) in installs {
            self.install(user, &host, &page).map_err(|problem| format!("{}: {problem}", host.display()))?;
        }
        if self.service.send == SendMode::Auto || self.service.receive == ReceiveMode::Auto {
            user.measure_moves().map_err(|e| format!("measure: {e}"))?;
        }
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
        self.site.borrow().files().iter().for_each(|file| {
            let _ = user.unlink(file);
        });
        Ok(())
    }

    /// Makes a file of the modelled kernel with the bytes of one of the host.
    fn install(&self, user: &User<Model>, host: &Path, page: &Page) -> Result<(), String> {
        const CHUNK: usize = 256 << 10;
        let mut input = File::open(host).map_err(|e| e.to_string())?;
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let file = user.open(&page.file, flags).map_err(|e| e.to_string())?;
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
        let Ok(buffer) = user.map(MAX_REQUEST_BYTES, Prot::RW, Inherit::Copy) else { return };
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
                    Parse::Whole(request, len) => {
                        have.drain(..len);
                        break request;
                    }
                    Parse::Bad => return self.refuse(user, fd, buffer, 400, "Bad Request"),
                    Parse::Part if have.len() >= MAX_REQUEST_BYTES => {
                        return self.refuse(user, fd, buffer, 431, "Request Header Fields Too Large");
                    }
                    Parse::Part => {}
                }
                if !self.wait_for(user, fd)? {
                    return Ok(());
                }
                let len = user.read(fd, buffer, MAX_REQUEST_BYTES - have.len())?;
                if len == 0 {
                    return Ok(());
                }
                let mut part = vec![0; len];
                user.load(buffer, &mut part);
                have.extend(part);
            };
            if request.method == "PUT" {
                if !self.upload(user, fd, buffer, &request, &mut have)? {
                    return Ok(());
                }
                continue;
            }
            let has_body = !matches!(request.body, Body::None | Body::Bytes(0));
            self.answer(user, fd, buffer, &request)?;
            if has_body {
                // It would be taken for the next request.
                return self.linger(user, fd, buffer);
            }
            if !request.keep {
                return Ok(());
            }
        }
    }

    /// Ends what is said, and throws away what still comes: a reset would reach a client before the answer does.
    pub(super) fn linger(&self, user: &User<Model>, fd: Fd, buffer: Va) -> Result<(), Errno> {
        user.shutdown(fd, Shutdown::Send)?;
        while self.wait_for(user, fd)? && user.read(fd, buffer, MAX_REQUEST_BYTES)? > 0 {}
        Ok(())
    }

    /// Waits until something can be read; false when the connection is not worth keeping any more.
    pub(super) fn wait_for(&self, user: &User<Model>, fd: Fd) -> Result<bool, Errno> {
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

    pub(super) fn count(&self, status: u16) {
        *self.state.borrow_mut().requests.entry(status).or_default() += 1;
    }

    pub(super) fn say(&self, user: &User<Model>, fd: Fd, buffer: Va, text: &str) -> Result<(), Errno> {
        assert!(text.len() <= MAX_REQUEST_BYTES, "an answer's header is short");
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
                "HTTP/1.1 405 Method Not Allowed\r\n\
                 Allow: GET, HEAD, PUT\r\n\
                 Content-Length: 0\r\n\
                 Connection: {keep}\r\n\
                 \r\n"
            );
            return self.say(user, fd, buffer, &text);
        }
        let Some((name, page, file)) = self.open(user, request)? else {
            self.count(404);
            let body = if request.method == "HEAD" { "" } else { "not found\n" };
            let text = format!(
                "HTTP/1.1 404 Not Found\r\n\
                 Content-Type: text/plain\r\n\
                 Content-Length: 10\r\n\
                 Connection: {keep}\r\n\
                 \r\n\
                 {body}"
            );
            return self.say(user, fd, buffer, &text);
        };
        let answered = self.answer_with(user, fd, buffer, request, &name, &page, file);
        user.close(file)?;
        answered
    }

    /// Finds and opens what is asked for.
    fn open(&self, user: &User<Model>, request: &Request) -> Result<Option<(String, Page, Fd)>, Errno> {
        let Some(path) = name_of(&request.target) else { return Ok(None) };
        loop {
            let found = self.site.borrow().find(&path);
            let Some((name, page)) = found else { return Ok(None) };
            match user.open(&page.file, OpenFlags::READ) {
                Ok(file) => return Ok(Some((name, page, file))),
                // An upload has taken its place meanwhile.
                Err(Errno::NoFile) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Answers with a file, or a part of it.
    #[expect(clippy::too_many_arguments, reason = "what was found is of one use")]
    fn answer_with(
        &self,
        user: &User<Model>,
        fd: Fd,
        buffer: Va,
        request: &Request,
        name: &str,
        page: &Page,
        file: Fd,
    ) -> Result<(), Errno> {
        let keep = if request.keep { "keep-alive" } else { "close" };
        let whole = 0..page.len_bytes;
        let (status, bytes) = match request.range.as_deref().map(|range| parse_range(range, page.len_bytes)) {
            Some(Some(bytes)) if !bytes.is_empty() => ("206 Partial Content", bytes),
            Some(Some(_)) => {
                self.count(416);
                let text = format!(
                    "HTTP/1.1 416 Range Not Satisfiable\r\n\
                     Content-Range: bytes */{}\r\n\
                     Content-Length: 0\r\n\
                     Connection: {keep}\r\n\
                     \r\n",
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
            "HTTP/1.1 {status}\r\n\
             Server: pageferry\r\n\
             Content-Type: {}\r\n\
             Accept-Ranges: bytes\r\n\
             {range}Content-Length: {len}\r\n\
             Connection: {keep}\r\n\
             \r\n",
            kind(name)
        );
        self.say(user, fd, buffer, &text)?;
        if request.method == "HEAD" {
            return Ok(());
        }
        self.send(user, fd, file, bytes)
    }

    fn send(&self, user: &User<Model>, fd: Fd, file: Fd, bytes: Range<u64>) -> Result<(), Errno> {
        let mut at = bytes.start;
        while at < bytes.end {
            let want = usize::try_from(bytes.end - at).unwrap_or(usize::MAX).min(64 * PAGE_SIZE);
            let sent = user.send_file(fd, file, at, want, self.service.send)?;
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
