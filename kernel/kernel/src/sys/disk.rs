//! The system calls of memory disks and of the volumes on them: to make one, to mount it, to unmount it, to destroy it.

use super::user::User;
use pageferry_abi::Errno;
use pageferry_fs::Format;
use pageferry_hal::Machine;

impl<M: Machine> User<M> {
    /// Makes the memory disk, of `len_bytes`: `/dev/md0` (`mdconfig -a`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: not whole pages, or none. [`Errno::Busy`]: there is one. [`Errno::NoMemory`].
    pub fn attach_memory_disk(&self, len_bytes: u64) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.memory_disk.attach(call.core, call.thread, len_bytes))
    }

    /// Destroys the memory disk with all that is on it (`mdconfig -d`).
    ///
    /// # Errors
    /// [`Errno::NoDevice`]: there is none. [`Errno::Busy`]: it is open.
    pub fn detach_memory_disk(&self) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.memory_disk.detach(call.core, call.thread))
    }

    /// What the memory disk takes of memory, in frames: those of its pages that were ever written or read
    /// (`mdconfig -l`, which tells the length alone).
    ///
    /// # Errors
    /// [`Errno::NoDevice`]: there is none.
    pub fn memory_disk_frames(&self) -> Result<usize, Errno> {
        self.system_call(|_| self.kernel.memory_disk.frames_held())
    }

    /// Makes an empty volume on the memory disk, and mounts it below `/mnt` (`newfs`, `mount`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: blocks or fragments of a size that there is not, or too small a disk. [`Errno::Busy`]:
    /// something is mounted. [`Errno::NoDevice`], [`Errno::NoMemory`], [`Errno::Interrupted`].
    pub fn make_volume(&self, format: Format) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.volumes.mount(call, Some(format), false))
    }

    /// The same with soft updates (`newfs -U`): names, inodes and pointers are written later, in an order that a power
    /// cut cannot hurt.
    ///
    /// # Errors
    /// As [`User::make_volume`].
    pub fn make_soft_volume(&self, format: Format) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.volumes.mount(call, Some(format), true))
    }

    /// Mounts the volume that is on the memory disk; one that was not unmounted is repaired first.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: there is none, or it cannot be used. As [`User::make_volume`].
    pub fn mount(&self) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.volumes.mount(call, None, false))
    }

    /// The same with soft updates: see [`User::make_soft_volume`].
    ///
    /// # Errors
    /// As [`User::mount`] and [`User::make_soft_volume`].
    pub fn mount_soft(&self) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.volumes.mount(call, None, true))
    }

    /// Writes all that waits to be written, and unmounts the volume.
    ///
    /// # Errors
    /// [`Errno::Busy`]: files are open. [`Errno::Invalid`]: nothing is mounted. [`Errno::Io`], [`Errno::Interrupted`].
    pub fn unmount(&self) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.volumes.unmount(call))
    }
}
