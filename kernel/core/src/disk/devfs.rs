//! The devices below `/dev`, by name: the memory disk and the null device.
//!
//! # Locks
//! Those of the devices.
//!
//! # What can fail
//! Opening what is not there.

use super::device_file::{DiskFile, NullFile};
use super::memory_disk::MemoryDisk;
use crate::fs::{DirEntry, File, FileSystem, Lookup, Opening, Rights};
use crate::proc::Syscall;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_hal::Machine;

const MEMORY_DISK: &str = "md0";
const NULL: &str = "null";

/// The devices below `/dev`, by name: the memory disk and the null device.
pub struct DevFs<M: Machine> {
    memory_disk: Arc<MemoryDisk<M>>,
}

impl<M: Machine> DevFs<M> {
    /// The devices of a kernel.
    pub fn new(memory_disk: Arc<MemoryDisk<M>>) -> DevFs<M> {
        DevFs { memory_disk }
    }
}

impl<M: Machine> FileSystem<M> for DevFs<M> {
    fn open(
        &self,
        call: &Syscall<'_, M>,
        at: Lookup<'_>,
        _: Opening,
        rights: Rights,
    ) -> Result<File<M>, Errno> {
        match at.path {
            MEMORY_DISK => {
                self.memory_disk.open()?;
                let file = DiskFile::new(call.machine(), self.memory_disk.clone(), rights);
                Ok(File::vnode(file, rights))
            }
            NULL => Ok(File::new(NullFile, rights)),
            _ => Err(Errno::NoFile),
        }
    }

    fn list(&self, _: &Syscall<'_, M>, at: Lookup<'_>) -> Result<Vec<DirEntry>, Errno> {
        if !at.path.is_empty() {
            return Err(Errno::NotDirectory);
        }
        let disk = self.memory_disk.exists().then_some(MEMORY_DISK);
        Ok(disk.into_iter().chain([NULL]).map(|name| (name.to_string(), false)).collect())
    }
}
