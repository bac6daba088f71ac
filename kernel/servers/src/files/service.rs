//! The kernel's side of a file server: which process serves, and one request of it.
//!
//! # Locks
//! Those of [`Service`], none while a request is made.
//!
//! # What can fail
//! A request, by the server's end.

use super::super::answer::Answer;
use super::super::home::Home;
use super::super::request::{Asking, Bytes, Completion, exchange};
use super::super::service::Service;
use super::words::Request;
use pageferry_abi::{Errno, Pid};
use pageferry_core::proc::Syscall;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Machine, StructArena, Threads};
use pageferry_ispc::{FILES, FileServiceConfig, FileServiceDefect};

/// See the [module](self).
pub(super) struct FileService<M: Machine> {
    pub(super) config: FileServiceConfig,
    pub(super) home: Home<M>,
    pub(super) service: Service<M>,
}

impl<M: Machine> FileService<M> {
    pub(super) fn new(
        m: &M,
        config: FileServiceConfig,
        arena: &mut StructArena,
    ) -> Result<FileService<M>, ArenaFull> {
        let at = arena.array("file service", 1, 64)?;
        Ok(FileService { config, home: Home::new(), service: Service::new(m, at, FILES, "file server") })
    }

    pub(super) fn has(&self, defect: FileServiceDefect) -> bool {
        self.config.defect.is(defect)
    }

    /// The server, if there is one.
    pub(super) fn server(&self) -> Option<Pid> {
        self.service.server()
    }

    /// The server, the caller, says how it began.
    pub(super) fn began(&self, threads: &dyn Threads, pid: Pid, how: Result<(), Errno>) {
        self.service.began(threads, pid, how);
    }

    /// The server has ended, however it began.
    pub(super) fn ended(&self, threads: &dyn Threads) {
        self.service.ended(threads);
    }

    /// The last process that is none of the kernel's servers ends: the volume is unmounted, whatever is open, and the
    /// server ends.
    pub(super) fn end(&self, call: &Syscall<'_, M>) {
        if let Some(server) = self.server() {
            // One that does not answer has ended, or ends.
            _ = self.end_server(call, server, true);
        }
    }

    /// Has the server unmount the volume and end.
    pub(super) fn end_server(
        &self,
        call: &Syscall<'_, M>,
        server: Pid,
        whatever_is_open: bool,
    ) -> Result<Answer, Errno> {
        let request = Request::End { whatever_is_open };
        let answer = self.ask(call, Some(server), &request, Bytes::None, false)?.answer;
        if answer.error != Some(Errno::Busy) {
            // Where threads cross into it, its own sleeps; now that this one has left it may end.
            _ = self.home.kernel_of_call().send_signal(server);
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
    ) -> Result<Completion, Errno> {
        let expected = expected.filter(|_| !self.has(FileServiceDefect::ServerNotAsked));
        if expected.is_none() && self.server().is_none() {
            // Nothing is mounted.
            return Err(Errno::NoFile);
        }
        let asking = Asking {
            service: FILES,
            expected,
            max_pages: self.config.data_pages,
            interruptible,
            keeps_attached: self.has(FileServiceDefect::PiecesKeptAttached),
        };
        let has_bytes = matches!(bytes, Bytes::From(..));
        let mut words = |taken| match has_bytes {
            true => request.envelope().with_len(taken).bytes(),
            false => request.envelope().bytes(),
        };
        let kernel = self.home.kernel_of_call();
        let ispc = kernel.ispc().ok_or(Errno::NotSupported)?;
        exchange(call, ispc, &asking, &mut words, bytes, &mut |_| None)
    }

    /// Makes a request about names.
    pub(super) fn ask_names(&self, call: &Syscall<'_, M>, request: &Request) -> Result<Answer, Errno> {
        self.ask(call, None, request, Bytes::None, true)?.answer()
    }
}
