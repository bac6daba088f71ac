//! An open file of a file server: the calls of a descriptor, as requests.
//!
//! A call for more bytes than a data piece has is several requests: they are as whole as each is, and what several
//! processes do with one file may come between them.
//!
//! # Locks
//! None. Where the file is read or written next is the server's.
//!
//! # What can fail
//! What fails at the server; the caller's addresses; the server itself.

use super::super::request::{Bytes, Completion};
use super::service::FileService;
use super::words::Request;
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::{Errno, Pid};
use pageferry_core::fs::{FileOps, MapRequest, VnodeOps, map_private, show_first_page};
use pageferry_core::proc::{Syscall, Uio, UioMode};
use pageferry_hal::{Machine, PAGE_SIZE, Va};
use pageferry_ispc::FileServiceDefect;

/// See the [module](self).
pub(crate) struct ServedFile<M: Machine> {
    service: Arc<FileService<M>>,
    /// Which server has it open,
    server: Pid,
    /// as what.
    handle: u64,
}

impl<M: Machine> ServedFile<M> {
    pub(super) fn new(service: Arc<FileService<M>>, server: Pid, handle: u64) -> ServedFile<M> {
        ServedFile { service, server, handle }
    }

    fn ask(
        &self,
        call: &Syscall<'_, M>,
        request: &Request,
        bytes: Bytes<'_>,
        interruptible: bool,
    ) -> Result<Completion, Errno> {
        self.service.ask(call, Some(self.server), request, bytes, interruptible)
    }

    /// A request that moves no bytes.
    fn simply(&self, call: &Syscall<'_, M>, request: Request) -> Result<u64, Errno> {
        Ok(self.ask(call, &request, Bytes::None, true)?.answer()?.value)
    }

    /// Reads, from where the file is or from the byte that the call says on.
    fn read_bytes(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let max_bytes = self.service.config.data_pages * PAGE_SIZE;
        let positional = uio.is_positional();
        let handle = self.handle;
        while uio.left() > 0 {
            let len = max_bytes.min(uio.left());
            let request = match positional {
                true => Request::ReadAt { handle, at: uio.offset(), len },
                false => Request::Read { handle, len },
            };
            let read = self.ask(call, &request, Bytes::To(uio, len), true)?;
            let ((taken, how), got) = (read.moved, read.answer.value as usize);
            if taken < got && !positional && !self.service.has(FileServiceDefect::ReadTooFar) {
                let request = Request::Unread { handle, by: (got - taken) as u64 };
                _ = self.ask(call, &request, Bytes::None, false);
            }
            how?;
            read.answer.error.map_or(Ok(()), Err)?;
            if got < len {
                break;
            }
        }
        Ok(())
    }

    /// Writes, from where the file is or from the byte that the call says on.
    fn write_bytes(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let max_bytes = self.service.config.data_pages * PAGE_SIZE;
        let positional = uio.is_positional();
        let handle = self.handle;
        while uio.left() > 0 {
            let (before, of) = (uio.done(), uio.left());
            let len = max_bytes.min(of);
            let request = match positional {
                true => Request::WriteAt { handle, at: uio.offset(), len, of },
                false => Request::Write { handle, len, of },
            };
            let wrote = self.ask(call, &request, Bytes::From(uio, len), true);
            let wrote = wrote.inspect_err(|_| uio.take_back(before))?;
            let (given, how) = wrote.moved;
            let put = (wrote.answer.value as usize).min(given);
            uio.take_back(before + put);
            wrote.answer.error.map_or(how, Err)?;
            if put < len {
                break;
            }
        }
        Ok(())
    }

    /// Brings the bytes from `at` on to a page of the kernel's that is clear.
    fn fill(&self, call: &Syscall<'_, M>, va: Va, at: u64) -> Result<(), Errno> {
        let request = Request::ReadAt { handle: self.handle, at, len: PAGE_SIZE };
        let read = self.ask(call, &request, Bytes::ToKernel(va, PAGE_SIZE), true)?;
        read.moved.1?;
        read.answer().map(|_| ())
    }
}

impl<M: Machine> FileOps<M> for ServedFile<M> {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() == UioMode::Copy { self.read_bytes(call, uio) } else { Err(Errno::BadFd) }
    }

    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() == UioMode::Copy { self.write_bytes(call, uio) } else { Err(Errno::NotSupported) }
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        if !self.service.has(FileServiceDefect::CloseUntold) {
            // A server that has died has nothing open.
            _ = self.ask(call, &Request::Close { handle: self.handle }, Bytes::None, false);
        }
    }
}

impl<M: Machine> VnodeOps<M> for ServedFile<M> {
    fn seek(&self, call: &Syscall<'_, M>, to: u64) -> Result<(), Errno> {
        self.simply(call, Request::Seek { handle: self.handle, to }).map(|_| ())
    }

    fn size_bytes(&self, call: &Syscall<'_, M>) -> Result<u64, Errno> {
        self.simply(call, Request::Size { handle: self.handle })
    }

    fn truncate(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<(), Errno> {
        self.simply(call, Request::Truncate { handle: self.handle, size_bytes }).map(|_| ())
    }

    fn sync(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        self.simply(call, Request::Sync { handle: self.handle }).map(|_| ())
    }

    fn map(&self, call: &Syscall<'_, M>, mapping: &MapRequest) -> Result<Va, Errno> {
        let size = || self.simply(call, Request::Size { handle: self.handle });
        map_private(call, mapping, size, &mut |va, at| self.fill(call, va, at))
    }

    fn with_header(
        &self,
        call: &Syscall<'_, M>,
        work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let size = self.simply(call, Request::Size { handle: self.handle })?;
        show_first_page(call, size, &mut |va, at| self.fill(call, va, at), work)
    }
}
