//! Descriptors: a process's small numbers for its open files.
//!
//! # What it holds
//! An open [`File`] is shared by all descriptors that fork made of one, in any process; with the last descriptor what
//! is behind it is released. What that is, a pipe's end, a socket, a file on the disk, a device, is known by its
//! [operations](super::ops): each kind is in the folder of what it is. A [`FileTable`] belongs to one process, whose
//! threads change it: its own, and those that are inside for others ([`crate::ispc`]).
//!
//! # Locks
//! The table's (class `Process`), held for a look-up only.
//!
//! # What can fail
//! A look-up; the table may be full. All else is what the kinds of files answer.

use super::cursor::Rights;
use super::ops::{FileOps, MapRequest, SocketOps, VnodeOps};
use crate::proc::{Syscall, Uio, UioMode, UioRw, WaitFlag};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, Fd, Placed, Readiness, Received, ShownPages};
use pageferry_hal::{Machine, PAGE_SIZE, Prot, Va};

/// Descriptors of one process.
const MAX_FILES: usize = 256;

/// What is behind an open file (`f_type`).
enum Behind<M: Machine> {
    Vnode(Box<dyn VnodeOps<M>>),
    Socket(Box<dyn SocketOps<M>>),
    /// A pipe's end, or a device without an offset.
    Other(Box<dyn FileOps<M>>),
}

/// An open file: what is behind it, and how its descriptors use that.
pub struct File<M: Machine> {
    behind: Behind<M>,
    /// What it was opened for.
    rights: Rights,
    /// Calls fail instead of sleeping.
    nonblocking: AtomicBool,
}

impl<M: Machine> File<M> {
    fn of(behind: Behind<M>, rights: Rights) -> File<M> {
        File { behind, rights, nonblocking: AtomicBool::new(false) }
    }

    /// A pipe's end, or a device without an offset.
    pub fn new(ops: impl FileOps<M> + 'static, rights: Rights) -> File<M> {
        File::of(Behind::Other(Box::new(ops)), rights)
    }

    /// A file with bytes by number.
    pub fn vnode(ops: impl VnodeOps<M> + 'static, rights: Rights) -> File<M> {
        File::of(Behind::Vnode(Box::new(ops)), rights)
    }

    /// A socket.
    pub fn socket(ops: Box<dyn SocketOps<M>>, rights: Rights) -> File<M> {
        File::of(Behind::Socket(ops), rights)
    }

    pub(crate) fn ops(&self) -> &dyn FileOps<M> {
        match &self.behind {
            Behind::Vnode(ops) => &**ops,
            Behind::Socket(ops) => &**ops,
            Behind::Other(ops) => &**ops,
        }
    }

    /// It as a file with bytes by number.
    ///
    /// # Errors
    /// [`Errno::BadFd`], as for a descriptor that is not open for it.
    pub fn as_vnode(&self) -> Result<&dyn VnodeOps<M>, Errno> {
        match &self.behind {
            Behind::Vnode(ops) => Ok(&**ops),
            _ => Err(Errno::BadFd),
        }
    }

    /// It as a socket (`getsock`).
    ///
    /// # Errors
    /// [`Errno::NotSupported`].
    pub fn as_socket(&self) -> Result<&dyn SocketOps<M>, Errno> {
        match &self.behind {
            Behind::Socket(ops) => Ok(&**ops),
            _ => Err(Errno::NotSupported),
        }
    }

    /// What it was opened for.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Calls on it fail instead of sleeping from now on, or sleep again (`O_NONBLOCK`).
    pub fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Whether calls on it wait.
    pub fn wait(&self) -> WaitFlag {
        if self.nonblocking.load(Ordering::Relaxed) { WaitFlag::NoWait } else { WaitFlag::WaitOk }
    }

    /// What it is ready for.
    pub fn readiness(&self, call: &Syscall<'_, M>) -> Readiness {
        let mut ready = self.ops().readiness(call);
        ready.readable &= self.rights.readable;
        ready.writable &= self.rights.writable;
        ready
    }

    /// Tests what every kind of file asks of a call that moves bytes: that the file is open for it, that the buffer, if
    /// there is one, lies within user space, and that a file whose bytes have numbers is meant where numbers are given.
    fn check(&self, call: &Syscall<'_, M>, uio: &Uio) -> Result<(), Errno> {
        let is_open = match uio.rw() {
            UioRw::Read => self.rights.readable,
            UioRw::Write => self.rights.writable,
        };
        if !is_open {
            return Err(Errno::BadFd);
        }
        uio.base().map_or(Ok(()), |at| call.check_buffer(at, uio.len()))?;
        let is_vnode = matches!(self.behind, Behind::Vnode(_));
        let is_of_socket = matches!(uio.mode(), UioMode::Shown | UioMode::Placed | UioMode::Discarded);
        if uio.is_positional() && !is_vnode || is_of_socket && is_vnode {
            return Err(Errno::NotSupported);
        }
        Ok(())
    }

    /// Fills a buffer: by copy or by pages, from where the file is or from a byte on. A call that has moved anything
    /// does not fail.
    ///
    /// # Errors
    /// Those of what is read; nothing was.
    pub fn read(&self, call: &Syscall<'_, M>, uio: Uio) -> Result<Received, Errno> {
        let mut uio = uio;
        self.read_into(call, &mut uio)?;
        Ok(uio.received())
    }

    /// Shows pages of a socket in a window.
    ///
    /// # Errors
    /// Those of the socket, or [`Errno::NotSupported`]; nothing was shown.
    pub fn show(&self, call: &Syscall<'_, M>, at: Va, len: usize) -> Result<ShownPages, Errno> {
        let mut uio = Uio::show(at, len);
        self.read_into(call, &mut uio)?;
        Ok(uio.shown())
    }

    /// Receives from a socket into its receive area; first gives back what the process has at places there.
    ///
    /// # Errors
    /// Those of the socket, or [`Errno::NotSupported`]; nothing was received.
    pub fn place(&self, call: &Syscall<'_, M>, back: &[Placed], len: usize) -> Result<Vec<Placed>, Errno> {
        let mut uio = Uio::place(len).waiting(self.wait());
        self.check(call, &uio)?;
        self.as_socket()?.receive_placed(call, back, &mut uio)
    }

    /// Receives up to `len` bytes from a socket, and throws them away.
    ///
    /// # Errors
    /// Those of the socket, or [`Errno::NotSupported`]; nothing was received.
    pub fn discard(&self, call: &Syscall<'_, M>, len: usize) -> Result<usize, Errno> {
        let mut uio = Uio::discard(len);
        self.read_into(call, &mut uio)?;
        Ok(uio.done())
    }

    fn read_into(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        uio.wait = self.wait();
        self.check(call, uio)?;
        let result = self.ops().read(call, uio);
        uio.outcome(result).map(|_| ())
    }

    /// Takes a buffer, likewise. A call that has moved anything fails only if nobody is left to read it.
    ///
    /// # Errors
    /// Those of what is written to.
    pub fn write(&self, call: &Syscall<'_, M>, uio: Uio) -> Result<usize, Errno> {
        let mut uio = uio.waiting(self.wait());
        self.check(call, &uio)?;
        let result = self.ops().write(call, &mut uio);
        uio.outcome(result)
    }

    /// Maps a part of it.
    ///
    /// # Errors
    /// [`Errno::BadFd`] for what has no bytes by number; [`Errno::Access`]: it was not opened for that;
    /// [`Errno::Invalid`] for an offset within a page; those of the file.
    pub fn map(&self, call: &Syscall<'_, M>, mapping: MapRequest) -> Result<Va, Errno> {
        let vnode = self.as_vnode()?;
        if !mapping.offset.is_multiple_of(PAGE_SIZE as u64) {
            return Err(Errno::Invalid);
        }
        let mut max_prot = Prot::all();
        if mapping.shared && !self.rights.writable {
            max_prot.remove(Prot::WRITE);
        }
        if !self.rights.readable || !max_prot.contains(mapping.prot) {
            return Err(Errno::Access);
        }
        vnode.map(call, &MapRequest { max_prot, ..mapping })
    }

    /// Gives up a descriptor's share of an open file; the last one releases what is behind it.
    pub fn close(self: Arc<Self>, call: &Syscall<'_, M>) {
        let Some(file) = Arc::into_inner(self) else { return };
        match file.behind {
            Behind::Vnode(ops) => ops.release(call),
            Behind::Socket(ops) => ops.release(call),
            Behind::Other(ops) => ops.release(call),
        }
    }
}

/// A process's descriptors, by number.
pub struct FileTable<M: Machine> {
    open: Vec<Option<Arc<File<M>>>>,
}

impl<M: Machine> Default for FileTable<M> {
    fn default() -> FileTable<M> {
        FileTable::new()
    }
}

impl<M: Machine> FileTable<M> {
    /// A table without descriptors.
    pub fn new() -> FileTable<M> {
        FileTable { open: Vec::new() }
    }

    /// The table of a forked child: the same files.
    pub fn inherit(&self) -> FileTable<M> {
        FileTable { open: self.open.clone() }
    }

    /// The file behind `fd`.
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub fn get(&self, fd: Fd) -> Result<Arc<File<M>>, Errno> {
        self.open.get(fd.0 as usize).and_then(Clone::clone).ok_or(Errno::BadFd)
    }

    /// True when `count` more descriptors fit.
    pub fn has_room(&self, count: usize) -> bool {
        self.open.iter().flatten().count() + count <= MAX_FILES
    }

    /// Gives `file` the lowest free number; the caller has tested [`FileTable::has_room`]. (A call of another thread
    /// inside the process that tests at the same time may find room for the same one: then there is one more.)
    pub fn insert(&mut self, file: File<M>) -> Fd {
        self.share(Arc::new(file))
    }

    /// Gives an open file the lowest free number, beside those that it has; as [`FileTable::insert`].
    pub fn share(&mut self, file: Arc<File<M>>) -> Fd {
        let slot = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if slot == self.open.len() {
            self.open.push(None);
        }
        self.open[slot] = Some(file);
        Fd(slot as u32)
    }

    /// Takes the descriptor out of the table.
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub fn remove(&mut self, fd: Fd) -> Result<Arc<File<M>>, Errno> {
        self.open.get_mut(fd.0 as usize).and_then(Option::take).ok_or(Errno::BadFd)
    }

    /// Takes all descriptors out, in order of their numbers.
    pub fn take_all(&mut self) -> Vec<Arc<File<M>>> {
        core::mem::take(&mut self.open).into_iter().flatten().collect()
    }
}
