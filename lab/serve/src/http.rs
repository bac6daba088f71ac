//! The web server: HTTP/1.1 (RFC 9110, 9112), GET and HEAD, single ranges, conditions, PUT, connections that are kept.
//! Each process of several takes connections from one listening socket, one after the other; files go by `sendfile`,
//! and come as [`upload`](super::upload) has it.
//!
//! Only the meaning of a request is found out on the host ([`request`](super::request)). A path is looked up among the
//! names of the site and nowhere else: there is no way out of it.

use super::access_log::{AccessLog, Entry};
use super::body::{BodyError, BodyReader};
use super::connection::{ASKING, Answer, Connection, MAX_HEADER_BYTES};
use super::kept::Keeper;
use super::request::{Parse, Request, first_line, parse};
use super::response::{ALLOWED, Length, reason};
use super::service::{HTTP, Progress, Service};
use super::site::{Page, Site};
use super::target::Target;
use super::workers::{WaitError, Workers, cycles};
use pageferry_hal::{Machine as _, PAGE_SIZE, Prot};
use pageferry_kernel::{Errno, Fd, OpenFlags, Program, ReceiveMode, SendMode, SocketKind, User};
use pageferry_lab::kit::room_for;
use pageferry_lab::run::MACHINE;
use pageferry_model::{Model, Snapshot};
use pageferry_vm::Inherit;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddrV4;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Processes that take connections: as many can be served at a time, and as many more wait.
pub(super) const WORKERS: usize = 48;
/// A body that nobody asked for is read, so that the connection can be kept, if it is no longer.
const MAX_IDLE_BODY_BYTES: u64 = 1 << 20;
/// How long what was said last is on its way to the clients, once the server is to stop.
const FLUSH_MS: u64 = 300;

/// What the processes have done.
#[derive(Default)]
pub(super) struct State {
    pub(super) connections: u64,
    pub(super) requests: BTreeMap<u16, u64>,
    /// Answers that their clients did not get to their end.
    pub(super) cut_short: u64,
    /// Clients that had less time than they have while nobody else waits.
    pub(super) hurried: u64,
    pub(super) file_bytes: u64,
    pub(super) uploaded_bytes: u64,
    pub(super) failed: Option<String>,
    /// Why an upload or the log could not be written to the host, of the first of those.
    pub(super) host_failed: Option<String>,
    start: Option<(u64, Snapshot)>,
    pub(super) measured: Option<Snapshot>,
    pub(super) elapsed_cycles: u64,
}

/// Who is told how far the server has come.
type Tell = Box<dyn FnMut(Progress<'_>)>;

/// The server, before it runs and in each of its processes.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) model: Model,
    pub(super) site: Rc<RefCell<Site>>,
    pub(super) service: Service,
    workers: Rc<Workers>,
    pub(super) keeper: Option<Keeper>,
    log: Option<Rc<RefCell<AccessLog>>>,
    tell: Rc<RefCell<Tell>>,
    pub(super) state: Rc<RefCell<State>>,
}

/// Why a file of the host is not there in the machine.
enum InstallError {
    /// The host's could not be read.
    Unreadable(io::Error),
    /// The machine's could not be written.
    Failed(Errno),
}

impl From<Errno> for InstallError {
    fn from(errno: Errno) -> InstallError {
        InstallError::Failed(errno)
    }
}

/// The line that a request begins with; and what it is, or by which status it is refused.
type Arrival = (Vec<u8>, Result<Request, u16>);

impl Server {
    pub(super) fn new(
        model: Model,
        site: Site,
        service: Service,
        (keeper, log): (Option<Keeper>, Option<AccessLog>),
        stop: Arc<AtomicBool>,
        tell: impl FnMut(Progress<'_>) + 'static,
    ) -> Server {
        Server {
            model,
            site: Rc::new(RefCell::new(site)),
            service,
            workers: Rc::new(Workers::new(stop)),
            keeper,
            log: log.map(|log| Rc::new(RefCell::new(log))),
            tell: Rc::new(RefCell::new(Box::new(tell))),
            state: Rc::default(),
        }
    }

    pub(super) fn state(&self) -> Rc<RefCell<State>> {
        self.state.clone()
    }

    /// The first process: listens, writes the files, forks those that serve, and looks after them.
    pub(super) fn program(self) -> Program<Model> {
        Box::new(move |user: &User<Model>| {
            if let Err(problem) = self.run(user) {
                self.state.borrow_mut().failed.get_or_insert(problem);
            }
        })
    }

    fn run(&self, user: &User<Model>) -> Result<(), String> {
        // Before all else: clients that come meanwhile wait, and are not refused.
        let listening = listen(user).map_err(|e| format!("listen: {e}"))?;
        let memory_bytes = self.site.borrow().memory_bytes();
        room_for(user, memory_bytes)?;
        self.load(user)?;
        if self.service.send == SendMode::Auto || self.service.receive == ReceiveMode::Auto {
            user.measure_moves().map_err(|e| format!("measure: {e}"))?;
        }
        if self.service.receive == ReceiveMode::Transfer {
            self.try_transfer(user).map_err(|e| format!("--receive transfer: this kernel says: {e}"))?;
        }
        self.state.borrow_mut().start = Some((user.machine().now().0, self.model.snapshot()));
        let mut pids = Vec::new();
        for _ in 0..WORKERS {
            let (server, worker) = (self.clone(), self.workers.begin());
            let body = Box::new(move |user: &User<Model>| {
                server.work(user, listening, worker);
                server.workers.end();
            });
            // As many as there is memory for.
            match user.fork("httpd", body) {
                Ok(pid) => pids.push(pid),
                Err(e) => {
                    self.workers.end();
                    if pids.is_empty() {
                        return Err(format!("fork: {e}"));
                    }
                    break;
                }
            }
        }
        (self.tell.borrow_mut())(Progress::Ready { left_out: self.site.borrow().left_out() });
        self.workers.supervise(user, listening, &pids);
        let mut state = self.state.borrow_mut();
        state.hurried = self.workers.hurried();
        if let Some((began, before)) = state.start.take() {
            state.elapsed_cycles = user.machine().now().0.saturating_sub(began);
            state.measured = Some(self.model.snapshot().since(&before));
        }
        drop(state);
        let _ = user.sleep_for(cycles(user, FLUSH_MS));
        let files = self.site.borrow().files();
        files.iter().for_each(|file| {
            let _ = user.unlink(file);
        });
        Ok(())
    }

    /// Makes the files of the host files of the modelled kernel. One that cannot be read any more is left out.
    fn load(&self, user: &User<Model>) -> Result<(), String> {
        let (installs, of) = (self.site.borrow().installs(), self.site.borrow().len_bytes());
        let mut bytes = 0;
        for (path, host, page) in installs {
            if self.workers.stops(user) {
                return Ok(());
            }
            match self.install(user, &host, &page) {
                Ok(()) => {}
                Err(InstallError::Unreadable(e)) => {
                    let _ = user.unlink(&page.file);
                    self.site.borrow_mut().lose(&path, &e);
                }
                Err(InstallError::Failed(errno)) => return Err(format!("{}: {errno}", host.display())),
            }
            bytes += page.len_bytes;
            (self.tell.borrow_mut())(Progress::Loaded { bytes, of });
        }
        Ok(())
    }

    /// Makes a file of the modelled kernel with the bytes of one of the host.
    fn install(&self, user: &User<Model>, host: &Path, page: &Page) -> Result<(), InstallError> {
        const CHUNK: usize = 256 << 10;
        let mut input = File::open(host).map_err(InstallError::Unreadable)?;
        let file = user.open(&page.file, OpenFlags::WRITE | OpenFlags::CREATE)?;
        let buffer = user.map(CHUNK, Prot::RW, Inherit::Copy)?;
        let mut chunk = vec![0; CHUNK];
        let mut left = page.len_bytes;
        user.store(buffer, &chunk);
        let mut copy = || {
            while left > 0 {
                let want = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
                input.read_exact(&mut chunk[..want]).map_err(InstallError::Unreadable)?;
                // What a process computes to have a file's bytes is none of what is measured.
                self.model.poke(buffer, &chunk[..want]);
                let mut done = 0;
                while done < want {
                    done += user.write(file, buffer + done, want - done)?;
                }
                left -= want as u64;
            }
            Ok(())
        };
        let copied = copy();
        user.unmap(buffer, CHUNK).and_then(|()| user.close(file))?;
        copied
    }

    /// Serves connections until the server is to stop.
    fn work(&self, user: &User<Model>, listening: Fd, worker: usize) {
        let Ok(buffer) = user.map(MAX_HEADER_BYTES, Prot::RW, Inherit::Copy) else { return };
        loop {
            let taken = self.workers.wait(user, worker, None, || user.accept(listening));
            let (fd, from) = match taken {
                Ok(taken) => taken,
                Err(WaitError::Failed(Errno::Killed) | WaitError::Stopped | WaitError::TimedOut) => break,
                // For want of something that others have.
                Err(WaitError::Failed(_)) => {
                    let _ = user.sleep_for(cycles(user, 10));
                    continue;
                }
            };
            self.state.borrow_mut().connections += 1;
            let mut client = Connection::new(user, (&self.workers, worker), (fd, *from.ip()), buffer);
            // A client that goes away midway ends its connection, and nothing else.
            let _ = self.converse(&mut client);
            client.close();
        }
        let _ = user.close(listening);
    }

    /// Answers the requests of one connection.
    fn converse(&self, client: &mut Connection<'_>) -> Result<(), WaitError> {
        while let Some((line, request)) = self.hear(client)? {
            let keep = match request {
                Ok(request) => self.answer(client, &request),
                Err(status) => self.refuse(client, status, false),
            };
            self.note(client, &line);
            if !keep? {
                break;
            }
        }
        client.linger()
    }

    /// Waits for a request. `None` at the end of the connection.
    fn hear(&self, client: &mut Connection<'_>) -> Result<Option<Arrival>, WaitError> {
        // For its first byte, and then for all of its header.
        let mut wait = client.waits(ASKING);
        let mut had_begun = false;
        loop {
            let status = match parse(&client.have) {
                Parse::Whole(request, len) if len <= MAX_HEADER_BYTES => {
                    let line = first_line(&client.have).to_owned();
                    client.have.drain(..len);
                    return Ok(Some((line, Ok(request))));
                }
                Parse::Refused(status) => Some(status),
                Parse::Part if client.have.len() < MAX_HEADER_BYTES => None,
                _ if first_line(&client.have).len() + 2 < MAX_HEADER_BYTES => Some(431),
                _ => Some(414),
            };
            let has_begun = !client.have.is_empty();
            if has_begun && !had_begun {
                (had_begun, wait) = (true, client.waits(ASKING));
            }
            let is_late = has_begun && client.is_late(&wait);
            if let Some(status) = status.or(is_late.then_some(408)) {
                return Ok(Some((first_line(&client.have).to_owned(), Err(status))));
            }
            match client.read_more(wait) {
                Ok(true) => {}
                Err(WaitError::TimedOut) if has_begun => {}
                Ok(false) | Err(WaitError::TimedOut) => return Ok(None),
                Err(gone) => return Err(gone),
            }
        }
    }

    /// Answers a request; whether the connection is kept.
    fn answer(&self, client: &mut Connection<'_>, request: &Request) -> Result<bool, WaitError> {
        if request.method == "PUT" {
            return self.upload(client, request);
        }
        // Nobody asked for a body. It would be taken for the next request.
        let keep = match skip(client, request)? {
            Ok(skipped) => skipped && request.keep,
            Err(status) => return self.refuse(client, status, false),
        };
        match (request.method.as_str(), &request.target) {
            ("GET" | "HEAD", Target::Path(path, has_slash)) => {
                self.read(client, request, (path, *has_slash), keep)
            }
            ("GET" | "HEAD", _) => self.refuse_to(client, request, 404, keep),
            ("OPTIONS", _) => {
                client.begin_answer(204, &format!("Allow: {ALLOWED}\r\n"), Length::Nothing, keep)?;
                client.end_answer();
                Ok(keep)
            }
            ("POST" | "DELETE" | "CONNECT" | "TRACE" | "PATCH", _) => self.refuse(client, 405, keep),
            _ => self.refuse(client, 501, keep),
        }
    }

    /// Answers that a request is not met, and why.
    pub(super) fn refuse(
        &self,
        client: &mut Connection<'_>,
        status: u16,
        keep: bool,
    ) -> Result<bool, WaitError> {
        self.explain(client, status, false, keep)
    }

    /// The same to a request of which it is known whether its answer has a body.
    pub(super) fn refuse_to(
        &self,
        client: &mut Connection<'_>,
        request: &Request,
        status: u16,
        keep: bool,
    ) -> Result<bool, WaitError> {
        self.explain(client, status, request.is_head(), keep)
    }

    fn explain(
        &self,
        client: &mut Connection<'_>,
        status: u16,
        is_head: bool,
        keep: bool,
    ) -> Result<bool, WaitError> {
        let allow = if status == 405 { format!("Allow: {ALLOWED}\r\n") } else { String::new() };
        let fields = format!("{allow}Content-Type: text/plain; charset=utf-8\r\n");
        let body = format!("{}\n", reason(status));
        client.begin_answer(status, &fields, Length::Bytes(body.len() as u64), keep)?;
        if !is_head {
            client.say_body(body.as_bytes())?;
        }
        client.end_answer();
        Ok(keep)
    }

    /// Counts a request and writes it to the log, if any answer was begun.
    fn note(&self, client: &mut Connection<'_>, line: &[u8]) {
        let Some(answer) = client.take_answer() else { return };
        let mut state = self.state.borrow_mut();
        *state.requests.entry(answer.status).or_default() += 1;
        state.cut_short += u64::from(!answer.is_whole);
        let Some(log) = &self.log else { return };
        let Answer { status, body_bytes, .. } = answer;
        if let Err(e) = log.borrow_mut().add(&Entry { from: client.from, line, status, body_bytes }) {
            state.host_failed.get_or_insert_with(|| e.to_string());
        }
    }

    /// Finds out before the first client comes whether whole pages can be received and handed to a file.
    fn try_transfer(&self, user: &User<Model>) -> Result<(), Errno> {
        let socket = user.socket(SocketKind::Stream)?;
        let received = user.receive_transfer(socket, None, PAGE_SIZE);
        user.close(socket)?;
        match received {
            Err(Errno::NotSupported) => Err(Errno::NotSupported),
            _ => Ok(()),
        }
    }
}

/// Reads a body that nobody asked for: true if the connection can be kept behind it, a status if it is none.
fn skip(client: &mut Connection<'_>, request: &Request) -> Result<Result<bool, u16>, WaitError> {
    let mut body = BodyReader::new(request.body);
    if request.expects_to_go_on && client.have.is_empty() && !body.is_over() {
        // It does not come before it is asked for.
        return Ok(Ok(false));
    }
    let mut skipped = 0;
    while !body.is_over() && skipped < MAX_IDLE_BODY_BYTES {
        match body.next(client, MAX_HEADER_BYTES) {
            Ok(bytes) => skipped += bytes.len() as u64,
            Err(BodyError::Malformed) => return Ok(Err(400)),
            Err(BodyError::Ended) => return Ok(Ok(false)),
            Err(BodyError::Wait(gone)) => return Err(gone),
        }
    }
    Ok(Ok(body.is_over()))
}

fn listen(user: &User<Model>) -> Result<Fd, Errno> {
    let listening = user.socket(SocketKind::Stream)?;
    user.bind(listening, SocketAddrV4::new(MACHINE, HTTP))?;
    user.listen(listening, WORKERS)?;
    Ok(listening)
}
