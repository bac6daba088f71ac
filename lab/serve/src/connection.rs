//! A connection of the machine's with a client: what has come and was not used yet, what is said, and how it ends.
//!
//! Bytes are read into the process's own memory and loaded from there, as a program on that machine would. No wait is
//! for ever: see [`Workers`](super::workers).
//!
//! A connection ends behind a whole answer or by a reset. Behind an answer the server goes on to read for a while: what
//! a client still sends would else be answered by a reset, which can reach it before the answer does (RFC 9112, 9.6).

use super::response::{Length, header};
use super::workers::{Patience, Wait, WaitError, Workers, cycles};
use pageferry_hal::{Machine as _, Va};
use pageferry_kernel::{Errno, Fd, SendMode, Shutdown, SocketOption, User};
use pageferry_model::Model;
use std::net::Ipv4Addr;

/// The longest header that is understood; and what is read or said at a time.
pub(super) const MAX_HEADER_BYTES: usize = 16 << 10;
/// How long a client may take for a header, or to begin one.
pub(super) const ASKING: Patience = Patience { ms: 15_000, pressed_ms: 3_000 };
/// How long a client may say nothing in the middle of a body.
pub(super) const SILENT: Patience = Patience { ms: 15_000, pressed_ms: 5_000 };
/// How long a client may take nothing.
const DEAF: Patience = Patience { ms: 60_000, pressed_ms: 5_000 };
/// How long a client may say nothing behind the end, and how long it may speak.
const LINGER: Patience = Patience { ms: 2_000, pressed_ms: 500 };
const MAX_LINGER: Patience = Patience { ms: 30_000, pressed_ms: 3_000 };
/// How long the server waits for memory that others have.
const SHORT_MS: u64 = 10;

/// A client, and all that a process has with it.
pub(super) struct Connection<'a> {
    pub(super) user: &'a User<Model>,
    workers: &'a Workers,
    /// The process's number among those.
    worker: usize,
    pub(super) fd: Fd,
    pub(super) from: Ipv4Addr,
    /// Memory of the process, of [`MAX_HEADER_BYTES`].
    buffer: Va,
    /// What has come and was not used yet.
    pub(super) have: Vec<u8>,
    /// The answer that was begun last.
    answer: Option<Answer>,
}

/// An answer that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Bytes that were said or sent behind the header.
    pub(super) body_bytes: u64,
    /// Nothing is missing.
    pub(super) is_whole: bool,
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        user: &'a User<Model>,
        (workers, worker): (&'a Workers, usize),
        (fd, from): (Fd, Ipv4Addr),
        buffer: Va,
    ) -> Connection<'a> {
        Connection { user, workers, worker, fd, from, buffer, have: Vec::new(), answer: None }
    }

    /// Makes a call that waits for the client.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn wait<T>(
        &self,
        patience: Patience,
        call: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, WaitError> {
        self.workers.wait(self.user, self.worker, Some(self.waits(patience)), call)
    }

    /// A wait for the client that begins now.
    pub(super) fn waits(&self, patience: Patience) -> Wait {
        Wait { since: self.user.machine().now(), patience }
    }

    /// True when the client has had all the time that it has.
    pub(super) fn is_late(&self, wait: &Wait) -> bool {
        self.workers.is_late(self.user, wait)
    }

    /// Makes a call that waits for nobody; one that a signal has ended, which was for another wait, again.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn call<T>(&self, call: impl FnMut() -> Result<T, Errno>) -> Result<T, WaitError> {
        self.workers.wait(self.user, self.worker, None, call)
    }

    /// Makes a call that waits for nobody and has to be made also when the server is to stop.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) fn surely<T>(&self, mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        loop {
            match call() {
                Err(Errno::Interrupted) => {}
                result => return result,
            }
        }
    }

    /// Reads what comes next, if it comes in time; false at the end of what the client says.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn read_more(&mut self, wait: Wait) -> Result<bool, WaitError> {
        let read = || self.user.read(self.fd, self.buffer, MAX_HEADER_BYTES);
        let len = self.workers.wait(self.user, self.worker, Some(wait), read)?;
        let at = self.have.len();
        self.have.resize(at + len, 0);
        self.user.load(self.buffer, &mut self.have[at..]);
        Ok(len > 0)
    }

    /// Says an answer, or the header of one of which a body follows. With that, its end is to be told
    /// ([`Connection::end_answer`]): the connection does not end before, but by a reset.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn begin_answer(
        &mut self,
        status: u16,
        fields: &str,
        length: Length,
        keep: bool,
    ) -> Result<(), WaitError> {
        self.answer = Some(Answer { status, body_bytes: 0, is_whole: false });
        self.say(header(status, fields, length, keep).as_bytes())
    }

    /// Says bytes of the body of an answer that was begun.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn say_body(&mut self, bytes: &[u8]) -> Result<(), WaitError> {
        for piece in bytes.chunks(MAX_HEADER_BYTES) {
            self.say(piece)?;
            self.was_sent(piece.len());
        }
        Ok(())
    }

    /// Sends up to `len` bytes of a file as the body of an answer that was begun, from byte `at` on; how many there
    /// were.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn send_file(
        &mut self,
        file: Fd,
        at: u64,
        len: usize,
        mode: SendMode,
    ) -> Result<usize, WaitError> {
        let sent = self.patiently(|| self.user.send_file(self.fd, file, at, len, mode))?;
        self.was_sent(sent);
        Ok(sent)
    }

    fn was_sent(&mut self, len: usize) {
        if let Some(answer) = &mut self.answer {
            answer.body_bytes += len as u64;
        }
    }

    /// The answer that was begun is whole.
    pub(super) fn end_answer(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.is_whole = true;
        }
    }

    /// The answer to the last request, if one was begun. One that is not whole stays: the connection has to end for it.
    pub(super) fn take_answer(&mut self) -> Option<Answer> {
        let answer = self.answer;
        self.answer.take_if(|answer| answer.is_whole);
        answer
    }

    /// Says something.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn say(&self, text: &[u8]) -> Result<(), WaitError> {
        for piece in text.chunks(MAX_HEADER_BYTES) {
            self.user.store(self.buffer, piece);
            let mut done = 0;
            while done < piece.len() {
                let left = piece.len() - done;
                done += self.patiently(|| self.user.write(self.fd, self.buffer + done, left))?;
            }
        }
        Ok(())
    }

    /// Makes a call that sends something. Where memory is short it waits for what others have, as for the client.
    fn patiently(&self, mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, WaitError> {
        let short = cycles(self.user, SHORT_MS);
        for _ in 0..DEAF.ms / SHORT_MS {
            match self.wait(DEAF, &mut call) {
                Err(WaitError::Failed(Errno::NoMemory)) => {
                    self.wait(DEAF, || self.user.sleep_for(short))?;
                }
                result => return result,
            }
        }
        Err(WaitError::TimedOut)
    }

    /// Ends what the server says, and throws away what still comes.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn linger(&mut self) -> Result<(), WaitError> {
        self.have.clear();
        self.call(|| self.user.shutdown(self.fd, Shutdown::Send))?;
        let whole = self.waits(MAX_LINGER);
        while self.read_more(self.waits(LINGER))? && !self.is_late(&whole) {
            self.have.clear();
        }
        Ok(())
    }

    /// Closes the connection: an answer that is not whole ends by a reset.
    pub(super) fn close(self) {
        if self.answer.is_some_and(|answer| !answer.is_whole) {
            let _ = self.user.set_socket_option(self.fd, SocketOption::ResetOnClose(true));
        }
        let _ = self.user.close(self.fd);
    }
}
