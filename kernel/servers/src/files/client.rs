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
use super::super::request::Bytes;
use super::file::ServedFile;
use super::service::FileService;
use super::words::{OpenMode, Request, entries_of_bytes};
use super::{server, words};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, FileStat, Pid};
use pageferry_core::fs::{
    Change, DirEntry, File, FileSystem, Links, Lookup, Opening, Rights, Volumes, WayOff, dir_entries,
    file_stat,
};
use pageferry_core::proc::Syscall;
use pageferry_fs::Format;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Machine, PAGE_SIZE, StructArena, Threads};
use pageferry_ispc::FileServiceConfig;
use pageferry_kernel::Kernel;
use pageferry_kernel::{FileServer, User};

/// The volume that a server has, by its names. See the [module](self).
pub(crate) struct Files<M: Machine>(Arc<FileService<M>>);

impl<M: Machine> Files<M> {
    pub(crate) fn new(
        m: &M,
        config: FileServiceConfig,
        arena: &mut StructArena,
    ) -> Result<Files<M>, ArenaFull> {
        Ok(Files(Arc::new(FileService::new(m, config, arena)?)))
    }

    /// The kernel has booted.
    pub(crate) fn started(&self, kernel: &Arc<Kernel<M>>) {
        self.0.home.set(kernel);
    }
}

impl<M: Machine> FileServer<M> for Files<M> {
    fn server(&self) -> Option<Pid> {
        self.0.server()
    }

    fn end(&self, call: &Syscall<'_, M>) {
        self.0.end(call);
    }

    fn ended(&self, threads: &dyn Threads) {
        self.0.ended(threads);
    }
}

impl<M: Machine> Volumes<M> for Files<M> {
    /// Begins a server, and waits until it has a volume, or has ended because it can have none.
    fn mount(&self, call: &Syscall<'_, M>, format: Option<Format>, soft_updates: bool) -> Result<(), Errno> {
        let its = self.0.clone();
        let program = Box::new(move |user: &User<M>| server::run(user, &its, format, soft_updates));
        let FileService { home, service, .. } = &*self.0;
        service.begin(&home.kernel_of_call(), call.thread, program)?;
        service.wait_begun(call)
    }

    fn unmount(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        let server = self.0.server().ok_or(Errno::Invalid)?;
        let Answer { error, .. } = self.0.end_server(call, server, false)?;
        if error != Some(Errno::Busy) {
            self.0.service.wait_ended(call, server);
        }
        error.map_or(Ok(()), Err)
    }
}

impl<M: Machine> FileSystem<M> for Files<M> {
    fn open(
        &self,
        call: &Syscall<'_, M>,
        at: Lookup<'_>,
        how: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno> {
        let mode = OpenMode { how, appends: rights.appends };
        let request = Request::Open { name: at.path.into(), followed: at.followed, mode };
        let done = self.0.ask(call, None, &request, Bytes::None, true)?;
        let server = done.server;
        Ok(File::vnode(ServedFile::new(self.0.clone(), server, done.answer()?.value), rights))
    }

    fn way_off(&self, call: &Syscall<'_, M>, at: Lookup<'_>, links: Links) -> Result<Option<WayOff>, Errno> {
        let (name, followed) = (at.path.into(), at.followed);
        let mut bytes = Vec::new();
        let request = Request::WayOff { name, followed, links, len: PAGE_SIZE };
        let answer = self.0.ask(call, None, &request, Bytes::Taken(&mut bytes), true)?.answer()?;
        if answer.value & words::LEADS_OFF == 0 {
            return Ok(None);
        }
        let path = String::from_utf8(bytes).map_err(|_| Errno::Io)?;
        Ok(Some(WayOff { path, followed: answer.value as u32 as usize }))
    }

    fn change_name(&self, call: &Syscall<'_, M>, at: Lookup<'_>, how: Change) -> Result<(), Errno> {
        let (name, followed) = (at.path.into(), at.followed);
        let request = match how {
            Change::MakeDirectory => Request::MakeDirectory { name, followed },
            Change::RemoveDirectory => Request::RemoveDirectory { name, followed },
            Change::Unlink => Request::Unlink { name, followed },
        };
        self.0.ask_names(call, &request).map(|_| ())
    }

    fn stat(&self, call: &Syscall<'_, M>, at: Lookup<'_>, links: Links) -> Result<FileStat, Errno> {
        let request = Request::Stat { name: at.path.into(), followed: at.followed, links };
        let Answer { value, more, .. } = self.0.ask_names(call, &request)?;
        Ok(file_stat(words::stat_of(value, more)))
    }

    fn symlink(&self, call: &Syscall<'_, M>, path: &str, at: Lookup<'_>) -> Result<(), Errno> {
        let request = Request::MakeLink { path: path.into(), name: at.path.into(), followed: at.followed };
        self.0.ask_names(call, &request).map(|_| ())
    }

    fn read_link(&self, call: &Syscall<'_, M>, at: Lookup<'_>) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        let request = Request::ReadLink { name: at.path.into(), followed: at.followed, len: PAGE_SIZE };
        self.0.ask(call, None, &request, Bytes::Taken(&mut bytes), true)?.answer()?;
        Ok(bytes)
    }

    fn link(&self, call: &Syscall<'_, M>, from: Lookup<'_>, to: Lookup<'_>) -> Result<(), Errno> {
        let (from, from_followed, to, to_followed) =
            (from.path.into(), from.followed, to.path.into(), to.followed);
        self.0.ask_names(call, &Request::Link { from, from_followed, to, to_followed }).map(|_| ())
    }

    fn rename(&self, call: &Syscall<'_, M>, from: Lookup<'_>, to: Lookup<'_>) -> Result<(), Errno> {
        let (from, from_followed, to, to_followed) =
            (from.path.into(), from.followed, to.path.into(), to.followed);
        self.0.ask_names(call, &Request::Rename { from, from_followed, to, to_followed }).map(|_| ())
    }

    /// A directory whose entries do not fit into one answer is read by several, between which others may change it.
    fn list(&self, call: &Syscall<'_, M>, at: Lookup<'_>) -> Result<Vec<DirEntry>, Errno> {
        let mut entries = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let (name, followed) = (at.path.into(), at.followed);
            let request = Request::List { name, followed, from: entries.len(), len: PAGE_SIZE };
            let answer = self.0.ask(call, None, &request, Bytes::Taken(&mut bytes), true)?.answer()?;
            entries.extend(entries_of_bytes(&bytes, answer.value as usize)?);
            if answer.value == 0 || answer.more & words::LAST_ENTRIES != 0 {
                return Ok(dir_entries(&entries));
            }
        }
    }
}
