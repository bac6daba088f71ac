//! The kernel's side: which process serves, one request, and the calls of names.
//!
//! # What it holds
//! A [`FileService`] knows the server, from the moment in which it is begun until it has ended. A request is made in the system call of a
//! process, with the pieces that this process keeps for that ([`crate::ispc`]).
//!
//! # Locks
//! One of class `Pipe` over who the server is; it is let go before a request is made.
//!
//! # What can fail
//! A request: its server dies, or has died; the caller's addresses; reserved entries that only the caller could free.

use super::config::{FileServiceConfig, FileServiceDefect};
use super::file::ServedFile;
use super::words::{ANSWER_BYTES, Answer, Asked, Op, entries_of_bytes};
use super::{server, words};
use crate::error::Errno;
use crate::fs::{Change, File, FileTable, Links, Opening, Rights, Volumes};
use crate::ispc::FILES;
use crate::proc::{Pid, Role, Syscall, moved};
use crate::sched::Monitor;
use crate::sys::running;
use alloc::boxed::Box;
use alloc::vec::Vec;
use pageferry_fs::{Entry, Format, Stat};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Machine, PAGE_SIZE, StructArena, Threads, Va};

/// See the [module](self).
pub(crate) struct FileService<M: Machine> {
    pub(super) config: FileServiceConfig,
    state: Monitor<M, State>,
}

#[derive(Default)]
struct State {
    /// There is a process for it, which may not serve yet or any more.
    is_there: bool,
    /// How it began; nothing as long as it has not.
    began: Option<Result<(), Errno>>,
    /// The one that serves.
    server: Option<Pid>,
}

/// Where the bytes of a request come from, or go to.
pub(super) enum Bytes<'a> {
    None,
    /// From the program's memory, so many.
    From(Va, usize),
    /// To the program's memory, so many at most.
    To(Va, usize),
    /// To the kernel's memory.
    ToKernel(Va, usize),
    /// To nowhere else: as many as the lower half of the answer's second value says are taken from the piece.
    Taken(&'a mut Vec<u8>),
}

impl Bytes<'_> {
    fn most(&self) -> usize {
        match *self {
            Bytes::None => 0,
            Bytes::From(_, len) | Bytes::To(_, len) | Bytes::ToKernel(_, len) => len,
            Bytes::Taken(_) => PAGE_SIZE,
        }
    }
}

/// What a request has come to.
pub(super) struct Done {
    pub(super) answer: Answer,
    pub(super) server: Pid,
    /// How many bytes the program's memory gave or took, and why not all.
    pub(super) moved: (usize, Result<(), Errno>),
}

impl Done {
    /// The answer of a request that moves no bytes.
    pub(super) fn answer(self) -> Result<Answer, Errno> {
        self.answer.error.map_or(Ok(self.answer), Err)
    }
}

impl<M: Machine> FileService<M> {
    pub(crate) fn new(
        m: &M,
        config: FileServiceConfig,
        arena: &mut StructArena,
    ) -> Result<FileService<M>, ArenaFull> {
        let at = arena.array("file service", 1, 64)?;
        Ok(FileService { config, state: Monitor::new(m, at, State::default()) })
    }

    pub(super) fn has(&self, defect: FileServiceDefect) -> bool {
        self.config.defect == defect
    }

    /// The server, if there is one.
    pub(crate) fn server(&self) -> Option<Pid> {
        self.state.lock().server
    }

    /// The server, the caller, says how it began.
    pub(super) fn began(&self, threads: &dyn Threads, pid: Pid, how: Result<(), Errno>) {
        {
            let mut state = self.state.lock();
            state.server = how.is_ok().then_some(pid);
            state.began = Some(how);
        }
        self.state.wake_all(threads);
    }

    /// The server has ended, however it began.
    pub(crate) fn ended(&self, threads: &dyn Threads) {
        {
            let mut state = self.state.lock();
            (state.server, state.is_there) = (None, false);
            state.began.get_or_insert(Err(Errno::Io));
        }
        self.state.wake_all(threads);
    }

    /// The last process that is none of the kernel's servers ends: the volume is unmounted, whatever is open, and the server ends.
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
        let asked = Asked { at: u64::from(whatever_is_open), ..Asked::new(Op::End) };
        let answer = self.ask(call, Some(server), asked, Bytes::None, false)?.answer;
        if answer.error != Some(Errno::Busy) {
            // Where threads cross into it, its own sleeps; now that this one has left it may end.
            _ = call.kernel.send_signal(server);
        }
        Ok(answer)
    }

    // ------------------------------------------------------------------------------------------- one request

    /// Makes a request, with bytes that go with it or come back. `expected` says which server it must be, if that matters.
    ///
    /// # Errors
    /// [`Errno::NoFile`]: there is no server. [`Errno::ConnectionRefused`], [`Errno::ConnectionReset`]: it dies, or has died. [`Errno::Fault`]: not one byte could be
    /// taken from the program. [`Errno::NameTooLong`], [`Errno::NoMemory`]; [`Errno::Interrupted`], only if `interruptible`.
    pub(super) fn ask(
        &self,
        call: &Syscall<'_, M>,
        expected: Option<Pid>,
        mut asked: Asked,
        mut bytes: Bytes<'_>,
        interruptible: bool,
    ) -> Result<Done, Errno> {
        let ispc = call.kernel.ispc.as_ref().ok_or(Errno::NotSupported)?;
        let expected = expected.filter(|_| !self.has(FileServiceDefect::ServerNotAsked));
        if expected.is_none() && self.server().is_none() {
            // Nothing is mounted.
            return Err(Errno::NoFile);
        }
        let data_pages = self.data_pages(bytes.most());
        let pieces = ispc.take_kept(call, data_pages, interruptible)?;
        let data = pieces.data.unwrap_or(pieces.control);
        let mut exchange = || {
            let mut taken = (asked.len, Ok(()));
            if let Bytes::From(from, len) = bytes {
                taken = moved(len, call.copy_in(data, from, len));
                asked.len = taken.0;
                if taken.0 == 0 && len > 0 {
                    taken.1?;
                }
            }
            call.store_bytes(pieces.control, &asked.bytes()?)?;
            let server = ispc.request_for(call, (FILES, expected), pieces, interruptible)?;
            let mut words = [0; ANSWER_BYTES];
            call.fetch_bytes(pieces.control, &mut words)?;
            let answer = Answer::of(&words);
            match &mut bytes {
                Bytes::To(to, len) => {
                    let len = (answer.value as usize).min(*len);
                    taken = moved(len, call.copy_out(*to, data, len));
                }
                Bytes::ToKernel(to, len) => {
                    let len = (answer.value as usize).min(*len);
                    taken = moved(len, call.copy_in(*to, data, len));
                }
                Bytes::Taken(into) => {
                    into.resize((answer.more as u32 as usize).min(PAGE_SIZE), 0);
                    call.fetch_bytes(data, into)?;
                }
                Bytes::None | Bytes::From(..) => {}
            }
            Ok(Done { answer, server, moved: taken })
        };
        let done = exchange();
        if !self.has(FileServiceDefect::PiecesKeptAttached) {
            ispc.put_kept(call, pieces);
        }
        done
    }

    /// How long a data piece for so many bytes is: of few lengths, because each is kept.
    fn data_pages(&self, len_bytes: usize) -> usize {
        match len_bytes.div_ceil(PAGE_SIZE) {
            0 => 0,
            pages => pages.next_power_of_two().min(self.config.data_pages),
        }
    }

    /// Makes a request about names.
    fn ask_names(&self, call: &Syscall<'_, M>, asked: Asked) -> Result<Answer, Errno> {
        self.ask(call, None, asked, Bytes::None, true)?.answer()
    }

    // ------------------------------------------------------------------------------------------- the server

    /// Makes the server's process.
    fn begin(&self, call: &Syscall<'_, M>, format: Option<Format>) -> Result<(), Errno> {
        let kernel = call.kernel;
        let program = running(kernel, Box::new(move |user| server::run(user, format)));
        let space = kernel.vm.space()?;
        kernel
            .create_process(None, "file server", space.clone(), FileTable::new(), Role::FileServer, program)
            .inspect_err(|_| space.terminate(call.thread))
            .map(|_| ())
    }

    /// Waits until `done` says so.
    fn wait_until<R>(&self, call: &Syscall<'_, M>, done: impl Fn(&State) -> Option<R>) -> R {
        let mut state = self.state.lock();
        loop {
            match done(&state) {
                Some(result) => return result,
                None => state = self.state.wait(call.thread, state, "file server", false).0,
            }
        }
    }
}

impl<M: Machine> Volumes<M> for FileService<M> {
    /// Begins a server, and waits until it has a volume, or has ended because it can have none.
    fn mount(&self, call: &Syscall<'_, M>, format: Option<Format>) -> Result<(), Errno> {
        {
            let mut state = self.state.lock();
            if state.is_there {
                return Err(Errno::Busy);
            }
            *state = State { is_there: true, ..State::default() };
        }
        if let Err(error) = self.begin(call, format) {
            self.state.lock().is_there = false;
            return Err(error);
        }
        self.wait_until(call, |state| state.began.filter(|how| how.is_ok() || !state.is_there))
    }

    fn unmount(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        let server = self.server().ok_or(Errno::Invalid)?;
        let Answer { error, .. } = self.end_server(call, server, false)?;
        if error != Some(Errno::Busy) {
            self.wait_until(call, |state| (state.server != Some(server)).then_some(()));
        }
        error.map_or(Ok(()), Err)
    }

    fn open(
        &self,
        call: &Syscall<'_, M>,
        path: &str,
        how: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno> {
        let at = words::open_flags(how, rights.appends);
        let done = self.ask(call, None, Asked { at, ..Asked::named(Op::Open, path) }, Bytes::None, true)?;
        let server = done.server;
        Ok(File::new(ServedFile::new(server, done.answer()?.value, rights)))
    }

    fn change_name(&self, call: &Syscall<'_, M>, path: &str, how: Change) -> Result<(), Errno> {
        let op = match how {
            Change::MakeDirectory => Op::MakeDirectory,
            Change::RemoveDirectory => Op::RemoveDirectory,
            Change::Unlink => Op::Unlink,
        };
        self.ask_names(call, Asked::named(op, path)).map(|_| ())
    }

    fn stat(&self, call: &Syscall<'_, M>, path: &str, links: Links) -> Result<Stat, Errno> {
        let at = u64::from(links == Links::Taken);
        let Answer { value, more, .. } =
            self.ask_names(call, Asked { at, ..Asked::named(Op::Stat, path) })?;
        Ok(words::stat_of(value, more))
    }

    fn make_link(&self, call: &Syscall<'_, M>, path: &str, name: &str) -> Result<(), Errno> {
        let names = [path.into(), name.into()];
        self.ask_names(call, Asked { names, ..Asked::new(Op::MakeLink) }).map(|_| ())
    }

    fn read_link(&self, call: &Syscall<'_, M>, name: &str) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        let asked = Asked { len: PAGE_SIZE, ..Asked::named(Op::ReadLink, name) };
        self.ask(call, None, asked, Bytes::Taken(&mut bytes), true)?.answer()?;
        Ok(bytes)
    }

    fn link(&self, call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        let names = [from.into(), to.into()];
        self.ask_names(call, Asked { names, ..Asked::new(Op::Link) }).map(|_| ())
    }

    fn rename(&self, call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        let names = [from.into(), to.into()];
        self.ask_names(call, Asked { names, ..Asked::new(Op::Rename) }).map(|_| ())
    }

    /// A directory whose entries do not fit into one answer is read by several, between which others may change it.
    fn entries(&self, call: &Syscall<'_, M>, path: &str) -> Result<Vec<Entry>, Errno> {
        let mut entries = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let asked = Asked { at: entries.len() as u64, len: PAGE_SIZE, ..Asked::named(Op::List, path) };
            let answer = self.ask(call, None, asked, Bytes::Taken(&mut bytes), true)?.answer()?;
            entries.extend(entries_of_bytes(&bytes, answer.value as usize)?);
            if answer.value == 0 || answer.more & words::LAST_ENTRIES != 0 {
                return Ok(entries);
            }
        }
    }
}
