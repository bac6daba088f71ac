//! The system calls of files: by name, by descriptor, and by mapping; and of the sound device, to open it. They find
//! the open file; the work is that of its kind. Descriptors are looked up under their table's lock, which is not held
//! longer.

use super::user::User;
use crate::dev::AudioFile;
use alloc::sync::Arc;
use pageferry_abi::SendMode;
use pageferry_abi::{Errno, Fd, OpenFlags};
use pageferry_core::fs::{Change, Create, File, Links, MapRequest, Opening, Rights};
use pageferry_core::proc::{Syscall, Uio};
use pageferry_hal::{Machine, Prot, SpinLock, Va};
use pageferry_vm::{MapAddr, PushDown};

impl<M: Machine> User<M> {
    /// Opens a file by its name: of the file system in memory, of the mounted volume, below `/mnt`, or of a device,
    /// below `/dev` (`open`).
    ///
    /// # Errors
    /// [`Errno::NoFile`]; [`Errno::Exists`]; [`Errno::Loop`]; [`Errno::NoDevice`]; [`Errno::Invalid`] for a name that
    /// is none, or flags that make no sense; [`Errno::TooManyFiles`], [`Errno::NoSpace`], [`Errno::NoMemory`].
    pub fn open(&self, name: &str, flags: OpenFlags) -> Result<Fd, Errno> {
        self.system_call(|call| {
            let rights = Rights::of(flags);
            if !(rights.writable || rights.readable && !flags.contains(OpenFlags::TRUNCATE)) {
                return Err(Errno::Invalid);
            }
            if !self.process.files.lock().has_room(1) {
                return Err(Errno::TooManyFiles);
            }
            let file = self.open_file(call, name, flags)?;
            Ok(self.process.files.lock().insert(file))
        })
    }

    /// The file of a name, opened for no descriptor.
    fn open_file(&self, call: &Syscall<'_, M>, name: &str, flags: OpenFlags) -> Result<File<M>, Errno> {
        let links = if flags.contains(OpenFlags::NO_FOLLOW) { Links::Taken } else { Links::Followed };
        let truncate = flags.contains(OpenFlags::TRUNCATE);
        let (how, rights) = (Opening { create: Create::of(flags), truncate, links }, Rights::of(flags));
        self.kernel.mounts.resolve(call, name, links, |fs, at| fs.open(call, at, how, rights))
    }

    /// Opens the sound device: what is sent is played, what is received was recorded.
    ///
    /// # Errors
    /// [`Errno::NotSupported`] if the machine has none; [`Errno::Busy`] while it is open; [`Errno::TooManyFiles`],
    /// [`Errno::NoMemory`].
    pub fn open_audio(&self) -> Result<Fd, Errno> {
        self.system_call(|call| {
            if !self.process.files.lock().has_room(1) {
                return Err(Errno::TooManyFiles);
            }
            self.kernel.audio.open(&call.core.vm, &call.core.mbufs)?;
            Ok(self
                .process
                .files
                .lock()
                .insert(File::new(AudioFile::new(self.kernel.audio.clone()), Rights::READ_WRITE)))
        })
    }

    /// Takes a file's name away (`unlink`); a process that has it open or mapped keeps it.
    ///
    /// # Errors
    /// [`Errno::NoFile`].
    pub fn unlink(&self, name: &str) -> Result<(), Errno> {
        self.system_call(|call| {
            self.kernel
                .mounts
                .resolve(call, name, Links::Taken, |fs, at| fs.change_name(call, at, Change::Unlink))
        })
    }

    /// Lets the image in a file take the place of all that the process has in memory (`execve`): its segments are
    /// mapped, what was mapped is gone. A file that begins with `#!` has the image in the file of that path do so; an
    /// image with a dynamic linker (`PT_INTERP`) has that beside it. Answers where the image would begin; the calling
    /// program goes on, because an image is memory to this kernel and not code.
    ///
    /// # Errors
    /// [`Errno::BadFd`]. [`Errno::NotExecutable`]: no ELF image, or one with segments that a process cannot have, or an
    /// interpreter that is none; those of [`User::open`] for an interpreter; [`Errno::Io`], [`Errno::Access`]: and
    /// nothing has changed. [`Errno::NoMemory`]: a part of the image is there.
    pub fn exec(&self, fd: Fd) -> Result<Va, Errno> {
        self.system_call(|call| {
            let file = self.get(fd)?;
            if !file.rights().readable {
                return Err(Errno::BadFd);
            }
            let find = |path: &str| self.open_file(call, path, OpenFlags::READ).map(Arc::new);
            call.exec(&file, &find)
        })
    }

    /// Gives an open file a descriptor more, the lowest that is free (`dup`).
    ///
    /// # Errors
    /// [`Errno::BadFd`], [`Errno::TooManyFiles`].
    pub fn duplicate(&self, fd: Fd) -> Result<Fd, Errno> {
        self.system_call(|_| {
            let mut files = self.process.files.lock();
            let file = files.get(fd)?;
            if !files.has_room(1) {
                return Err(Errno::TooManyFiles);
            }
            Ok(files.share(file))
        })
    }

    /// Reads up to `len_bytes` of a file from byte `offset` on, and leaves where the next read begins (`pread`); zero
    /// behind its end.
    ///
    /// # Errors
    /// As [`User::read`]; [`Errno::NotSupported`] for what is no file.
    pub fn read_at(&self, fd: Fd, offset: u64, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| {
            Ok(self.get(fd)?.read(call, Uio::read(to, len_bytes).at_offset(offset))?.len_bytes)
        })
    }

    /// Writes `len_bytes` of a file from byte `offset` on, and leaves where the next write begins (`pwrite`).
    ///
    /// # Errors
    /// As [`User::write`]; [`Errno::NotSupported`] for what is no file; [`Errno::NoSpace`], [`Errno::TooLarge`].
    pub fn write_at(&self, fd: Fd, offset: u64, from: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| {
            self.get(fd)?.write(call, Uio::write(from, len_bytes, SendMode::Copy).at_offset(offset))
        })
    }

    /// Sets where the next read or write of a file begins (`lseek`).
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file.
    pub fn seek(&self, fd: Fd, to: u64) -> Result<(), Errno> {
        self.system_call(|call| self.get(fd)?.as_vnode()?.seek(call, to))
    }

    /// The length of a file in bytes (`fstat`).
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file.
    pub fn file_size(&self, fd: Fd) -> Result<u64, Errno> {
        self.system_call(|call| self.get(fd)?.as_vnode()?.size_bytes(call))
    }

    /// Cuts a file, or lets it grow by zeros (`ftruncate`). A process that touches a mapping of what was cut off is
    /// killed (SIGBUS).
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file, or not open to be written. [`Errno::NoSpace`], [`Errno::NoMemory`],
    /// [`Errno::Io`], [`Errno::Interrupted`].
    pub fn truncate(&self, fd: Fd, size_bytes: u64) -> Result<(), Errno> {
        self.system_call(|call| {
            let file = self.get(fd)?;
            let vnode = file.as_vnode()?;
            if file.rights().writable { vnode.truncate(call, size_bytes) } else { Err(Errno::BadFd) }
        })
    }

    /// Writes a file's dirty pages to the disk, and sleeps until they are there (`fsync`).
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file; [`Errno::Io`], [`Errno::NoMemory`].
    pub fn sync_file(&self, fd: Fd) -> Result<(), Errno> {
        self.system_call(|call| self.get(fd)?.as_vnode()?.sync(call))
    }

    /// Maps `len_bytes` of a file from byte `offset` on (`mmap`): shared, so that stores change the file, or private.
    /// The mapping outlives the descriptor.
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file. [`Errno::Access`]: the file is not open to be read, or, for a shared
    /// mapping that is to be written, not to be written. [`Errno::Invalid`]: no length, an offset that is no multiple
    /// of a page, or an address that makes no sense or is taken. [`Errno::NoMemory`].
    pub fn map_file(
        &self,
        fd: Fd,
        offset: u64,
        place: MapAddr,
        len_bytes: usize,
        prot: Prot,
        shared: bool,
    ) -> Result<Va, Errno> {
        let mapping = MapRequest { offset, place, len_bytes, prot, max_prot: Prot::all(), shared };
        self.system_call(|call| self.get(fd)?.map(call, mapping))
    }

    /// Writes what a private mapping of a file has of its own to the file, by moving the pages (UVM paper, 4.2.2): all
    /// that map or read the file see them. Returns how many went. The range must be a mapping of this file, and `fd`
    /// the right to write it: that the file could be read when it was mapped is not enough.
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file. [`Errno::Access`]: not open to be written. [`Errno::Invalid`]: no
    /// length, `at` is not page-aligned, or something else is mapped in the range. [`Errno::NoMemory`]: not all of the
    /// range is mapped, or memory is full. [`Errno::Fault`]: the file ends before the page. [`Errno::Busy`]: a page is
    /// wired, or on its way to or from the disk; it is the file's already; or, if it is to be given, a fork or a loan
    /// has it too. [`Errno::Io`], [`Errno::Interrupted`]. Pages before the one that is refused are down.
    pub fn push_down(&self, fd: Fd, at: Va, len_bytes: usize, how: PushDown) -> Result<usize, Errno> {
        self.system_call(|call| {
            let file = self.get(fd)?;
            let vnode = file.as_vnode()?;
            if file.rights().writable {
                vnode.push_down(call, at, len_bytes, how)
            } else {
                Err(Errno::Access)
            }
        })
    }
}
