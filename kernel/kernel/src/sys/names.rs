//! The system calls about names: directories, links, renaming. A name is resolved by the mount table; the work is that
//! of its file system. `..` leads from the root of a mounted file system to the directory that it is mounted in.

use super::user::User;
use alloc::string::String;
use alloc::vec::Vec;
use pageferry_abi::{Errno, FileStat};
use pageferry_core::fs::{Change, Links};
use pageferry_hal::Machine;

impl<M: Machine> User<M> {
    /// Makes a directory (`mkdir`).
    ///
    /// # Errors
    /// [`Errno::Exists`], [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::NameTooLong`], [`Errno::NoSpace`].
    pub fn mkdir(&self, name: &str) -> Result<(), Errno> {
        self.change_name(name, Change::MakeDirectory)
    }

    /// Takes an empty directory away (`rmdir`).
    ///
    /// # Errors
    /// [`Errno::NotEmpty`], [`Errno::NoFile`], [`Errno::NotDirectory`]; [`Errno::Invalid`] for `.`.
    pub fn rmdir(&self, name: &str) -> Result<(), Errno> {
        self.change_name(name, Change::RemoveDirectory)
    }

    fn change_name(&self, name: &str, how: Change) -> Result<(), Errno> {
        self.system_call(|call| {
            self.kernel.mounts.resolve(call, name, Links::Taken, |fs, at| fs.change_name(call, at, how))
        })
    }

    /// What is known of a file or directory, by its name; of what it leads to, if it is a symbolic link (`stat`).
    ///
    /// # Errors
    /// [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::Loop`]; [`Errno::NotSupported`] of devices.
    pub fn stat(&self, name: &str) -> Result<FileStat, Errno> {
        self.stat_by(name, Links::Followed)
    }

    /// What is known of a file, a directory or a symbolic link, by its name (`lstat`).
    ///
    /// # Errors
    /// As [`User::stat`].
    pub fn stat_link(&self, name: &str) -> Result<FileStat, Errno> {
        self.stat_by(name, Links::Taken)
    }

    fn stat_by(&self, name: &str, links: Links) -> Result<FileStat, Errno> {
        self.system_call(|call| {
            self.kernel.mounts.resolve(call, name, links, |fs, at| fs.stat(call, at, links))
        })
    }

    /// Makes a symbolic link `name` that has a path, whatever is there (`symlink`). A path that begins with `/` begins
    /// at the root, and may lead to another file system; any other begins at the link's directory.
    ///
    /// # Errors
    /// [`Errno::Exists`], [`Errno::NotDirectory`], [`Errno::NoSpace`], [`Errno::NoFile`] also for no path,
    /// [`Errno::NameTooLong`] for more than 1,023 bytes; [`Errno::NotSupported`] below `/dev`.
    pub fn symlink(&self, path: &str, name: &str) -> Result<(), Errno> {
        self.system_call(|call| {
            self.kernel.mounts.resolve(call, name, Links::Taken, |fs, at| fs.symlink(call, path, at))
        })
    }

    /// The path of a symbolic link (`readlink`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: it is none. [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::Loop`];
    /// [`Errno::NotSupported`] below `/dev`.
    pub fn read_link(&self, name: &str) -> Result<String, Errno> {
        self.system_call(|call| {
            let path =
                self.kernel.mounts.resolve(call, name, Links::Taken, |fs, at| fs.read_link(call, at))?;
            Ok(String::from_utf8_lossy(&path).into_owned())
        })
    }

    /// Gives a file a name more, in the same file system (`link`).
    ///
    /// # Errors
    /// [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::Exists`], [`Errno::IsDirectory`], [`Errno::NoSpace`];
    /// [`Errno::CrossDevice`] for names of two file systems.
    pub fn link(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.system_call(|call| {
            let from = (from, Links::Followed);
            self.kernel.mounts.resolve_both(call, from, to, |fs, from, to| fs.link(call, from, to))
        })
    }

    /// Renames a file or a directory, in the same file system (`rename`): what has the new name goes.
    ///
    /// # Errors
    /// [`Errno::NoFile`], [`Errno::NotDirectory`], [`Errno::IsDirectory`], [`Errno::NotEmpty`]; [`Errno::Invalid`]: a
    /// directory would come to lie within itself; [`Errno::Busy`] for `.` and `..`; [`Errno::CrossDevice`] for names of
    /// two file systems.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.system_call(|call| {
            let from = (from, Links::Taken);
            self.kernel.mounts.resolve_both(call, from, to, |fs, from, to| fs.rename(call, from, to))
        })
    }

    /// The names in a directory, with whether each is a directory (`getdents`); without those that a file system is
    /// mounted on. The bytes of names that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// [`Errno::NoFile`], [`Errno::NotDirectory`].
    pub fn list(&self, name: &str) -> Result<Vec<(String, bool)>, Errno> {
        self.system_call(|call| {
            self.kernel.mounts.resolve(call, name, Links::Followed, |fs, at| fs.list(call, at))
        })
    }
}
