//! A mounted volume by its names: the file system on the memory disk, below `/mnt`.
//!
//! What is mounted, and its lock, is in [`mounted`](super::mounted); what is done with a volume is in
//! [`volume_work`]. Here are paths, and the files that come of them.
//!
//! # What can fail
//! All that fails in a file system; a wait, by a signal.

use super::cursor::Rights;
use super::file::File;
use super::mounted::MountedVolume;
use super::ops::{FileOps as _, VnodeOps as _};
use super::vfs::{Change, DirEntry, FileSystem, Links, Lookup, Opening, WayOff};
use super::volume_file::VolumeFile;
use super::volume_work;
use crate::proc::Syscall;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, FileStat};
use pageferry_fs::Format;
use pageferry_hal::Machine;

/// The names of the volume that is mounted below `/mnt`.
pub struct Mount<M: Machine>(Arc<MountedVolume<M>>);

impl<M: Machine> Mount<M> {
    /// The names of what is mounted there.
    pub fn new(mounted: Arc<MountedVolume<M>>) -> Mount<M> {
        Mount(mounted)
    }
}

/// Who has the volume of a kernel. The memory disk is open as long as something is mounted.
///
/// # Locks
/// Calls sleep: no spin lock is held before and after.
pub trait Volumes<M: Machine>: FileSystem<M> {
    /// Makes a volume on the memory disk (`newfs`), which is not mounted, or mounts what is there; with soft updates,
    /// if that is said.
    fn mount(&self, call: &Syscall<'_, M>, format: Option<Format>, soft_updates: bool) -> Result<(), Errno>;

    /// Writes all, and lets go of the disk.
    fn unmount(&self, call: &Syscall<'_, M>) -> Result<(), Errno>;
}

impl<M: Machine> Volumes<M> for Mount<M> {
    fn mount(&self, call: &Syscall<'_, M>, format: Option<Format>, soft_updates: bool) -> Result<(), Errno> {
        self.0.mount(call, format, soft_updates)
    }

    fn unmount(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        self.0.let_go(call.core, call.thread, true)
    }
}

impl<M: Machine> FileSystem<M> for Mount<M> {
    fn open(
        &self,
        call: &Syscall<'_, M>,
        at: Lookup<'_>,
        how: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno> {
        // Where pages are an object's, a file is cut by those.
        let cuts_pages = how.truncate && self.0.has_objects();
        let how = Opening { truncate: how.truncate && !cuts_pages, ..how };
        let file = self.0.with(call.core, call.thread, true, |volume, disk, opens| {
            let found = volume_work::open(volume, disk, at, how)?;
            *opens += 1;
            Ok(VolumeFile::new(call.machine(), self.0.clone(), found, rights))
        })?;
        if cuts_pages && let Err(e) = file.truncate(call, 0) {
            Box::new(file).release(call);
            return Err(e);
        }
        Ok(File::vnode(file, rights))
    }

    fn way_off(&self, call: &Syscall<'_, M>, at: Lookup<'_>, links: Links) -> Result<Option<WayOff>, Errno> {
        self.0.with(call.core, call.thread, true, |volume, disk, _| {
            volume_work::way_off(volume, disk, at, links)
        })
    }

    fn change_name(&self, call: &Syscall<'_, M>, at: Lookup<'_>, how: Change) -> Result<(), Errno> {
        self.0.with(call.core, call.thread, true, |volume, disk, _| {
            volume_work::change_name(volume, disk, at, how)
        })
    }

    fn stat(&self, call: &Syscall<'_, M>, at: Lookup<'_>, links: Links) -> Result<FileStat, Errno> {
        self.0.with(call.core, call.thread, true, |volume, disk, _| {
            volume_work::stat(volume, disk, at, links).map(volume_work::file_stat)
        })
    }

    fn symlink(&self, call: &Syscall<'_, M>, path: &str, at: Lookup<'_>) -> Result<(), Errno> {
        self.0.with(call.core, call.thread, true, |volume, disk, _| {
            volume_work::make_link(volume, disk, path, at)
        })
    }

    fn read_link(&self, call: &Syscall<'_, M>, at: Lookup<'_>) -> Result<Vec<u8>, Errno> {
        self.0.with(call.core, call.thread, true, |volume, disk, _| volume_work::read_link(volume, disk, at))
    }

    fn link(&self, call: &Syscall<'_, M>, from: Lookup<'_>, to: Lookup<'_>) -> Result<(), Errno> {
        self.0.with(call.core, call.thread, true, |volume, disk, _| volume_work::link(volume, disk, from, to))
    }

    fn rename(&self, call: &Syscall<'_, M>, from: Lookup<'_>, to: Lookup<'_>) -> Result<(), Errno> {
        self.0
            .with(call.core, call.thread, true, |volume, disk, _| volume_work::rename(volume, disk, from, to))
    }

    fn list(&self, call: &Syscall<'_, M>, at: Lookup<'_>) -> Result<Vec<DirEntry>, Errno> {
        self.0.with(call.core, call.thread, true, |volume, disk, _| {
            Ok(volume_work::dir_entries(&volume_work::entries(volume, disk, at)?))
        })
    }
}
