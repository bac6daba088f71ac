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

use super::http::Server;
use super::request::{Body, Request, name_of};
use super::site::Page;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, ReceiveMode, User};
use pageferry_lab::LabError;
use pageferry_lab::kit::{bytes_behind, receive_by, room_for};
use pageferry_lab::output::PendingFile;
use pageferry_model::Model;
use pageferry_vm::{Inherit, MapAddr, PushDown};
use std::io::{self, Write as _};
use std::path::Path;

/// Bytes that are received before they are handed to the file.
const WINDOW_BYTES: usize = 64 * PAGE_SIZE;

/// Why a body is not taken.
struct Refusal(u16, &'static str);

/// Why one that was begun is not ended.
enum UploadError {
    /// The connection is: there is none to be told.
    Connection(Errno),
    /// There is no room for it, or the host has none.
    NoRoom,
    Host(LabError),
}

impl From<Errno> for UploadError {
    fn from(errno: Errno) -> UploadError {
        match errno {
            Errno::NoSpace | Errno::NoMemory => UploadError::NoRoom,
            other => UploadError::Connection(other),
        }
    }
}

/// A body on its way into a file.
struct Upload<'a> {
    server: &'a Server,
    user: &'a User<Model>,
    from: Fd,
    file: Fd,
    /// What came with the header.
    first: Vec<u8>,
    len: u64,
    done: u64,
    /// What is received by copy comes here, window after window.
    buffer: Option<Va>,
    host: Option<PendingFile>,
}

impl Server {
    /// Answers a `PUT`, whose body begins with what is in `have` and goes on in the connection. False when the
    /// connection is over.
    pub(super) fn upload(
        &self,
        user: &User<Model>,
        fd: Fd,
        buffer: Va,
        request: &Request,
        have: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        let (path, len) = match self.acceptable(user, request) {
            Ok(found) => found,
            Err(Refusal(status, why)) => {
                self.count(status);
                let text =
                    format!("HTTP/1.1 {status} {why}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                self.say(user, fd, buffer, &text)?;
                self.linger(user, fd, buffer)?;
                return Ok(false);
            }
        };
        if request.expects_to_go_on && have.is_empty() {
            self.say(user, fd, buffer, "HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let first: Vec<u8> =
            have.drain(..have.len().min(usize::try_from(len).unwrap_or(usize::MAX))).collect();
        let taken = self.take(user, fd, &path, first, len);
        let (status, why) = match taken {
            Ok(true) => (201, "Created"),
            Ok(false) => (204, "No Content"),
            Err(UploadError::Connection(errno)) => return Err(errno),
            Err(UploadError::NoRoom) => (507, "Insufficient Storage"),
            Err(UploadError::Host(_)) => (500, "Internal Server Error"),
        };
        self.count(status);
        let whole = taken.is_ok();
        let keep = if request.keep && whole { "keep-alive" } else { "close" };
        let length = if status == 204 { "" } else { "Content-Length: 0\r\n" };
        self.say(
            user,
            fd,
            buffer,
            &format!("HTTP/1.1 {status} {why}\r\n{length}Connection: {keep}\r\n\r\n"),
        )?;
        if !whole {
            self.linger(user, fd, buffer)?;
        }
        Ok(request.keep && whole)
    }

    /// The path and the length of a body that can be taken.
    fn acceptable(&self, user: &User<Model>, request: &Request) -> Result<(String, u64), Refusal> {
        let path = name_of(&request.target).ok_or(Refusal(403, "Forbidden"))?;
        let len = match request.body {
            Body::Bytes(len) => len,
            Body::None => return Err(Refusal(411, "Length Required")),
            Body::Coded => return Err(Refusal(501, "Not Implemented")),
        };
        if request.of_a_part {
            return Err(Refusal(400, "Bad Request"));
        }
        if self.site.borrow().is_in_the_way(&path) {
            return Err(Refusal(409, "Conflict"));
        }
        let bytes = usize::try_from(len).ok().and_then(|len| len.checked_add(WINDOW_BYTES));
        match bytes.map(|bytes| room_for(user, bytes)) {
            Some(Ok(())) => Ok((path, len)),
            _ => Err(Refusal(507, "Insufficient Storage")),
        }
    }

    /// Takes a body of `len` bytes and puts it at `path`. True when nothing was there before.
    fn take(
        &self,
        user: &User<Model>,
        from: Fd,
        path: &str,
        first: Vec<u8>,
        len: u64,
    ) -> Result<bool, UploadError> {
        let name = self.site.borrow_mut().next_file().ok_or(UploadError::NoRoom)?;
        let host = match &self.service.uploads {
            Some(directory) => Some(begin(directory, path).map_err(|e| self.host_failed(e))?),
            None => None,
        };
        let file = user.open(&name, OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE)?;
        let mut upload = Upload { server: self, user, from, file, first, len, done: 0, buffer: None, host };
        let taken = upload.take();
        let taken =
            taken.and_then(|()| upload.host.map_or(Ok(()), PendingFile::commit).map_err(UploadError::Host));
        let closed = user.close(file).map_err(UploadError::from);
        if let Err(broken) = taken.and(closed) {
            let _ = user.unlink(&name);
            return Err(match broken {
                UploadError::Host(e) => self.host_failed(e),
                other => other,
            });
        }
        let before = self.site.borrow_mut().put(path, Page { file: name, len_bytes: len });
        if let Some(before) = &before {
            let _ = user.unlink(&before.file);
        }
        Ok(before.is_none())
    }

    /// Keeps the first thing that could not be written to the host, to be told at the end.
    fn host_failed(&self, e: LabError) -> UploadError {
        self.state.borrow_mut().host_failed.get_or_insert_with(|| e.to_string());
        UploadError::Host(e)
    }
}

impl Upload<'_> {
    fn take(&mut self) -> Result<(), UploadError> {
        self.user.truncate(self.file, self.len)?;
        let mut flips = self.server.service.receive != ReceiveMode::Copy;
        while self.done < self.len {
            let len = usize::try_from(self.len - self.done).unwrap_or(WINDOW_BYTES).min(WINDOW_BYTES);
            let pages = if flips { self.take_pages(len)? } else { self.copy(len)? };
            flips = flips && (pages || self.server.service.receive == ReceiveMode::Transfer);
            self.done += len as u64;
            self.server.state.borrow_mut().uploaded_bytes += len as u64;
        }
        self.buffer.map_or(Ok(()), |buffer| Ok(self.user.unmap(buffer, WINDOW_BYTES)?))
    }

    /// Receives a window into memory of the process and writes it to the file.
    fn copy(&mut self, len: usize) -> Result<bool, UploadError> {
        let user = self.user;
        let buffer = match self.buffer {
            Some(buffer) => buffer,
            None => *self.buffer.insert(user.map(WINDOW_BYTES, Prot::RW, Inherit::Copy)?),
        };
        self.fill(buffer, len, ReceiveMode::Copy)?;
        self.write(buffer, len)?;
        Ok(false)
    }

    /// Receives a window into a private mapping of the file, and hands down the pages that this has then. True when
    /// pages were received.
    fn take_pages(&mut self, len: usize) -> Result<bool, UploadError> {
        let user = self.user;
        let window = user.map_file(self.file, self.done, MapAddr::Anywhere, len, Prot::RW, false)?;
        let pages = self.fill(window, len, self.server.service.receive)?;
        match user.push_down(self.file, window, len, PushDown::Give) {
            Ok(_) => {}
            // A page is on its way to the disk: the bytes go where it stays.
            Err(Errno::Busy) => self.write(window, len)?,
            Err(e) => return Err(e.into()),
        }
        user.unmap(window, len.next_multiple_of(PAGE_SIZE))?;
        Ok(pages)
    }

    /// Fills `len` bytes at `at` with what comes. True when pages came.
    fn fill(&mut self, at: Va, len: usize, mode: ReceiveMode) -> Result<bool, UploadError> {
        let user = self.user;
        let mut done = self.first.len().min(len);
        user.store(at, &self.first[..done]);
        self.first.drain(..done);
        let mut pages = false;
        while done < len {
            if !self.server.wait_for(user, self.from)? {
                return Err(UploadError::Connection(Errno::TimedOut));
            }
            let (got, flipped) = receive_by(user, self.from, at + done, len - done, mode)?;
            if got == 0 {
                return Err(UploadError::Connection(Errno::ConnectionReset));
            }
            done += got;
            pages |= flipped;
        }
        if let Some(host) = &mut self.host {
            let bytes = bytes_behind(user, &self.server.model, at, len);
            let written = host.write_all(&bytes);
            written.map_err(|e| UploadError::Host(LabError::io("write", "an upload", e)))?;
        }
        Ok(pages)
    }

    fn write(&self, from: Va, len: usize) -> Result<(), Errno> {
        self.user.seek(self.file, self.done)?;
        let mut done = 0;
        while done < len {
            done += self.user.write(self.file, from + done, len - done)?;
        }
        Ok(())
    }
}

/// Begins the file of the host for what is uploaded to `path` below `directory`, and makes the directories that it is
/// in.
///
/// # Errors
/// When it cannot be written, is no file, or a link leads out of the directory.
fn begin(directory: &Path, path: &str) -> Result<PendingFile, LabError> {
    let refuse = |e| LabError::io("write", directory.join(path), e);
    let outside = || io::Error::new(io::ErrorKind::PermissionDenied, "a link leads out of the directory");
    let root = directory.canonicalize().map_err(refuse)?;
    let target = root.join(path);
    let parent = target.parent().unwrap_or(&root);
    let there = parent.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(&root);
    if !there.canonicalize().map_err(refuse)?.starts_with(&root) || target.is_symlink() {
        return Err(refuse(outside()));
    }
    if target.exists() && !target.is_file() {
        return Err(refuse(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")));
    }
    std::fs::create_dir_all(parent).map_err(refuse)?;
    PendingFile::create(&target)
}
