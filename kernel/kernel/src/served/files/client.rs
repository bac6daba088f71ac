//! The kernel's side: which process serves, one request, and the calls of names.
//!
//! # What it holds
//! A [`FileService`] knows the server, from the moment in which it is begun until it has ended. A request is made in
//! the system call of a process, with the pieces that this process keeps for that ([`crate::ispc`]).
//!
//! # Locks
//! One of class `Pipe` over who the server is; it is let go before a request is made.
//!
//! # What can fail
//! A request: its server dies, or has died; the caller's addresses; reserved entries that only the caller could free.

use super::super::answer::Answer;
use super::super::request::{Asking, Bytes, Done, exchange};
use super::super::service::Service;
use super::config::{FileServiceConfig, FileServiceDefect};
use super::file::ServedFile;
use super::words::{OpenMode, Request, entries_of_bytes};
use super::{server, words};
use crate::fs::DirEntry;
use crate::fs::FileSystem;
use crate::fs::dir_entries;
use crate::fs::file_stat;
use crate::fs::{Change, File, Links, Opening, Rights, Volumes};
use crate::ispc::FILES;
use crate::proc::Syscall;
use crate::sys::User;
use alloc::boxed::Box;
use alloc::vec::Vec;
use pageferry_abi::FileStat;
use pageferry_abi::{Errno, Pid};
use pageferry_fs::Format;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Machine, PAGE_SIZE, StructArena, Threads};

/// See the [module](self).
pub(crate) struct FileService<M: Machine> {
    pub(super) config: FileServiceConfig,
    service: Service<M>,
}

impl<M: Machine> FileService<M> {
    pub(crate) fn new(
        m: &M,
        config: FileServiceConfig,
        arena: &mut StructArena,
    ) -> Result<FileService<M>, ArenaFull> {
        let at = arena.array("file service", 1, 64)?;
        Ok(FileService { config, service: Service::new(m, at, FILES, "file server") })
    }

    pub(super) fn has(&self, defect: FileServiceDefect) -> bool {
        self.config.defect.is(defect)
    }

    /// The server, if there is one.
    pub(crate) fn server(&self) -> Option<Pid> {
        self.service.server()
    }

    /// The server, the caller, says how it began.
    pub(super) fn began(&self, threads: &dyn Threads, pid: Pid, how: Result<(), Errno>) {
        self.service.began(threads, pid, how);
    }

    /// The server has ended, however it began.
    pub(crate) fn ended(&self, threads: &dyn Threads) {
        self.service.ended(threads);
    }

    /// The last process that is none of the kernel's servers ends: the volume is unmounted, whatever is open, and the
    /// server ends.
    pub(crate) fn end(&self, call: &Syscall<'_, M>) {
        if let Some(server) = self.server() {
            // One that does not answer has ended, or ends.
            _ = self.end_server(call, server, true);
        }
    }

    /// Has the server unmount the volume and end.
    fn end_server(
        &self,
        call: &Syscall<'_, M>,
        server: Pid,
        whatever_is_open: bool,
    ) -> Result<Answer, Errno> {
        let request = Request::End { whatever_is_open };
        let answer = self.ask(call, Some(server), &request, Bytes::None, false)?.answer;
        if answer.error != Some(Errno::Busy) {
            // Where threads cross into it, its own sleeps; now that this one has left it may end.
            _ = call.kernel.send_signal(server);
        }
        Ok(answer)
    }

    // ------------------------------------------------------------------------------------------- one request

    /// Makes a request, with bytes that go with it or come back. `expected` says which server it must be, if that
    /// matters.
    ///
    /// # Errors
    /// [`Errno::NoFile`]: there is no server. [`Errno::ConnectionRefused`], [`Errno::ConnectionReset`]: it dies, or has
    /// died. [`Errno::Fault`]: not one byte could be taken from the program. [`Errno::NameTooLong`],
    /// [`Errno::NoMemory`]; [`Errno::Interrupted`], only if `interruptible`.
    pub(super) fn ask(
        &self,
        call: &Syscall<'_, M>,
        expected: Option<Pid>,
        request: &Request,
        bytes: Bytes<'_>,
        interruptible: bool,
    ) -> Result<Done, Errno> {
        let expected = expected.filter(|_| !self.has(FileServiceDefect::ServerNotAsked));
        if expected.is_none() && self.server().is_none() {
            // Nothing is mounted.
            return Err(Errno::NoFile);
        }
        let asking = Asking {
            service: FILES,
            expected,
            most_pages: self.config.data_pages,
            interruptible,
            keeps_attached: self.has(FileServiceDefect::PiecesKeptAttached),
        };
        let has_bytes = matches!(bytes, Bytes::From(..));
        let mut words = |taken| match has_bytes {
            true => request.envelope().with_len(taken).bytes(),
            false => request.envelope().bytes(),
        };
        exchange(call, &asking, &mut words, bytes, &mut |_| None)
    }

    /// Makes a request about names.
    fn ask_names(&self, call: &Syscall<'_, M>, request: &Request) -> Result<Answer, Errno> {
        self.ask(call, None, request, Bytes::None, true)?.answer()
    }
}

impl<M: Machine> Volumes<M> for FileService<M> {
    /// Begins a server, and waits until it has a volume, or has ended because it can have none.
    fn mount(&self, call: &Syscall<'_, M>, format: Option<Format>) -> Result<(), Errno> {
        let program = Box::new(move |user: &User<M>| server::run(user, format));
        self.service.begin(call.kernel, call.thread, program)?;
        self.service.wait_begun(call)
    }

    fn unmount(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        let server = self.server().ok_or(Errno::Invalid)?;
        let Answer { error, .. } = self.end_server(call, server, false)?;
        if error != Some(Errno::Busy) {
            self.service.wait_ended(call, server);
        }
        error.map_or(Ok(()), Err)
    }
}

impl<M: Machine> FileSystem<M> for FileService<M> {
    fn open(
        &self,
        call: &Syscall<'_, M>,
        path: &str,
        how: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno> {
        let mode = OpenMode { how, appends: rights.appends };
        let request = Request::Open { name: path.into(), mode };
        let done = self.ask(call, None, &request, Bytes::None, true)?;
        let server = done.server;
        Ok(File::vnode(ServedFile::new(server, done.answer()?.value), rights))
    }

    fn change_name(&self, call: &Syscall<'_, M>, path: &str, how: Change) -> Result<(), Errno> {
        let name = path.into();
        let request = match how {
            Change::MakeDirectory => Request::MakeDirectory { name },
            Change::RemoveDirectory => Request::RemoveDirectory { name },
            Change::Unlink => Request::Unlink { name },
        };
        self.ask_names(call, &request).map(|_| ())
    }

    fn stat(&self, call: &Syscall<'_, M>, path: &str, links: Links) -> Result<FileStat, Errno> {
        let Answer { value, more, .. } = self.ask_names(call, &Request::Stat { name: path.into(), links })?;
        Ok(file_stat(words::stat_of(value, more)))
    }

    fn symlink(&self, call: &Syscall<'_, M>, path: &str, name: &str) -> Result<(), Errno> {
        self.ask_names(call, &Request::MakeLink { path: path.into(), name: name.into() }).map(|_| ())
    }

    fn read_link(&self, call: &Syscall<'_, M>, name: &str) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        let request = Request::ReadLink { name: name.into(), len: PAGE_SIZE };
        self.ask(call, None, &request, Bytes::Taken(&mut bytes), true)?.answer()?;
        Ok(bytes)
    }

    fn link(&self, call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        self.ask_names(call, &Request::Link { from: from.into(), to: to.into() }).map(|_| ())
    }

    fn rename(&self, call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        self.ask_names(call, &Request::Rename { from: from.into(), to: to.into() }).map(|_| ())
    }

    /// A directory whose entries do not fit into one answer is read by several, between which others may change it.
    fn list(&self, call: &Syscall<'_, M>, path: &str) -> Result<Vec<DirEntry>, Errno> {
        let mut entries = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let request = Request::List { name: path.into(), from: entries.len(), len: PAGE_SIZE };
            let answer = self.ask(call, None, &request, Bytes::Taken(&mut bytes), true)?.answer()?;
            entries.extend(entries_of_bytes(&bytes, answer.value as usize)?);
            if answer.value == 0 || answer.more & words::LAST_ENTRIES != 0 {
                return Ok(dir_entries(&entries));
            }
        }
    }
}
