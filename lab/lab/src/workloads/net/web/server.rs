//! The server: processes that wait on one listening socket, each for one connection at a time, as Apache 2.0 does where
//! it forks before and keeps no connection open.
//!
//! For each request a process makes the calls that Apache makes, in their order: accept, getsockname, setsockopt (no
//! delay), fcntl twice, read, stat, open, a small write of the header, sendfile, a write to the log, shutdown, poll and
//! read until the client has closed, and close twice. What it computes in between is a parameter. fcntl, stat and the
//! write, to a log that is `/dev/null`, are calls that only enter the kernel here.

use super::clients::Clients;
use super::contents::{asked, header, name};
use super::shared::{SERVER, Web};
use crate::kit::{CallError, named, other_process};
use crate::workloads::net::Began;
use pageferry_hal::{Instructions, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, Polled, SendMode, Shutdown, SocketKind, SocketOption, User};
use pageferry_model::Model;
use pageferry_model::net::line::{LineConfig, LineHost};
use pageferry_vm::Inherit;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Each process has a buffer of so many bytes.
pub(super) const BUFFER_BYTES: usize = 8192;
/// What a process computes is cut into pieces of so many instructions: interrupts come in between.
const PIECE: u32 = 5_000;

/// How far the server is; of its processes, which are coroutines of one thread.
#[derive(Default)]
struct Progress {
    answered: Cell<u64>,
    began: RefCell<Option<(Began, u64)>>,
    /// Processes are to end.
    over: Cell<bool>,
}

impl Web {
    /// What the first process does.
    pub(super) fn run(self: Rc<Self>, user: &User<Model>, files: &[u32]) -> Result<(), CallError> {
        self.make_files(user, files)?;
        let result = self.map_what_was_used(user).and_then(|()| self.open(user));
        result.and(self.remove_files(user, files))
    }

    /// Serves until all is answered.
    fn open(self: &Rc<Self>, user: &User<Model>) -> Result<(), CallError> {
        let listening = user.socket(SocketKind::Stream).map_err(named("socket"))?;
        user.bind(listening, SERVER).map_err(named("bind"))?;
        user.listen(listening, self.clients).map_err(named("listen"))?;
        let clients = Clients::new(self.site.clone(), self.seed, self.clients, self.cell.clone());
        let clients = Rc::new(RefCell::new(clients));
        let progress = Rc::new(Progress::default());
        let mut children = Vec::new();
        for _ in 0..self.processes {
            let (web, clients, progress) = (self.clone(), clients.clone(), progress.clone());
            let child =
                other_process(self.cell.clone(), move |user| web.serve(user, listening, &clients, &progress));
            children.push(user.fork("httpd", child).map_err(named("fork"))?);
        }
        let mtu_bytes = self.mtu_bytes;
        let config = LineConfig { ip: crate::run::FAR_END, mtu_bytes, ..LineConfig::default() };
        self.model.attach(Box::new(LineHost::new(config, clients.clone())));
        // The first to end has answered the last request, or could not go on.
        let first = user.wait().map_err(named("wait"))?;
        let all = self.site.requests.len() as u64;
        if progress.answered.get() == all {
            clients.borrow().end();
        } else {
            clients.borrow_mut().gone = true;
        }
        progress.over.set(true);
        children.retain(|pid| *pid != first);
        for &pid in &children {
            match user.signal(pid) {
                Ok(()) | Err(Errno::NoProcess) => {}
                Err(e) => return Err(("end a process", e)),
            }
        }
        for _ in &children {
            user.wait().map_err(named("wait"))?;
        }
        user.close(listening).map_err(named("close"))
    }

    /// What each of the other processes does.
    fn serve(
        &self,
        user: &User<Model>,
        listening: Fd,
        clients: &RefCell<Clients>,
        progress: &Progress,
    ) -> Result<(), CallError> {
        let buffer = user.map(BUFFER_BYTES, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
        user.store(buffer, &[0; BUFFER_BYTES]);
        while !progress.over.get() {
            match self.answer(user, listening, buffer) {
                Err((_, Errno::Interrupted)) if progress.over.get() => return Ok(()),
                result => result?,
            }
            let answered = progress.answered.get() + 1;
            progress.answered.set(answered);
            if answered == self.warmup_requests.max(1) {
                let heard = clients.borrow().heard_bytes;
                *progress.began.borrow_mut() = Some((Began::now(user, &self.model), heard));
            }
            if answered == self.warmup_requests.max(1) + self.requests {
                let (began, before) = progress.began.take().expect("it began before");
                self.measured(user, began, clients.borrow().heard_bytes - before);
            }
            if answered == self.site.requests.len() as u64 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Leaves what was found.
    fn measured(&self, user: &User<Model>, began: Began, bytes: u64) {
        let outcome = &mut self.cell.borrow_mut();
        began.ended(user, &self.model, self.clock_mhz, bytes, Duration::ZERO, outcome);
        let requests = self.requests as f64;
        let per_s = requests * 1e6 / outcome.results["elapsed_us"];
        let skipped = &self.site.skipped;
        let results = [
            ("requests_per_s", per_s),
            ("bytes_per_request", bytes as f64 / requests),
            ("log_lines_skipped", skipped.count as f64),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        if let Some((line, _)) = skipped.first {
            outcome.results.insert("log_first_skipped_line".into(), line as f64);
        }
    }

    /// One request, from accept to close.
    fn answer(&self, user: &User<Model>, listening: Fd, buffer: Va) -> Result<(), CallError> {
        let (fd, _) = user.accept(listening).map_err(named("accept"))?;
        user.socket_names(fd).map_err(named("getsockname"))?;
        user.set_socket_option(fd, SocketOption::NoDelay(true)).map_err(named("setsockopt"))?;
        for _ in 0..2 {
            user.null_call().map_err(named("fcntl"))?;
        }
        let Some(file) = self.heard(user, fd, buffer)? else {
            self.cell.borrow_mut().damage("a request arrived that nobody made".into());
            return user.close(fd).map_err(named("close"));
        };
        self.compute(user, self.user_instructions.0 / 2);
        user.null_call().map_err(named("stat"))?;
        let opened = user.open(&name(file), OpenFlags::READ).map_err(named("open"))?;
        let len = user.file_size(opened).map_err(named("fstat"))?;
        self.say(user, fd, buffer, &header(file, len))?;
        let mut sent = 0;
        while sent < len {
            let left = (len - sent) as usize;
            let more = user.send_file(fd, opened, sent, left, SendMode::Loan).map_err(named("sendfile"))?;
            if more == 0 {
                break;
            }
            sent += more as u64;
        }
        self.compute(user, self.user_instructions.0.div_ceil(2));
        user.null_call().map_err(named("write to the log"))?;
        user.shutdown(fd, Shutdown::Send).map_err(named("shutdown"))?;
        user.poll(&mut [Polled::new(fd, true, false)], None).map_err(named("poll"))?;
        while user.read(fd, buffer, BUFFER_BYTES).map_err(named("read to the end"))? > 0 {}
        user.close(opened).map_err(named("close a file"))?;
        user.close(fd).map_err(named("close"))
    }

    /// Reads a request, and takes from it which file is asked for.
    fn heard(&self, user: &User<Model>, fd: Fd, buffer: Va) -> Result<Option<u32>, CallError> {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            let len = user.read(fd, buffer + seen.len(), BUFFER_BYTES - seen.len());
            let len = len.map_err(named("read a request"))?;
            if len == 0 {
                break;
            }
            let at = seen.len();
            seen.resize(at + len, 0);
            user.load(buffer + at, &mut seen[at..]);
        }
        Ok(asked(&seen))
    }

    fn say(&self, user: &User<Model>, fd: Fd, buffer: Va, bytes: &[u8]) -> Result<(), CallError> {
        user.store(buffer, bytes);
        let mut said = 0;
        while said < bytes.len() {
            said += user.write(fd, buffer + said, bytes.len() - said).map_err(named("write a header"))?;
        }
        Ok(())
    }

    fn compute(&self, user: &User<Model>, mut instructions: u32) {
        while instructions > 0 {
            let piece = instructions.min(PIECE);
            user.compute(Instructions(piece));
            instructions -= piece;
        }
    }
}
