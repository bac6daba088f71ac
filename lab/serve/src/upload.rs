//! Uploads (`PUT`): the body of a request becomes a file.
//!
//! By *copy*, bytes go from the socket into a buffer of the process, and from there into the file by `write`. By
//! *transfer*, the process has the file mapped privately, a window at a time, and receives into that: pages of the card
//! that begin where a page of the file does become the process's by a flip of the translation (page-flip paper, 3), the
//! rest is copied; and then what the window has of its own goes down to the file, the pages as they are
//! ([`User::push_down`]; UVM paper, 4.2.2). Which pages flip is decided by how a client sends: its segments must hold
//! whole pages, so the path must take frames larger than a page, and the body should begin in a segment of its own, as
//! it does from a client that waits for `100 Continue`. By *auto* the kernel decides run by run, and a window without a
//! page that was flipped is the last that is received like this: where nothing flips, a private mapping only costs
//! faults.
//!
//! The file has a number for a name until it is whole; then it takes the path over. A client that goes away midway
//! leaves nothing.
//!
//! With a directory for them, uploads are written to the host as well, to a temporary file that gets its name when it
//! is whole.

use super::body::{BodyError, BodyReader};
use super::conditional::{Verdict, verdict};
use super::connection::{Connection, SILENT};
use super::http::Server;
use super::kept::{HostFile, KeepError};
use super::request::{Body, Request};
use super::response::Length;
use super::site::{Page, SitePath};
use super::target::Target;
use super::workers::WaitError;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, ReceiveMode, User};
use pageferry_lab::LabError;
use pageferry_lab::kit::{bytes_behind, receive_by, room_for};
use pageferry_model::Model;
use pageferry_vm::{Inherit, MapAddr, PushDown};

/// Bytes that are received before they are handed to the file.
const WINDOW_BYTES: usize = 64 * PAGE_SIZE;

/// Why a body that was begun is not taken.
enum UploadError {
    /// The connection is gone: there is none to be told.
    Wait(WaitError),
    /// The client is told by this status.
    Refused(u16),
    /// It cannot be kept on the host.
    Host(LabError),
}

impl From<WaitError> for UploadError {
    fn from(gone: WaitError) -> UploadError {
        match gone {
            WaitError::Failed(Errno::NoSpace | Errno::NoMemory) => UploadError::Refused(507),
            WaitError::TimedOut => UploadError::Refused(408),
            gone => UploadError::Wait(gone),
        }
    }
}

impl From<Errno> for UploadError {
    fn from(errno: Errno) -> UploadError {
        WaitError::Failed(errno).into()
    }
}

impl From<BodyError> for UploadError {
    fn from(why: BodyError) -> UploadError {
        match why {
            BodyError::Wait(gone) => gone.into(),
            BodyError::Ended | BodyError::Malformed => UploadError::Refused(400),
        }
    }
}

/// A body on its way into a file.
struct Upload<'a, 'c> {
    server: &'a Server,
    client: &'a mut Connection<'c>,
    user: &'c User<Model>,
    file: Fd,
    /// How it is received from here on.
    mode: ReceiveMode,
    done: u64,
    /// What is received by copy comes here, window after window.
    buffer: Option<Va>,
    host: Option<HostFile>,
}

impl Server {
    /// Answers a `PUT`; whether the connection is kept.
    pub(super) fn upload(&self, client: &mut Connection<'_>, request: &Request) -> Result<bool, WaitError> {
        let path = match self.acceptable(client.user, request) {
            Ok(path) => path,
            Err(status) => return self.refuse(client, status, false),
        };
        let is_awaited = request.expects_to_go_on && client.have.is_empty();
        if is_awaited && !BodyReader::new(request.body).is_over() {
            client.say(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let status = match self.take(client, &path, request.body) {
            Ok((page, is_new)) => {
                let (status, length) = if is_new { (201, Length::Bytes(0)) } else { (204, Length::Nothing) };
                let tag = format!("ETag: {}\r\n", page.tag);
                client.begin_answer(status, &tag, length, request.keep)?;
                client.end_answer();
                return Ok(request.keep);
            }
            Err(UploadError::Wait(gone)) => return Err(gone),
            Err(UploadError::Refused(status)) => status,
            Err(UploadError::Host(error)) => {
                self.host_failed(&error);
                500
            }
        };
        self.refuse(client, status, false)
    }

    /// The path that a body can be put at, or by which status it is refused.
    fn acceptable(&self, user: &User<Model>, request: &Request) -> Result<SitePath, u16> {
        let (path, has_slash) = match &request.target {
            Target::Path(path, has_slash) => (path, *has_slash),
            _ => return Err(403),
        };
        // A part, or bytes that mean others (RFC 9110, 14.5 and 8.4).
        if request.fields.has("content-range") {
            return Err(400);
        }
        if request.fields.has("content-encoding") && !request.fields.lists("content-encoding", "identity") {
            return Err(415);
        }
        let len = match request.body {
            Body::None => return Err(411),
            Body::Bytes(len) => len,
            Body::Chunked => 0,
        };
        let path = self.free_path(path, has_slash, request)?;
        let bytes = usize::try_from(len).ok().and_then(|len| len.checked_add(WINDOW_BYTES));
        bytes.and_then(|bytes| room_for(user, bytes).ok()).ok_or(507_u16)?;
        Ok(path)
    }

    /// The path that a body would be put at, if nothing is in its way and the conditions are met; or by which status it
    /// is refused. The site is let go of before the kernel is asked for anything: others would find it in use.
    fn free_path(&self, path: &[u8], has_slash: bool, request: &Request) -> Result<SitePath, u16> {
        let site = self.site.borrow();
        let path = site.resolve(path);
        if has_slash || site.is_in_the_way(&path) {
            return Err(409);
        }
        match verdict(&request.fields, false, site.page(&path).map(Page::validators)) {
            Verdict::Met => Ok(path),
            _ => Err(412),
        }
    }

    /// Takes a body and puts it at `path`. What is there now, and whether nothing was before.
    fn take(
        &self,
        client: &mut Connection<'_>,
        path: &[u8],
        body: Body,
    ) -> Result<(Page, bool), UploadError> {
        let name = self.site.borrow_mut().next_file().ok_or(UploadError::Refused(507))?;
        let taken = self.take_into(&name, client, path, body);
        let gone = match &taken {
            Err(_) => Some(name),
            Ok((_, before)) => before.as_ref().map(|before| before.file.clone()),
        };
        if let Some(gone) = gone {
            let _ = client.surely(|| client.user.unlink(&gone));
            self.site.borrow_mut().give_back(&gone);
        }
        taken.map(|(page, before)| (page, before.is_none()))
    }

    /// Takes a body into the file `name`, and puts that at `path`. What is there now, and what was before.
    fn take_into(
        &self,
        name: &str,
        client: &mut Connection<'_>,
        path: &[u8],
        body: Body,
    ) -> Result<(Page, Option<Page>), UploadError> {
        let host = match self.keeper.as_ref().map(|keeper| keeper.begin(path)) {
            None => None,
            Some(Ok(kept)) => Some(kept),
            Some(Err(KeepError::InTheWay)) => return Err(UploadError::Refused(409)),
            Some(Err(KeepError::Failed(error))) => return Err(UploadError::Host(error)),
        };
        let user = client.user;
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = client.call(|| user.open(name, flags))?;
        let mode = self.service.receive;
        let mut upload = Upload { server: self, client, user, file, mode, done: 0, buffer: None, host };
        let taken = match body {
            Body::None => Ok(()),
            Body::Bytes(len) => upload.take(len),
            Body::Chunked => upload.take_chunks(),
        };
        let (len, host, buffer) = (upload.done, upload.host.take(), upload.buffer);
        if let Some(buffer) = buffer {
            client.surely(|| user.unmap(buffer, WINDOW_BYTES))?;
        }
        let closed = client.surely(|| user.close(file));
        taken?;
        closed?;
        // From here on nothing waits: what is seen now is so until the path is taken.
        let mut site = self.site.borrow_mut();
        if site.is_in_the_way(path) {
            return Err(UploadError::Refused(409));
        }
        host.map_or(Ok(()), HostFile::commit).map_err(UploadError::Host)?;
        Ok(site.put(path, name, len))
    }

    /// Keeps the first thing that could not be written to the host, to be told at the end.
    fn host_failed(&self, error: &LabError) {
        self.state.borrow_mut().host_failed.get_or_insert_with(|| error.to_string());
    }
}

impl Upload<'_, '_> {
    /// Takes a body of `len` bytes.
    fn take(&mut self, len: u64) -> Result<(), UploadError> {
        self.client.call(|| self.user.truncate(self.file, len))?;
        while self.done < len {
            let window = usize::try_from(len - self.done).unwrap_or(WINDOW_BYTES).min(WINDOW_BYTES);
            if self.mode == ReceiveMode::Copy {
                self.copy(window)?;
            } else {
                self.take_pages(window)?;
            }
            self.was_taken(window);
        }
        Ok(())
    }

    /// Takes a body in chunks, by copy: where one ends is not known before it is there.
    fn take_chunks(&mut self) -> Result<(), UploadError> {
        self.client.call(|| self.user.truncate(self.file, 0))?;
        let mut body = BodyReader::new(Body::Chunked);
        loop {
            let bytes = body.next(self.client, WINDOW_BYTES)?;
            if bytes.is_empty() {
                return Ok(());
            }
            room_for(self.user, bytes.len() + WINDOW_BYTES).map_err(|_| UploadError::Refused(507))?;
            let buffer = self.buffer()?;
            self.user.store(buffer, &bytes);
            self.keep(&bytes)?;
            self.write(buffer, bytes.len())?;
            self.was_taken(bytes.len());
        }
    }

    fn was_taken(&mut self, len: usize) {
        self.done += len as u64;
        self.server.state.borrow_mut().uploaded_bytes += len as u64;
    }

    /// Memory of the process, of a window.
    fn buffer(&mut self) -> Result<Va, UploadError> {
        match self.buffer {
            Some(buffer) => Ok(buffer),
            None => {
                let map = || self.user.map(WINDOW_BYTES, Prot::RW, Inherit::Copy);
                Ok(*self.buffer.insert(self.client.call(map)?))
            }
        }
    }

    /// Receives a window into memory of the process and writes it to the file.
    fn copy(&mut self, len: usize) -> Result<(), UploadError> {
        let buffer = self.buffer()?;
        self.fill(buffer, len)?;
        self.write(buffer, len)
    }

    /// Receives a window into a private mapping of the file, and hands down the pages that this has then. Where the
    /// kernel is to choose and pages do not come, or a step is refused, it is copied from here on.
    fn take_pages(&mut self, len: usize) -> Result<(), UploadError> {
        let (user, file, at) = (self.user, self.file, self.done);
        let map = || user.map_file(file, at, MapAddr::Anywhere, len, Prot::RW, false);
        let window = match self.client.call(map) {
            Ok(window) => window,
            Err(refused) => {
                self.or_copy(refused)?;
                return self.copy(len);
            }
        };
        let taken = self.fill(window, len).and_then(|pages| {
            if !pages && self.mode == ReceiveMode::Auto {
                self.mode = ReceiveMode::Copy;
            }
            match self.client.call(|| user.push_down(file, window, len, PushDown::Give)) {
                Ok(_) => Ok(()),
                // A page is on its way to the disk: the bytes go where it stays.
                Err(WaitError::Failed(Errno::Busy)) => self.write(window, len),
                Err(refused) => {
                    self.or_copy(refused)?;
                    self.write(window, len)
                }
            }
        });
        let unmapped = self.client.surely(|| user.unmap(window, len.next_multiple_of(PAGE_SIZE)));
        taken.and(unmapped.map_err(UploadError::from))
    }

    /// A way is refused: where the kernel was to choose it is copied from here on.
    ///
    /// # Errors
    /// Elsewhere, and where the connection is at fault: why.
    fn or_copy(&mut self, refused: WaitError) -> Result<(), UploadError> {
        match refused {
            WaitError::Failed(_) if self.server.service.receive == ReceiveMode::Auto => {
                self.mode = ReceiveMode::Copy;
                Ok(())
            }
            gone => Err(gone.into()),
        }
    }

    /// Fills `len` bytes at `at` with what comes. True when pages came.
    fn fill(&mut self, at: Va, len: usize) -> Result<bool, UploadError> {
        let user = self.user;
        let first: Vec<u8> = self.client.have.drain(..self.client.have.len().min(len)).collect();
        user.store(at, &first);
        let (mut done, mut pages) = (first.len(), false);
        while done < len {
            let (fd, mode) = (self.client.fd, self.mode);
            match self.client.wait(SILENT, || receive_by(user, fd, at + done, len - done, mode)) {
                Ok((0, _)) => return Err(UploadError::Refused(400)),
                Ok((got, flipped)) => {
                    done += got;
                    pages |= flipped;
                }
                Err(refused) if mode != ReceiveMode::Copy => self.or_copy(refused)?,
                Err(gone) => return Err(gone.into()),
            }
        }
        if self.host.is_some() {
            let bytes = bytes_behind(user, &self.server.model, at, len);
            self.keep(&bytes)?;
        }
        Ok(pages)
    }

    /// Writes bytes to the host, if they are kept there.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        let kept = self.host.as_mut().map(|host| host.write(bytes));
        kept.unwrap_or(Ok(())).map_err(UploadError::Host)
    }

    fn write(&self, from: Va, len: usize) -> Result<(), UploadError> {
        let (user, file) = (self.user, self.file);
        self.client.call(|| user.seek(file, self.done))?;
        let mut done = 0;
        while done < len {
            done += self.client.call(|| user.write(file, from + done, len - done))?;
        }
        Ok(())
    }
}
