//! Descriptors: a process's small numbers for its ends of pipes.
//!
//! An open [`File`] is shared by all descriptors that fork made of one, in any process; the last one to go closes the end
//! of the pipe. The table belongs to one process, whose only thread changes it; its lock (class `Process`) is held for a
//! look-up only.

use crate::error::Errno;
use crate::pipe::{End, Pipe};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use pageferry_hal::Machine;

/// Descriptors of one process.
const MAX_FILES: usize = 256;

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fd(pub u32);

/// An open end of a pipe.
pub(crate) struct File<M: Machine> {
    pub(crate) pipe: Arc<Pipe<M>>,
    pub(crate) end: End,
    /// Calls fail instead of sleeping.
    pub(crate) nonblocking: AtomicBool,
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
