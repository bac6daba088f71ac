//! The system calls of memory disks: to make one, to open it as a device file, to destroy it; the null device; and what
//! is done with volumes and their directories.

use super::user::User;
use crate::fs::{Change, Links};
use alloc::string::String;
use alloc::vec::Vec;
use pageferry_abi::{Errno, FileStat};
use pageferry_fs::Format;
use pageferry_hal::Machine;

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

    /// Makes an empty volume on the memory disk, and mounts it below `/mnt` (`newfs`, `mount`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: blocks of a size that there is not, or too small a disk. [`Errno::Busy`]: something is
    /// mounted. [`Errno::NoDevice`], [`Errno::NoMemory`], [`Errno::Interrupted`].
    pub fn make_volume(&self, block_bytes: u32) -> Result<(), Errno> {
        let format = Some(Format { block_bytes });
        self.system_call(|call| self.kernel.volumes.mount(call, format))
    }

    /// Mounts the volume that is on the memory disk; one that was not unmounted is repaired first.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: there is none, or it cannot be used. As [`User::make_volume`].
    pub fn mount(&self) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.volumes.mount(call, None))
    }

    /// Writes all that waits to be written, and unmounts the volume.
    ///
    /// # Errors
    /// [`Errno::Busy`]: files are open. [`Errno::Invalid`]: nothing is mounted. [`Errno::Io`], [`Errno::Interrupted`].
    pub fn unmount(&self) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.volumes.unmount(call))
    }

    /// Makes a directory on the volume (`mkdir`).
    ///
    /// # Errors
    /// [`Errno::Exists`], [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::NoSpace`]; [`Errno::NotSupported`]
    /// elsewhere.
    pub fn mkdir(&self, name: &str) -> Result<(), Errno> {
        self.change_name(name, Change::MakeDirectory)
    }

    /// Takes an empty directory of the volume away (`rmdir`).
    ///
    /// # Errors
    /// [`Errno::NotEmpty`], [`Errno::NoFile`], [`Errno::NotDirectory`]; [`Errno::NotSupported`] elsewhere.
    pub fn rmdir(&self, name: &str) -> Result<(), Errno> {
        self.change_name(name, Change::RemoveDirectory)
    }

    fn change_name(&self, name: &str, how: Change) -> Result<(), Errno> {
        self.system_call(|call| {
            let (fs, path) = self.kernel.mounts.resolve(name)?;
            fs.change_name(call, path, how)
        })
    }

    /// What is known of a file or directory of the volume, by its name; of what it leads to, if it is a symbolic link
    /// (`stat`).
    ///
    /// # Errors
    /// [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::Loop`]; [`Errno::NotSupported`] elsewhere.
    pub fn stat(&self, name: &str) -> Result<FileStat, Errno> {
        self.stat_by(name, Links::Followed)
    }

    /// What is known of a file, a directory or a symbolic link of the volume, by its name (`lstat`).
    ///
    /// # Errors
    /// As [`User::stat`].
    pub fn stat_link(&self, name: &str) -> Result<FileStat, Errno> {
        self.stat_by(name, Links::Taken)
    }

    fn stat_by(&self, name: &str, links: Links) -> Result<FileStat, Errno> {
        self.system_call(|call| {
            let (fs, path) = self.kernel.mounts.resolve(name)?;
            fs.stat(call, path, links)
        })
    }

    /// Makes a symbolic link `name` on the volume, that has a path, whatever is there (`symlink`). A path that begins
    /// with `/` leads somewhere if it begins with the mount point; any other begins at the link's directory.
    ///
    /// # Errors
    /// [`Errno::Exists`], [`Errno::NotDirectory`], [`Errno::NoSpace`], [`Errno::NoFile`] also for no path,
    /// [`Errno::NameTooLong`] for more than 1,023 bytes; [`Errno::NotSupported`] elsewhere.
    pub fn symlink(&self, path: &str, name: &str) -> Result<(), Errno> {
        self.system_call(|call| {
            let (fs, name) = self.kernel.mounts.resolve(name)?;
            fs.symlink(call, path, name)
        })
    }

    /// The path of a symbolic link of the volume (`readlink`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: it is none. [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::Loop`];
    /// [`Errno::NotSupported`] elsewhere.
    pub fn read_link(&self, name: &str) -> Result<String, Errno> {
        self.system_call(|call| {
            let (fs, name) = self.kernel.mounts.resolve(name)?;
            let path = fs.read_link(call, name)?;
            Ok(String::from_utf8_lossy(&path).into_owned())
        })
    }

    /// Gives a file of the volume a name more (`link`).
    ///
    /// # Errors
    /// [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::Exists`], [`Errno::IsDirectory`], [`Errno::NoSpace`];
    /// [`Errno::NotSupported`] elsewhere.
    pub fn link(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.system_call(|call| {
            let (fs, from, to) = self.kernel.mounts.resolve_both(from, to)?;
            fs.link(call, from, to)
        })
    }

    /// Renames on the volume (`rename`): what has the new name goes.
    ///
    /// # Errors
    /// [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::IsDirectory`], [`Errno::NotEmpty`]; [`Errno::Invalid`]: a
    /// directory would come to lie within itself; [`Errno::NotSupported`] elsewhere.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.system_call(|call| {
            let (fs, from, to) = self.kernel.mounts.resolve_both(from, to)?;
            fs.rename(call, from, to)
        })
    }

    /// The names in a directory of the volume, in order, with whether each is a directory (`getdents`). The bytes of
    /// names that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// [`Errno::NoFile`], [`Errno::NotDirectory`]; [`Errno::NotSupported`] elsewhere.
    pub fn list(&self, name: &str) -> Result<Vec<(String, bool)>, Errno> {
        self.system_call(|call| {
            let (fs, path) = self.kernel.mounts.resolve(name)?;
            fs.list(call, path)
        })
    }
}
