//! The system calls of files: by name, by descriptor, and by mapping; and of the sound device, to open it.

use crate::error::Errno;
use crate::file::{Fd, File, Open};
use crate::user::User;
use crate::vnode::Regular;
use alloc::sync::Arc;
use pageferry_hal::{Machine, PAGE_SIZE, Prot, SpinLock, Va};
use pageferry_vm::{Inherit, MapAddr, Mapped, PushDown};

bitflags::bitflags! {
    /// How a file is opened.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct OpenFlags: u8 {
        /// To be read.
        const READ = 1;
        /// To be written.
        const WRITE = 2;
        /// Made if there is none of the name (`O_CREAT`).
        const CREATE = 4;
        /// Emptied (`O_TRUNC`); needs [`OpenFlags::WRITE`].
        const TRUNCATE = 8;
    }
}

impl<M: Machine> User<M> {
    /// Opens a file by its name in the one directory (`open`).
    ///
    /// # Errors
    /// [`Errno::NoFile`]; [`Errno::Invalid`] for a name that is none, or flags that make no sense; [`Errno::TooManyFiles`],
    /// [`Errno::NoSpace`], [`Errno::NoMemory`].
    pub fn open(&self, name: &str, flags: OpenFlags) -> Result<Fd, Errno> {
        self.system_call(|call| {
            let (readable, writable) = (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::WRITE));
            let truncates = flags.contains(OpenFlags::TRUNCATE);
            if !(writable || readable && !truncates) {
                return Err(Errno::Invalid);
            }
            if !self.process.files.lock().has_room(1) {
                return Err(Errno::TooManyFiles);
            }
            let create = flags.contains(OpenFlags::CREATE);
            let files = &self.kernel.files;
            let file = files.open(call.kernel.vm(), name, create, (readable, writable))?;
            if flags.contains(OpenFlags::TRUNCATE)
                && let Err(e) = file.inode.set_size(call, 0)
            {
                files.close(call.kernel.vm(), call.thread, file);
                return Err(e);
            }
            Ok(self.process.files.lock().insert(File::new(Open::Regular(file))))
        })
    }

    /// Opens the sound device: what is sent is played, what is received was recorded.
    ///
    /// # Errors
    /// [`Errno::NotSupported`] if the machine has none; [`Errno::Busy`] while somebody has it; [`Errno::TooManyFiles`],
    /// [`Errno::NoMemory`].
    pub fn open_audio(&self) -> Result<Fd, Errno> {
        self.system_call(|call| {
            if !self.process.files.lock().has_room(1) {
                return Err(Errno::TooManyFiles);
            }
            self.kernel.audio.open(call.kernel.vm(), &self.kernel.mbufs)?;
            // The process's only thread is here: the room is there still.
            Ok(self.process.files.lock().insert(File::new(Open::Audio)))
        })
    }

    /// Takes a file's name away (`unlink`); who has it open or mapped keeps it.
    ///
    /// # Errors
    /// [`Errno::NoFile`].
    pub fn unlink(&self, name: &str) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.files.unlink(call.kernel.vm(), name))
    }

    /// Sets where the next read or write of a file begins (`lseek`).
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file.
    pub fn seek(&self, fd: Fd, to: u64) -> Result<(), Errno> {
        self.system_call(|_| {
            self.with_regular(fd, |file| {
                file.seek(to);
                Ok(())
            })
        })
    }

    /// The length of a file in bytes (`fstat`).
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file.
    pub fn file_size(&self, fd: Fd) -> Result<u64, Errno> {
        self.system_call(|_| self.with_regular(fd, |file| Ok(file.inode.size_bytes())))
    }

    /// Cuts a file, or lets it grow by zeros (`ftruncate`). Who touches a mapping of what was cut off is killed (SIGBUS).
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file, or not open to be written. [`Errno::NoSpace`], [`Errno::NoMemory`],
    /// [`Errno::Io`], [`Errno::Interrupted`].
    pub fn truncate(&self, fd: Fd, size_bytes: u64) -> Result<(), Errno> {
        self.system_call(|call| {
            self.with_regular(fd, |file| {
                if !file.writable {
                    return Err(Errno::BadFd);
                }
                file.inode.set_size(call, size_bytes)
            })
        })
    }

    /// Writes a file's dirty pages to the disk, and sleeps until they are there (`fsync`).
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file; [`Errno::Io`].
    pub fn sync_file(&self, fd: Fd) -> Result<(), Errno> {
        self.system_call(|call| {
            self.with_regular(fd, |file| Ok(call.kernel.vm().clean_file(call.thread, &file.inode.object)?))
        })
    }

    /// Maps `len_bytes` of a file from byte `offset` on (`mmap`): shared, so that stores change the file, or private. The
    /// mapping outlives the descriptor.
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file. [`Errno::Access`]: the file is not open to be read, or, for a shared
    /// mapping that is to be written, not to be written. [`Errno::Invalid`]: no length, an offset that is no multiple of a
    /// page, or an address that makes no sense or is taken. [`Errno::NoMemory`].
    pub fn map_file(
        &self,
        fd: Fd,
        offset: u64,
        place: MapAddr,
        len_bytes: usize,
        prot: Prot,
        shared: bool,
    ) -> Result<Va, Errno> {
        self.system_call(|call| {
            self.with_regular(fd, |file| {
                if !offset.is_multiple_of(PAGE_SIZE as u64) {
                    return Err(Errno::Invalid);
                }
                let mut max_prot = Prot::all();
                if shared && !file.writable {
                    max_prot.remove(Prot::WRITE);
                }
                if !file.readable || !max_prot.contains(prot) {
                    return Err(Errno::Access);
                }
                let mapped = Mapped {
                    object: file.inode.object.clone(),
                    first_page: offset / PAGE_SIZE as u64,
                    copy_on_write: !shared,
                };
                let inherit = if shared { Inherit::Share } else { Inherit::Copy };
                let prots = (prot, max_prot);
                Ok(call.space.map_at(call.thread, place, len_bytes, prots, inherit, Some(mapped))?)
            })
        })
    }

    /// Writes what a private mapping of a file has of its own to the file, by moving the pages (UVM paper, 4.2.2): whoever
    /// maps or reads the file sees them. Returns how many went. The range must be a mapping of this file, and `fd` the right
    /// to write it: that the file could be read when it was mapped is not enough.
    ///
    /// # Errors
    /// [`Errno::BadFd`], also for what is no file. [`Errno::Access`]: not open to be written. [`Errno::Invalid`]: no length,
    /// `at` is not page-aligned, or something else is mapped in the range. [`Errno::NoMemory`]: not all of the range is
    /// mapped, or memory is full. [`Errno::Fault`]: the file ends before the page. [`Errno::Busy`]: a page is wired, or on
    /// its way to or from the disk; it is the file's already; or, if it is to be given, a fork or a loan has it too.
    /// [`Errno::Io`], [`Errno::Interrupted`]. Pages before the one that is refused are down.
    pub fn push_down(&self, fd: Fd, at: Va, len_bytes: usize, how: PushDown) -> Result<usize, Errno> {
        self.system_call(|call| self.with_regular(fd, |file| file.push_down(call, at, len_bytes, how)))
    }

    fn with_regular<R>(
        &self,
        fd: Fd,
        work: impl FnOnce(&Regular<M>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let file: Arc<File<M>> = self.process.files.lock().get(fd)?;
        let result = match &file.open {
            Open::Regular(regular) => work(regular),
            _ => Err(Errno::BadFd),
        };
        // The process's only thread is here: nobody has closed the descriptor meanwhile.
        assert!(Arc::strong_count(&file) > 1, "a file vanished while it was used");
        result
    }
}
