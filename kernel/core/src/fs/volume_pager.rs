//! The vnode pager of the volume: pages of its files, from the disk block by block, because a block may be smaller than
//! a page (sf_buf paper, 2.6; `vnode_pager_input_smlfs`), and back through the volume's buffers.
//!
//! # Locks
//! The volume's sleep lock, for as long as a page moves. While it does the page is mapped for all CPUs.
//!
//! # What can fail
//! The disk; space on the volume, where a page goes to a hole; addresses.

use super::buffer_cache::Cached;
use super::buffers::Disk;
use super::mounted::MountedVolume;
use super::volume_work::write_bytes;
use crate::base::Core;
use crate::counter::KernelCounter;
use crate::proc::{Uio, UioRw, Visibility, Window};
use alloc::sync::{Arc, Weak};
use pageferry_abi::{Errno, SendMode};
use pageferry_ephemeral::MappingUser;
use pageferry_fs::{Ino, Store as _, Volume};
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Pfn, Threads, Va};
use pageferry_vm::{VmError, VnodePager};

/// Who moves the pages of a file. It belongs to the file's object, which the volume has: so it keeps neither.
pub(super) struct FilePager<M: Machine> {
    core: Weak<Core<M>>,
    mounted: Weak<MountedVolume<M>>,
    ino: Ino,
}

impl<M: Machine> FilePager<M> {
    pub(super) fn new(core: &Arc<Core<M>>, mounted: &Arc<MountedVolume<M>>, ino: Ino) -> FilePager<M> {
        FilePager { core: Arc::downgrade(core), mounted: Arc::downgrade(mounted), ino }
    }

    /// Does `work` with the volume and the address of a frame.
    fn with_frame(
        &self,
        t: &dyn Threads,
        frame: Pfn,
        work: impl FnOnce(&Core<M>, &mut Volume, &mut Cached<'_, Disk<'_, M>>, Va) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (Some(core), Some(mounted)) = (self.core.upgrade(), self.mounted.upgrade()) else {
            return Err(Errno::Io);
        };
        mounted.with(&core, t, false, |volume, disk, _| {
            let mut window = Window::open(&core, MappingUser::VnodePager)?;
            let shown = window.show(&core, t, frame, Visibility::Shared, |va| work(&core, volume, disk, va));
            window.close(&core);
            shown.and_then(|done| done)
        })
    }
}

impl<M: Machine> VnodePager for FilePager<M> {
    fn get(&self, t: &dyn Threads, page: u64, frame: Pfn) -> Result<(), VmError> {
        let got = self.with_frame(t, frame, |core, volume, disk, va| {
            {
                let _c = core.machine.scope(Cause::Zero);
                core.machine.zero(va, PAGE_SIZE).expect("the kernel's own address is mapped");
            }
            page_from_disk(core, t, (volume, disk), self.ino, va, page * PAGE_SIZE as u64)
        });
        got.map_err(error_of)
    }

    fn put(&self, t: &dyn Threads, page: u64, frame: Pfn) -> Result<(), VmError> {
        let put = self.with_frame(t, frame, |core, volume, disk, va| {
            let at = page * PAGE_SIZE as u64;
            let size = volume.stat(disk, self.ino)?.size_bytes;
            let len = usize::try_from(size.saturating_sub(at)).map_or(PAGE_SIZE, |len| len.min(PAGE_SIZE));
            let mut uio = Uio::write(va, len, SendMode::Copy).at_offset(at);
            write_bytes(volume, disk, self.ino, &mut uio, &mut |to, len, uio: &mut Uio| {
                let _c = core.machine.scope(Cause::Copy);
                core.machine.copy_kernel(to, uio.at(), len).expect("the kernel's own addresses are mapped");
                core.machine.count(KernelCounter::BytesCopied, len as u64);
                uio.advance(len);
                Ok(())
            })
        });
        put.map_err(error_of)
    }
}

/// Memory that is short is not an error of the disk: what needs it may be done later.
fn error_of(e: Errno) -> VmError {
    if e == Errno::NoMemory { VmError::NoMemory } else { VmError::Io }
}

/// Fills a page at `va`, which is clear, with the bytes of a file from `at` on: block by block from the disk. Behind
/// the file's end there are zeros.
pub(super) fn page_from_disk<M: Machine>(
    core: &Core<M>,
    threads: &dyn Threads,
    (volume, disk): (&mut Volume, &mut Cached<'_, Disk<'_, M>>),
    ino: Ino,
    va: Va,
    at: u64,
) -> Result<(), Errno> {
    let block_bytes = volume.geometry().block_bytes as usize;
    let mut done = 0;
    while done < PAGE_SIZE {
        let piece = volume.piece(disk, ino, at + done as u64, block_bytes.min(PAGE_SIZE - done))?;
        if piece.len_bytes == 0 {
            break;
        }
        if let Some(from) = piece.at {
            // The disk has it before it is read from there; behind a file's end there are zeros.
            let len = piece.len_bytes.next_multiple_of(512) as u64;
            disk.flush(from..from + len)?;
            let read = (from..from + len, va + done, UioRw::Read);
            disk.strategy.disk().io(core, threads, read).1?;
        }
        done += piece.len_bytes;
    }
    Ok(())
}
