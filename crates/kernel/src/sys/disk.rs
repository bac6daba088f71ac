//! The system calls of memory disks: to make one, to open it as a device file, to destroy it; and the null device.

use super::file::OpenFlags;
use super::user::User;
use crate::dev::{DiskFile, NullFile};
use crate::error::Errno;
use crate::fs::{Fd, File};
use pageferry_hal::{Machine, SpinLock};

/// The names of device files.
const MEMORY_DISK: &str = "/dev/md0";
const NULL: &str = "/dev/null";

impl<M: Machine> User<M> {
    /// Makes the memory disk, of `len_bytes`: `/dev/md0` (`mdconfig -a`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: not whole pages, or none. [`Errno::Busy`]: there is one. [`Errno::NoMemory`].
    pub fn attach_memory_disk(&self, len_bytes: u64) -> Result<(), Errno> {
        self.system_call(|_| self.kernel.memory_disk.attach(len_bytes))
    }

    /// Destroys the memory disk with all that is on it (`mdconfig -d`).
    ///
    /// # Errors
    /// [`Errno::NoDevice`]: there is none. [`Errno::Busy`]: it is open.
    pub fn detach_memory_disk(&self) -> Result<(), Errno> {
        self.system_call(|_| self.kernel.memory_disk.detach(&self.kernel))
    }

    /// Opens a device file, if `name` is one's.
    pub(super) fn open_device(&self, name: &str, flags: OpenFlags) -> Option<Result<Fd, Errno>> {
        let rights = (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::WRITE));
        let file = match name {
            MEMORY_DISK => {
                self.kernel.memory_disk.open().map(|()| File::new(DiskFile::new(self.machine(), rights)))
            }
            NULL => Ok(File::new(NullFile)),
            _ => return None,
        };
        Some(file.map(|file| self.process.files.lock().insert(file)))
    }
}
