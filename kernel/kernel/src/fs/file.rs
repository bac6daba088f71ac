//! Descriptors: a process's small numbers for its open files.
//!
//! # What it holds
//! An open [`File`] is shared by all descriptors that fork made of one, in any process; with the last descriptor what
//! is behind it is released. What that is, a pipe's end, a socket, a file on the disk, a device, a [`FileOps`] hides:
//! each kind is in the folder of what it is. A [`FileTable`] belongs to one process, whose threads change it: its own,
//! and those that are inside for others ([`crate::ispc`]).
//!
//! # Locks
//! The table's (class `Process`), held for a look-up only.
//!
//! # What can fail
//! A look-up; the table may be full. All else is what the kinds of files answer.

use super::Regular;
use super::cursor::Cursor;
use crate::net::{InetOps, Socket};
use crate::proc::Syscall;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, Fd, Readiness, ReceiveMode, Received, SendMode};
use pageferry_hal::{Machine, Prot, Va};
use pageferry_vm::{MapAddr, PushDown};

/// Descriptors of one process.
const MAX_FILES: usize = 256;

/// What can be done with an open file of one kind. The defaults are for a kind that lacks an operation:
/// [`Errno::BadFd`], as for a descriptor that is not open for it. [`File`] has tested, before it asks a kind to read or
/// write, that the file is open for that and that the buffer lies within user space.
///
/// # Locks
/// Operations may sleep, and take locks from class `Process` on: no lock is held before and after.
pub(crate) trait FileOps<M: Machine> {
    /// Its place and its rights, for a file that has them.
    fn cursor(&self) -> Option<&Cursor<M>> {
        None
    }

    /// It is open for reading.
    fn is_readable(&self) -> bool {
        self.cursor().is_none_or(|cursor| cursor.rights.readable)
    }

    /// It is open for writing.
    fn is_writable(&self) -> bool {
        self.cursor().is_none_or(|cursor| cursor.rights.writable)
    }

    /// Reads up to `len_bytes` by copy.
    fn read(
        &self,
        _call: &Syscall<'_, M>,
        _to: Va,
        _len_bytes: usize,
        _nonblocking: bool,
    ) -> Result<usize, Errno> {
        Err(Errno::BadFd)
    }

    /// Reads up to `len_bytes` by transfer, or as is cheaper.
    fn read_transfer(
        &self,
        _call: &Syscall<'_, M>,
        _mode: ReceiveMode,
        _at: Option<Va>,
        _len_bytes: usize,
        _nonblocking: bool,
    ) -> Result<Received, Errno> {
        Err(Errno::BadFd)
    }

    /// Writes `len_bytes`, by copy or otherwise.
    fn write(
        &self,
        _call: &Syscall<'_, M>,
        _from: Va,
        _len_bytes: usize,
        _mode: SendMode,
        _nonblocking: bool,
    ) -> Result<usize, Errno> {
        Err(Errno::BadFd)
    }

    /// Reads up to `len_bytes` from byte `offset` on, wherever the next read begins.
    fn read_at(
        &self,
        _call: &Syscall<'_, M>,
        _offset: u64,
        _to: Va,
        _len_bytes: usize,
    ) -> Result<usize, Errno> {
        Err(Errno::NotSupported)
    }

    /// Writes `len_bytes` from byte `offset` on, wherever the next write begins.
    fn write_at(
        &self,
        _call: &Syscall<'_, M>,
        _offset: u64,
        _from: Va,
        _len_bytes: usize,
    ) -> Result<usize, Errno> {
        Err(Errno::NotSupported)
    }

    /// Sets where the next read or write begins.
    fn seek(&self, _call: &Syscall<'_, M>, to: u64) -> Result<(), Errno> {
        self.cursor().map(|cursor| cursor.seek(to)).ok_or(Errno::BadFd)
    }

    /// The length in bytes.
    fn size_bytes(&self, _call: &Syscall<'_, M>) -> Result<u64, Errno> {
        Err(Errno::BadFd)
    }

    /// Cuts the file, or lets it grow by zeros.
    fn truncate(&self, _call: &Syscall<'_, M>, _size_bytes: u64) -> Result<(), Errno> {
        Err(Errno::BadFd)
    }

    /// Writes dirty pages to the disk, and sleeps until they are there.
    fn sync(&self, _call: &Syscall<'_, M>) -> Result<(), Errno> {
        Err(Errno::BadFd)
    }

    /// Maps `len_bytes` from byte `offset` on, shared or private.
    fn map(
        &self,
        _call: &Syscall<'_, M>,
        _offset: u64,
        _place: MapAddr,
        _len_bytes: usize,
        _prot: Prot,
        _shared: bool,
    ) -> Result<Va, Errno> {
        Err(Errno::BadFd)
    }

    /// Makes what a private mapping of the file has of its own the file's.
    fn push_down(
        &self,
        _call: &Syscall<'_, M>,
        _at: Va,
        _len_bytes: usize,
        _how: PushDown,
    ) -> Result<usize, Errno> {
        Err(Errno::BadFd)
    }

    /// Calls `work` with the kernel address of the file's first page, of which so many bytes are the file's; for exec,
    /// which any CPU may go on with.
    fn with_header(
        &self,
        _call: &Syscall<'_, M>,
        _work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        Err(Errno::NotExecutable)
    }

    /// What it is ready for: of most kinds, anything at any time.
    fn readiness(&self, _call: &Syscall<'_, M>) -> Readiness {
        Readiness { readable: self.is_readable(), writable: self.is_writable(), hung_up: false }
    }

    /// The file on the disk that this is, if it is one.
    fn as_regular(&self) -> Option<&Regular<M>> {
        None
    }

    /// The Internet socket that this is, if it is one.
    fn as_inet(&self) -> Option<&dyn InetOps<M>> {
        None
    }

    /// The connected socket that this is, if it is one.
    fn as_socket(&self) -> Option<&Socket<M>> {
        None
    }

    /// The last descriptor is gone: closes what is behind the file.
    fn release(self: Box<Self>, call: &Syscall<'_, M>);
}

/// An open file: what is behind it, and how its descriptors use that.
pub(crate) struct File<M: Machine> {
    ops: Box<dyn FileOps<M>>,
    /// Calls fail instead of sleeping.
    nonblocking: AtomicBool,
}

impl<M: Machine> File<M> {
    pub(crate) fn new(ops: impl FileOps<M> + 'static) -> File<M> {
        File { ops: Box::new(ops), nonblocking: AtomicBool::new(false) }
    }

    pub(crate) fn ops(&self) -> &dyn FileOps<M> {
        &*self.ops
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    pub(crate) fn nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Tests what every kind of file asks of a call: that the file is open for it, then that the buffer, if there is
    /// one, lies within user space.
    fn ready(is_open: bool, call: &Syscall<'_, M>, at: Option<Va>, len_bytes: usize) -> Result<(), Errno> {
        if !is_open {
            return Err(Errno::BadFd);
        }
        at.map_or(Ok(()), |at| call.check_buffer(at, len_bytes))
    }

    /// Reads by copy. Errors are those of what is read.
    pub(crate) fn read(&self, call: &Syscall<'_, M>, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        Self::ready(self.ops.is_readable(), call, Some(to), len_bytes)?;
        self.ops.read(call, to, len_bytes, self.nonblocking())
    }

    /// Reads by transfer, or as is cheaper. Errors are those of what is read.
    pub(crate) fn read_transfer(
        &self,
        call: &Syscall<'_, M>,
        mode: ReceiveMode,
        at: Option<Va>,
        len_bytes: usize,
    ) -> Result<Received, Errno> {
        Self::ready(self.ops.is_readable(), call, at, len_bytes)?;
        self.ops.read_transfer(call, mode, at, len_bytes, self.nonblocking())
    }

    /// Writes. Errors are those of what is written to.
    pub(crate) fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
    ) -> Result<usize, Errno> {
        Self::ready(self.ops.is_writable(), call, Some(from), len_bytes)?;
        self.ops.write(call, from, len_bytes, mode, self.nonblocking())
    }

    /// Reads from byte `offset` on. Errors are those of what is read.
    pub(crate) fn read_at(
        &self,
        call: &Syscall<'_, M>,
        offset: u64,
        to: Va,
        len_bytes: usize,
    ) -> Result<usize, Errno> {
        Self::ready(self.ops.is_readable(), call, Some(to), len_bytes)?;
        self.ops.read_at(call, offset, to, len_bytes)
    }

    /// Writes from byte `offset` on. Errors are those of what is written to.
    pub(crate) fn write_at(
        &self,
        call: &Syscall<'_, M>,
        offset: u64,
        from: Va,
        len_bytes: usize,
    ) -> Result<usize, Errno> {
        Self::ready(self.ops.is_writable(), call, Some(from), len_bytes)?;
        self.ops.write_at(call, offset, from, len_bytes)
    }

    /// Gives up a descriptor's share of an open file; the last one releases what is behind it.
    pub(crate) fn close(self: Arc<Self>, call: &Syscall<'_, M>) {
        if let Some(file) = Arc::into_inner(self) {
            file.ops.release(call);
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

    /// Gives `file` the lowest free number; the caller has tested [`FileTable::has_room`]. (A call of another thread
    /// inside the process that tests at the same time may find room for the same one: then there is one more.)
    pub(crate) fn insert(&mut self, file: File<M>) -> Fd {
        self.share(Arc::new(file))
    }

    /// Gives an open file the lowest free number, beside those that it has; as [`FileTable::insert`].
    pub(crate) fn share(&mut self, file: Arc<File<M>>) -> Fd {
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
    pub(crate) fn remove(&mut self, fd: Fd) -> Result<Arc<File<M>>, Errno> {
        self.open.get_mut(fd.0 as usize).and_then(Option::take).ok_or(Errno::BadFd)
    }

    /// Takes all descriptors out, in order of their numbers.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<File<M>>> {
        core::mem::take(&mut self.open).into_iter().flatten().collect()
    }
}
