//! Descriptors: a process's small numbers for its ends of pipes and sockets.
//!
//! An open [`File`] is shared by all descriptors that fork made of one, in any process; the last one to go closes the end
//! of what is behind it. The table belongs to one process, whose only thread changes it; its lock (class `Process`) is held
//! for a look-up only.

use super::vnode::Regular;
use crate::error::Errno;
use crate::ipc::{End, Pipe};
use crate::net::{ReceiveMode, Received, SendMode, Stream};
use crate::proc::Caller;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_hal::{Machine, Va};

/// Descriptors of one process.
const MAX_FILES: usize = 256;

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fd(pub u32);

/// What is behind an open file.
pub(crate) enum Open<M: Machine> {
    /// An end of a pipe of its own kind.
    Pipe { pipe: Arc<Pipe<M>>, end: End },
    /// A connected socket: where it reads, and where it writes. The ends of a pipe do only one of both.
    Socket { receive: Option<Arc<Stream<M>>>, send: Option<Arc<Stream<M>>> },
    /// A socket of the null protocol.
    Null,
    /// A file on the disk.
    Regular(Regular<M>),
    /// The sound device.
    Audio,
}

/// An open file.
pub(crate) struct File<M: Machine> {
    pub(crate) open: Open<M>,
    /// Calls fail instead of sleeping.
    nonblocking: AtomicBool,
}

impl<M: Machine> File<M> {
    pub(crate) fn new(open: Open<M>) -> File<M> {
        File { open, nonblocking: AtomicBool::new(false) }
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    pub(crate) fn nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Reads by copy. Errors are those of what is read.
    pub(crate) fn read(&self, call: &Caller<'_, M>, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        match &self.open {
            Open::Pipe { end: End::Write, .. } | Open::Socket { receive: None, .. } => Err(Errno::BadFd),
            Open::Pipe { pipe, .. } => {
                call.check_buffer(to, len_bytes)?;
                pipe.read(call, to, len_bytes, self.nonblocking())
            }
            Open::Socket { receive: Some(stream), .. } => {
                call.check_buffer(to, len_bytes)?;
                stream.receive(call, to, len_bytes, self.nonblocking())
            }
            Open::Regular(file) => {
                call.check_buffer(to, len_bytes)?;
                file.read(call, to, len_bytes)
            }
            Open::Audio => {
                call.check_buffer(to, len_bytes)?;
                let got = call.record(ReceiveMode::Copy, Some(to), len_bytes, self.nonblocking())?;
                Ok(got.len_bytes)
            }
            Open::Null => {
                call.check_buffer(to, len_bytes)?;
                let got = call.receive_from_nobody(ReceiveMode::Copy, Some(to), len_bytes)?;
                Ok(got.len_bytes)
            }
        }
    }

    /// Reads by transfer, or as is cheaper. Errors are those of what is read.
    pub(crate) fn read_transfer(
        &self,
        call: &Caller<'_, M>,
        mode: ReceiveMode,
        at: Option<Va>,
        len_bytes: usize,
    ) -> Result<Received, Errno> {
        match &self.open {
            Open::Pipe { end: End::Write, .. } | Open::Socket { receive: None, .. } => {
                return Err(Errno::BadFd);
            }
            Open::Pipe { .. } => return Err(Errno::NotSupported),
            _ => {}
        }
        if let Some(at) = at {
            call.check_buffer(at, len_bytes)?;
        }
        match &self.open {
            Open::Socket { receive: Some(stream), .. } => {
                stream.receive_transfer(call, mode, at, len_bytes, self.nonblocking())
            }
            Open::Regular(file) => file.read_transfer(call, mode, at, len_bytes),
            Open::Audio => call.record(mode, at, len_bytes, self.nonblocking()),
            _ => call.receive_from_nobody(mode, at, len_bytes),
        }
    }

    /// Writes. Errors are those of what is written to; a pipe of its own kind knows copies only.
    pub(crate) fn write(
        &self,
        call: &Caller<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
    ) -> Result<usize, Errno> {
        match &self.open {
            Open::Pipe { end: End::Read, .. } | Open::Socket { send: None, .. } => Err(Errno::BadFd),
            Open::Pipe { .. } | Open::Regular(_) if mode != SendMode::Copy => Err(Errno::NotSupported),
            Open::Regular(file) => {
                call.check_buffer(from, len_bytes)?;
                file.write(call, from, len_bytes)
            }
            Open::Pipe { pipe, .. } => {
                call.check_buffer(from, len_bytes)?;
                pipe.write(call, from, len_bytes, self.nonblocking())
            }
            Open::Socket { send: Some(stream), .. } => {
                call.check_buffer(from, len_bytes)?;
                stream.send(call, from, len_bytes, mode, self.nonblocking())
            }
            Open::Null => {
                call.check_buffer(from, len_bytes)?;
                call.send_to_nobody(from, len_bytes, mode)
            }
            Open::Audio => {
                call.check_buffer(from, len_bytes)?;
                call.play(from, len_bytes, mode, self.nonblocking())
            }
        }
    }
}

/// A process's descriptors, by number.
pub(crate) struct FileTable<M: Machine> {
    open: Vec<Option<Arc<File<M>>>>,
}

impl<M: Machine> FileTable<M> {
    pub(crate) fn new() -> FileTable<M> {
        FileTable { open: Vec::new() }
    }

    /// The table of a forked child: the same files.
    pub(crate) fn inherit(&self) -> FileTable<M> {
        FileTable { open: self.open.clone() }
    }

    /// The file behind `fd`.
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub(crate) fn get(&self, fd: Fd) -> Result<Arc<File<M>>, Errno> {
        self.open.get(fd.0 as usize).and_then(Clone::clone).ok_or(Errno::BadFd)
    }

    /// True when `count` more descriptors fit.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.open.iter().flatten().count() + count <= MAX_FILES
    }

    /// Gives `file` the lowest free number; [`FileTable::has_room`] was asked before.
    pub(crate) fn insert(&mut self, file: File<M>) -> Fd {
        assert!(self.has_room(1), "the table of descriptors is full");
        let slot = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if slot == self.open.len() {
            self.open.push(None);
        }
        self.open[slot] = Some(Arc::new(file));
        Fd(slot as u32)
    }

    /// Takes the descriptor out of the table.
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub(crate) fn remove(&mut self, fd: Fd) -> Result<Arc<File<M>>, Errno> {
        self.open.get_mut(fd.0 as usize).and_then(Option::take).ok_or(Errno::BadFd)
    }

    /// Takes all descriptors out, in order of their numbers.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<File<M>>> {
        core::mem::take(&mut self.open).into_iter().flatten().collect()
    }
}
