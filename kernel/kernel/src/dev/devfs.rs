//! The devices below `/dev`, by name: the memory disk and the null device.
//!
//! # Locks
//! Those of the devices.
//!
//! # What can fail
//! Opening what is not there.

use super::memory_disk::{DiskFile, NullFile};
use crate::fs::{DirEntry, File, FileSystem, Opening, Rights};
use crate::proc::Syscall;
use alloc::string::ToString;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_hal::Machine;

const MEMORY_DISK: &str = "md0";
const NULL: &str = "null";

/// See the [module](self).
pub(crate) struct DevFs;

impl<M: Machine> FileSystem<M> for DevFs {
    fn open(&self, call: &Syscall<'_, M>, path: &str, _: Opening, rights: Rights) -> Result<File<M>, Errno> {
        match path {
            MEMORY_DISK => {
                call.kernel.memory_disk.open()?;
                Ok(File::vnode(DiskFile::new(call.machine(), rights), rights))
            }
            NULL => Ok(File::new(NullFile, rights)),
            _ => Err(Errno::NoFile),
        }
    }

    fn list(&self, call: &Syscall<'_, M>, path: &str) -> Result<Vec<DirEntry>, Errno> {
        if !path.is_empty() {
            return Err(Errno::NotDirectory);
        }
        let disk = call.kernel.memory_disk.exists().then_some(MEMORY_DISK);
        Ok(disk.into_iter().chain([NULL]).map(|name| (name.to_string(), false)).collect())
    }
}
