//! Devices as open files: the memory disk, raw, and the null device.
//!
//! # What it holds
//! Where an open file of the disk is, and that the disk is open.
//!
//! # Locks
//! None of its own.
//!
//! # What can fail
//! A request for no whole sectors; and all that fails in [`super::physio`].

use super::memory_disk::MemoryDisk;
use super::physio::physio;
use crate::fs::{Cursor, FileOps, Rights, VnodeOps};
use crate::proc::{Syscall, Uio, UioMode, UioRw};
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_hal::Machine;

/// What is read and written at least, and at multiples of what (`DEV_BSIZE`).
pub const SECTOR_BYTES: usize = 512;

/// The memory disk as an open file.
pub struct DiskFile<M: Machine> {
    disk: Arc<MemoryDisk<M>>,
    cursor: Cursor<M>,
}

impl<M: Machine> DiskFile<M> {
    /// An open file of the disk, which was [opened](MemoryDisk::open).
    pub fn new(machine: &M, disk: Arc<MemoryDisk<M>>, rights: Rights) -> DiskFile<M> {
        DiskFile { disk, cursor: Cursor::new(machine, rights) }
    }

    /// Moves the whole sectors that `uio` is about, up to the disk's end.
    fn request(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let disk = &self.disk;
        let (at, end, sector) = (uio.offset(), disk.len_bytes(), SECTOR_BYTES as u64);
        if !at.is_multiple_of(sector) || !(uio.left() as u64).is_multiple_of(sector) {
            return Err(Errno::Invalid);
        }
        if uio.rw() == UioRw::Write && at >= end && uio.left() > 0 {
            return Err(Errno::NoSpace);
        }
        uio.limit(usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX));
        physio(call, disk, uio)
    }
}

impl<M: Machine> FileOps<M> for DiskFile<M> {
    /// Reads whole sectors; nothing at the disk's end.
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::BadFd);
        }
        self.cursor.moving(uio, || Ok(self.cursor.at()), |uio| self.request(call, uio))
    }

    /// Writes whole sectors; [`Errno::NoSpace`] at the disk's end.
    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::NotSupported);
        }
        self.cursor.moving(uio, || Ok(self.cursor.at()), |uio| self.request(call, uio))
    }

    fn release(self: Box<Self>, _: &Syscall<'_, M>) {
        self.disk.close();
    }
}

impl<M: Machine> VnodeOps<M> for DiskFile<M> {
    fn seek(&self, _: &Syscall<'_, M>, to: u64) -> Result<(), Errno> {
        self.cursor.seek(to);
        Ok(())
    }

    fn size_bytes(&self, _: &Syscall<'_, M>) -> Result<u64, Errno> {
        Ok(self.disk.len_bytes())
    }
}

/// The null device as an open file: takes everything, gives nothing.
pub struct NullFile;

impl<M: Machine> FileOps<M> for NullFile {
    fn read(&self, _: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() == UioMode::Copy { Ok(()) } else { Err(Errno::BadFd) }
    }

    fn write(&self, _: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        uio.advance(uio.left());
        Ok(())
    }

    fn release(self: Box<Self>, _: &Syscall<'_, M>) {}
}
