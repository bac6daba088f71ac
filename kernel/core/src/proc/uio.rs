//! A buffer of a process on its way through a call (4.4BSD, `struct uio`): one value from the system call to the copy.
//!
//! # What it holds
//! Where the buffer is and which way bytes go; how far they have come; how they are to go, by copy or by pages; whether
//! the call may wait; and, for a file, from which byte on. The call that makes it owns it, and every floor below moves
//! it on by what that floor has done. So a call that fails midway says what it did: [`Uio::done`].
//!
//! # Locks
//! None.
//!
//! # What can fail
//! Nothing here. What may not wait, or wants what its buffer cannot have, is told by those who move bytes.

use pageferry_abi::{Errno, ReceiveMode, Received, SendMode, ShownPages};
use pageferry_hal::{PAGE_SIZE, Va};

/// Which way bytes go (`enum uio_rw`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UioRw {
    /// From the kernel to the buffer.
    Read,
    /// From the buffer to the kernel.
    Write,
}

/// Whether a call waits for what is not there: data, space, memory (`M_WAITOK`, `M_NOWAIT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFlag {
    /// It sleeps until it is there.
    WaitOk,
    /// It fails with `WouldBlock`, or with what it has.
    NoWait,
}

impl WaitFlag {
    /// The call fails instead of sleeping.
    pub fn is_no_wait(self) -> bool {
        self == WaitFlag::NoWait
    }
}

/// How bytes are to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UioMode {
    /// By copy.
    Copy,
    /// By loan into the kernel, by transfer out of it.
    Pages,
    /// By whichever is cheaper.
    Auto,
    /// Into the kernel only: pages are wired where they are.
    Pinned,
    /// Out of the kernel only: pages are shown in a window, and what fills none stays where it is.
    Shown,
    /// Out of the kernel only: what is in a receive area stays there, and all else is copied to it.
    Placed,
    /// Out of the kernel only: nowhere.
    Discarded,
}

/// A buffer on its way, from the system call to the copy: where it is, how far it has come, and how it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uio {
    rw: UioRw,
    /// Where it begins; nothing for a transfer to an address that the kernel chooses.
    base: Option<Va>,
    len: usize,
    done: usize,
    mode: UioMode,
    /// Whether the call waits.
    pub wait: WaitFlag,
    /// The byte of the file that the first one is, and whether the call says so itself (`pread`) or the open file does.
    offset: u64,
    positional: bool,
    /// Of what came: pages that were the kernel's, and pages that are others' too.
    donated_pages: usize,
    lent_pages: usize,
    /// Of what stays: bytes before the next page that can be shown.
    copy_bytes: usize,
}

impl Uio {
    fn new(rw: UioRw, base: Option<Va>, len: usize, mode: UioMode) -> Uio {
        let wait = WaitFlag::WaitOk;
        let (offset, positional) = (0, false);
        let (donated_pages, lent_pages, copy_bytes) = (0, 0, 0);
        Uio { rw, base, len, done: 0, mode, wait, offset, positional, donated_pages, lent_pages, copy_bytes }
    }

    /// A buffer of `len` bytes at `to` that is to be filled by copy.
    pub fn read(to: Va, len: usize) -> Uio {
        Uio::new(UioRw::Read, Some(to), len, UioMode::Copy)
    }

    /// A buffer that is to be filled, in its pages or with other pages in place of them, or somewhere else.
    pub fn receive(at: Option<Va>, len: usize, mode: ReceiveMode) -> Uio {
        let mode = match mode {
            ReceiveMode::Copy => UioMode::Copy,
            ReceiveMode::Transfer => UioMode::Pages,
            ReceiveMode::Auto => UioMode::Auto,
        };
        Uio::new(UioRw::Read, at, len, mode)
    }

    /// A part of a window, of `len` bytes, that pages are to be shown in.
    pub fn show(at: Va, len: usize) -> Uio {
        Uio::new(UioRw::Read, Some(at), len, UioMode::Shown)
    }

    /// What comes next, up to `len` bytes, in a receive area.
    pub fn place(len: usize) -> Uio {
        Uio::new(UioRw::Read, None, len, UioMode::Placed)
    }

    /// What comes next, up to `len` bytes, is to be thrown away.
    pub fn discard(len: usize) -> Uio {
        Uio::new(UioRw::Read, None, len, UioMode::Discarded)
    }

    /// A buffer of `len` bytes at `from` that is to be taken.
    pub fn write(from: Va, len: usize, mode: SendMode) -> Uio {
        let mode = match mode {
            SendMode::Copy => UioMode::Copy,
            SendMode::Loan => UioMode::Pages,
            SendMode::Auto => UioMode::Auto,
            SendMode::Pin => UioMode::Pinned,
        };
        Uio::new(UioRw::Write, Some(from), len, mode)
    }

    /// The same, for the file from byte `offset` on, wherever the open file is.
    pub fn at_offset(self, offset: u64) -> Uio {
        Uio { offset, positional: true, ..self }
    }

    /// The same, for a call that waits or does not.
    pub fn waiting(self, wait: WaitFlag) -> Uio {
        Uio { wait, ..self }
    }

    /// What comes next of it, up to `max` bytes, as a buffer of its own at its byte of the file.
    pub(crate) fn part(&self, max: usize) -> Uio {
        let len = self.left().min(max);
        Uio { base: Some(self.at()), len, done: 0, offset: self.offset(), positional: true, ..*self }
    }

    // ------------------------------------------------------------------------------------------- where it is

    pub(crate) fn rw(&self) -> UioRw {
        self.rw
    }

    /// How its bytes are to go.
    pub fn mode(&self) -> UioMode {
        self.mode
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The call is about no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that have moved.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Bytes that have not (`uio_resid`).
    pub fn left(&self) -> usize {
        self.len - self.done
    }

    /// Its beginning, if it has one yet.
    pub fn base(&self) -> Option<Va> {
        self.base
    }

    /// Where the next byte comes from or goes to.
    pub fn at(&self) -> Va {
        self.base.unwrap_or_default() + self.done
    }

    /// The call itself says which bytes of a file it is about.
    pub fn is_positional(&self) -> bool {
        self.positional
    }

    /// The byte of the file that comes next (`uio_offset`).
    pub fn offset(&self) -> u64 {
        self.offset.saturating_add(self.done as u64)
    }

    /// What came, for its receiver. Nothing came is nowhere.
    pub fn received(&self) -> Received {
        if self.done == 0 {
            return Received::default();
        }
        Received {
            at: self.base.unwrap_or_default(),
            len_bytes: self.done,
            donated_pages: self.donated_pages,
            lent_pages: self.lent_pages,
        }
    }

    /// What a window shows, for its owner.
    pub fn shown(&self) -> ShownPages {
        ShownPages { len_bytes: self.done, copy_bytes: self.copy_bytes }
    }

    /// What the call comes to that ends with `result`: see [`outcome`].
    ///
    /// # Errors
    /// That of `result`.
    pub fn outcome(&self, result: Result<(), Errno>) -> Result<usize, Errno> {
        outcome(self.rw, self.done, result)
    }

    // ------------------------------------------------------------------------------------------- moving on

    /// `len` bytes more have moved.
    pub fn advance(&mut self, len: usize) {
        self.done += len;
        assert!(self.done <= self.len, "more bytes move than were asked for");
    }

    /// All behind the first `done` bytes have not moved after all.
    pub fn take_back(&mut self, done: usize) {
        assert!(done <= self.done, "bytes are taken back that have not moved");
        self.done = done;
    }

    /// So many bytes stay where they are before there is a page to be shown.
    pub fn copies_first(&mut self, bytes: usize) {
        self.copy_bytes = bytes;
    }

    /// Its bytes go by copy, whatever was asked for.
    pub fn by_copy(&mut self) {
        self.mode = UioMode::Copy;
    }

    /// It begins at byte `offset` of the file, as the open file says.
    pub fn begin(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// No more bytes are there than `left` of those that have not moved.
    pub fn limit(&mut self, left: usize) {
        self.len = self.done + self.left().min(left);
    }

    /// Whole pages have come to `va`: where it is, or where it begins from now on.
    pub fn pages_came(&mut self, va: Va, len: usize, pages: PagesCame) {
        self.base.get_or_insert(va);
        match pages {
            PagesCame::Donated => self.donated_pages += len.div_ceil(PAGE_SIZE),
            PagesCame::Lent => self.lent_pages += len / PAGE_SIZE,
        }
        self.advance(len);
    }
}

/// What a call comes to that has moved `done` bytes and ends with `result`: one that has moved anything does not fail,
/// but where it wrote and nobody is left to read that.
///
/// # Errors
/// That of `result`.
pub fn outcome(rw: UioRw, done: usize, result: Result<(), Errno>) -> Result<usize, Errno> {
    match result {
        Err(e) if done == 0 || (rw == UioRw::Write && e.ends_stream()) => Err(e),
        _ => Ok(done),
    }
}

/// Whose the pages were that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagesCame {
    /// The kernel's; now they are the receiver's alone.
    Donated,
    /// They still are the sender's, or a file's, too.
    Lent,
}
