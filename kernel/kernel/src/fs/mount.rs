//! A mounted volume: the file system on the memory disk, below `/mnt`.
//!
//! # What it holds
//! At most one [`Volume`], its [`Buffers`], and how many files of it are open. All that a file system does is in
//! `pageferry_fs`; here are paths, the buffers that it is lent for a call, and copies between those and processes.
//!
//! # Locks
//! One sleep lock over all of it, as FreeBSD 5 ran its file systems under one lock; whoever holds it has taken the
//! volume out of the state. It is held while bytes move to a process or from it, and while the disk works. No spin lock
//! is held before and after.
//!
//! # What can fail
//! All that fails in a file system; a wait, by a signal; copies, at the caller's addresses. A file that is closed, and
//! what becomes free by that, waits for the lock whatever comes.

use super::buffer_cache::Cached;
use super::buffers::{Buffers, Disk};
use super::cursor::Rights;
use super::file::File;
use super::vfs::{Change, DirEntry, FileSystem, Links, Opening};
use super::volume_file::VolumeFile;
use super::volume_work;
use crate::Kernel;
use crate::counter::KernelCounter;
use crate::proc::{Syscall, Uio, UioRw};
use crate::sched::{Monitor, SleepLock};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::{Errno, FileStat, SendMode};
use pageferry_fs::{Format, Ino, Volume};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Cause, Machine, StructArena, Threads, Va};

/// The mounted volume of a kernel, if there is one. See the [module](self).
pub(crate) struct Mount<M: Machine> {
    state: Monitor<M, State<M>>,
}

struct State<M: Machine> {
    io: SleepLock,
    mounted: Option<Box<Mounted<M>>>,
}

pub(super) struct Mounted<M: Machine> {
    pub(super) volume: Volume,
    pub(super) buffers: Buffers<M>,
    opens: u32,
}

/// Who has the volume of a kernel. The memory disk is open as long as something is mounted.
///
/// # Locks
/// Calls sleep: no spin lock is held before and after.
pub(crate) trait Volumes<M: Machine>: FileSystem<M> {
    /// Makes a volume on the memory disk (`newfs`), which is not mounted, or mounts what is there.
    fn mount(&self, call: &Syscall<'_, M>, format: Option<Format>) -> Result<(), Errno>;

    /// Writes all, and lets go of the disk.
    fn unmount(&self, call: &Syscall<'_, M>) -> Result<(), Errno>;
}

impl<M: Machine> Mount<M> {
    pub(crate) fn new(machine: &M, arena: &mut StructArena) -> Result<Mount<M>, ArenaFull> {
        let at = arena.array("mount", 1, 256)?;
        let state = State { io: SleepLock::default(), mounted: None };
        Ok(Mount { state: Monitor::new(machine, at, state) })
    }

    /// Something is mounted.
    pub(crate) fn exists(&self) -> bool {
        let state = self.state.lock();
        state.mounted.is_some() || state.io.is_taken()
    }

    /// Does `work` with what is mounted, or is not, under the sleep lock.
    fn locked<R>(
        &self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        interruptible: bool,
        work: impl FnOnce(&mut Option<Box<Mounted<M>>>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let _c = kernel.machine.scope(Cause::Protocol);
        let mut mounted = self.take(threads, interruptible)?;
        let result = work(&mut mounted);
        self.put_back(threads, mounted);
        result
    }

    /// Takes the sleep lock, and what is mounted.
    fn take(&self, threads: &dyn Threads, interruptible: bool) -> Result<Option<Box<Mounted<M>>>, Errno> {
        let (mut held, taken) =
            self.state.acquire(threads, self.state.lock(), |s| &mut s.io, "ufs", interruptible);
        taken?;
        Ok(held.mounted.take())
    }

    fn put_back(&self, threads: &dyn Threads, mounted: Option<Box<Mounted<M>>>) {
        let mut held = self.state.lock();
        held.mounted = mounted;
        self.state.release(threads, &mut held, |s| &mut s.io);
    }

    /// Does `work` with the volume and its disk.
    pub(super) fn with<R>(
        &self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        interruptible: bool,
        work: impl FnOnce(&mut Volume, &mut Cached<'_, Disk<'_, M>>, &mut u32) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.locked(kernel, threads, interruptible, |mounted| {
            let Mounted { volume, buffers, opens } = &mut **mounted.as_mut().ok_or(Errno::NoFile)?;
            work(volume, &mut buffers.on(kernel, threads), opens)
        })
    }

    /// Writes all, and lets go of the disk. At the end of everything no signal keeps it from that.
    pub(crate) fn let_go(
        &self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        interruptible: bool,
    ) -> Result<(), Errno> {
        self.locked(kernel, threads, interruptible, |mounted| {
            let there = mounted.take().ok_or(Errno::Invalid)?;
            if there.opens > 0 {
                *mounted = Some(there);
                return Err(Errno::Busy);
            }
            let Mounted { volume, mut buffers, .. } = *there;
            let written = volume.unmount(&mut buffers.on(kernel, threads));
            buffers.end(kernel);
            kernel.memory_disk.close();
            Ok(written?)
        })
    }

    /// Closes a file; it goes if it has no names.
    pub(crate) fn close(&self, call: &Syscall<'_, M>, ino: Ino) {
        let closed = self.with(call.kernel, call.thread, false, |volume, disk, opens| {
            *opens -= 1;
            Ok(volume.close(disk, ino)?)
        });
        // The disk may fail, and no caller is left to be told.
        let _ = closed;
    }
}

impl<M: Machine> Volumes<M> for Mount<M> {
    fn mount(&self, call: &Syscall<'_, M>, format: Option<Format>) -> Result<(), Errno> {
        let (kernel, threads) = (call.kernel, call.thread);
        self.locked(kernel, threads, true, |mounted| {
            if mounted.is_some() {
                return Err(Errno::Busy);
            }
            kernel.memory_disk.open()?;
            let begun = Buffers::new(kernel, kernel.memory_disk.len_bytes()).and_then(|mut buffers| {
                let disk = &mut buffers.on(kernel, threads);
                let volume = match format {
                    Some(format) => Volume::format(disk, format),
                    None => Volume::mount(disk),
                };
                match volume {
                    Ok(volume) => Ok(Mounted { volume, buffers, opens: 0 }),
                    Err(e) => {
                        buffers.end(kernel);
                        Err(e.into())
                    }
                }
            });
            let new = begun.inspect_err(|_| kernel.memory_disk.close())?;
            *mounted = Some(Box::new(new));
            Ok(())
        })
    }

    fn unmount(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        self.let_go(call.kernel, call.thread, true)
    }
}

impl<M: Machine> FileSystem<M> for Mount<M> {
    fn open(
        &self,
        call: &Syscall<'_, M>,
        path: &str,
        how: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno> {
        self.with(call.kernel, call.thread, true, |volume, disk, opens| {
            let found = volume_work::open(volume, disk, path, how)?;
            *opens += 1;
            Ok(File::vnode(VolumeFile::new(call.machine(), found, rights), rights))
        })
    }

    fn change_name(&self, call: &Syscall<'_, M>, path: &str, how: Change) -> Result<(), Errno> {
        self.with(call.kernel, call.thread, true, |volume, disk, _| {
            volume_work::change_name(volume, disk, path, how)
        })
    }

    fn stat(&self, call: &Syscall<'_, M>, path: &str, links: Links) -> Result<FileStat, Errno> {
        self.with(call.kernel, call.thread, true, |volume, disk, _| {
            volume_work::stat(volume, disk, path, links).map(volume_work::file_stat)
        })
    }

    fn symlink(&self, call: &Syscall<'_, M>, path: &str, name: &str) -> Result<(), Errno> {
        self.with(call.kernel, call.thread, true, |volume, disk, _| {
            volume_work::make_link(volume, disk, path, name)
        })
    }

    fn read_link(&self, call: &Syscall<'_, M>, name: &str) -> Result<Vec<u8>, Errno> {
        self.with(call.kernel, call.thread, true, |volume, disk, _| {
            volume_work::read_link(volume, disk, name)
        })
    }

    fn link(&self, call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        self.with(call.kernel, call.thread, true, |volume, disk, _| volume_work::link(volume, disk, from, to))
    }

    fn rename(&self, call: &Syscall<'_, M>, from: &str, to: &str) -> Result<(), Errno> {
        self.with(call.kernel, call.thread, true, |volume, disk, _| {
            volume_work::rename(volume, disk, from, to)
        })
    }

    fn list(&self, call: &Syscall<'_, M>, path: &str) -> Result<Vec<DirEntry>, Errno> {
        self.with(call.kernel, call.thread, true, |volume, disk, _| {
            Ok(volume_work::dir_entries(&volume_work::entries(volume, disk, path)?))
        })
    }
}

impl<M: Machine> Kernel<M> {
    /// Moves whole sectors between the memory disk and kernel memory at `own`.
    pub(super) fn move_disk(
        &self,
        threads: &dyn Threads,
        bytes: Range<u64>,
        own: Va,
        rw: UioRw,
    ) -> Result<(), Errno> {
        let len = (bytes.end - bytes.start) as usize;
        let uio = match rw {
            UioRw::Read => Uio::read(own, len),
            UioRw::Write => Uio::write(own, len, SendMode::Copy),
        };
        let mut uio = uio.at_offset(bytes.start);
        self.memory_disk.request(self, threads, &mut uio, &mut |va, len, uio| {
            let _c = self.machine.scope(Cause::Copy);
            let (to, from) = if rw == UioRw::Write { (va, uio.at()) } else { (uio.at(), va) };
            self.machine.copy_kernel(to, from, len).expect("the kernel's own addresses are mapped");
            self.machine.count(KernelCounter::BytesCopied, len as u64);
            uio.advance(len);
            Ok(())
        })
    }
}
