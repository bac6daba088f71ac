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

use super::super::request::{Bytes, Done};
use super::client::FileService;
use super::config::FileServiceDefect;
use super::words::{Asked, Op};
use crate::fs::{FileOps, Rights, Wanted, either, map_private, show_first_page};
use crate::proc::Syscall;
use alloc::boxed::Box;
use pageferry_abi::{Errno, Pid, SendMode};
use pageferry_hal::{Machine, PAGE_SIZE, Prot, Va};
use pageferry_vm::MapAddr;

/// See the [module](self).
pub(crate) struct ServedFile {
    /// Which server has it open,
    server: Pid,
    /// as what.
    handle: u64,
    rights: Rights,
}

fn service<'a, M: Machine>(call: &'a Syscall<'_, M>) -> Result<&'a FileService<M>, Errno> {
    call.kernel.file_service.as_ref().ok_or(Errno::NotSupported)
}

impl ServedFile {
    pub(super) fn new(server: Pid, handle: u64, rights: Rights) -> ServedFile {
        ServedFile { server, handle, rights }
    }

    fn ask<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        asked: Asked,
        bytes: Bytes<'_>,
        interruptible: bool,
    ) -> Result<Done, Errno> {
        service(call)?.ask(call, Some(self.server), asked, bytes, interruptible)
    }

    /// A request that moves no bytes.
    fn simply<M: Machine>(&self, call: &Syscall<'_, M>, op: Op, at: u64) -> Result<u64, Errno> {
        let asked = Asked { at, ..Asked::of_file(op, self.handle) };
        Ok(self.ask(call, asked, Bytes::None, true)?.answer()?.value)
    }

    /// Reads, from where the file is or from `offset` on.
    fn read_from<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        offset: Option<u64>,
        to: Va,
        len_bytes: usize,
    ) -> Result<usize, Errno> {
        let most = service(call)?.config.data_pages * PAGE_SIZE;
        let op = if offset.is_some() { Op::ReadAt } else { Op::Read };
        let mut done = 0;
        while done < len_bytes {
            let len = most.min(len_bytes - done);
            let at = offset.map_or(0, |offset| offset.saturating_add(done as u64));
            let asked = Asked { at, len, ..Asked::of_file(op, self.handle) };
            let read = match self.ask(call, asked, Bytes::To(to + done, len), true) {
                Ok(read) => read,
                Err(e) => return either((done, Err(e))),
            };
            let ((taken, how), got) = (read.moved, read.answer.value as usize);
            done += taken;
            if taken < got && offset.is_none() && !service(call)?.has(FileServiceDefect::ReadTooFar) {
                let asked = Asked { at: (got - taken) as u64, ..Asked::of_file(Op::Unread, self.handle) };
                _ = self.ask(call, asked, Bytes::None, false);
            }
            let how = how.and(read.answer.error.map_or(Ok(()), Err));
            if how.is_err() || got < len {
                return either((done, how));
            }
        }
        Ok(done)
    }

    /// Writes, from where the file is or from `offset` on.
    fn write_from<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        offset: Option<u64>,
        from: Va,
        len_bytes: usize,
    ) -> Result<usize, Errno> {
        let most = service(call)?.config.data_pages * PAGE_SIZE;
        let op = if offset.is_some() { Op::WriteAt } else { Op::Write };
        let mut done = 0;
        while done < len_bytes {
            let len = most.min(len_bytes - done);
            let at = offset.map_or(0, |offset| offset.saturating_add(done as u64));
            let asked = Asked { at, len, of: len_bytes - done, ..Asked::of_file(op, self.handle) };
            let wrote = match self.ask(call, asked, Bytes::From(from + done, len), true) {
                Ok(wrote) => wrote,
                Err(e) => return either((done, Err(e))),
            };
            let (given, how) = wrote.moved;
            let put = (wrote.answer.value as usize).min(given);
            done += put;
            let how = wrote.answer.error.map_or(how, Err);
            if how.is_err() || put < len {
                return either((done, how));
            }
        }
        Ok(done)
    }

    /// Brings the bytes from `at` on to a page of the kernel's that is clear.
    fn fill<M: Machine>(&self, call: &Syscall<'_, M>, va: Va, at: u64) -> Result<(), Errno> {
        let asked = Asked { at, len: PAGE_SIZE, ..Asked::of_file(Op::ReadAt, self.handle) };
        let read = self.ask(call, asked, Bytes::ToKernel(va, PAGE_SIZE), true)?;
        read.moved.1?;
        read.answer().map(|_| ())
    }
}

impl<M: Machine> FileOps<M> for ServedFile {
    fn is_readable(&self) -> bool {
        self.rights.readable
    }

    fn is_writable(&self) -> bool {
        self.rights.writable
    }

    fn read(&self, call: &Syscall<'_, M>, to: Va, len_bytes: usize, _: bool) -> Result<usize, Errno> {
        self.read_from(call, None, to, len_bytes)
    }

    fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
        _: bool,
    ) -> Result<usize, Errno> {
        if mode != SendMode::Copy {
            return Err(Errno::NotSupported);
        }
        self.write_from(call, None, from, len_bytes)
    }

    fn read_at(&self, call: &Syscall<'_, M>, offset: u64, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.read_from(call, Some(offset), to, len_bytes)
    }

    fn write_at(
        &self,
        call: &Syscall<'_, M>,
        offset: u64,
        from: Va,
        len_bytes: usize,
    ) -> Result<usize, Errno> {
        self.write_from(call, Some(offset), from, len_bytes)
    }

    fn seek(&self, call: &Syscall<'_, M>, to: u64) -> Result<(), Errno> {
        self.simply(call, Op::Seek, to).map(|_| ())
    }

    fn size_bytes(&self, call: &Syscall<'_, M>) -> Result<u64, Errno> {
        self.simply(call, Op::Size, 0)
    }

    fn truncate(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<(), Errno> {
        if !self.rights.writable {
            return Err(Errno::BadFd);
        }
        self.simply(call, Op::Truncate, size_bytes).map(|_| ())
    }

    fn sync(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        self.simply(call, Op::Sync, 0).map(|_| ())
    }

    fn map(
        &self,
        call: &Syscall<'_, M>,
        offset: u64,
        place: MapAddr,
        len_bytes: usize,
        prot: Prot,
        shared: bool,
    ) -> Result<Va, Errno> {
        let wanted = Wanted { offset, place, len_bytes, prot, shared };
        wanted.check()?;
        if !self.rights.readable {
            return Err(Errno::Access);
        }
        let size = || self.simply(call, Op::Size, 0);
        map_private(call, &wanted, size, &mut |va, at| self.fill(call, va, at))
    }

    fn with_header(
        &self,
        call: &Syscall<'_, M>,
        work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let size = self.simply(call, Op::Size, 0)?;
        show_first_page(call, size, &mut |va, at| self.fill(call, va, at), work)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        let Ok(service) = service(call) else { return };
        if !service.has(FileServiceDefect::CloseUntold) {
            // A server that has died has nothing open.
            _ = self.ask(call, Asked::of_file(Op::Close, self.handle), Bytes::None, false);
        }
    }
}
