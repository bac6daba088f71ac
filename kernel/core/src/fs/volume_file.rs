//! A file of the mounted volume as an open file: read, written, cut, synced, and mapped.
//!
//! Bytes go between the caller and the volume's buffers. A mapping is private: its pages are a VM object's of its own,
//! which the vnode pager fills when it is made, block by block, because a block may be smaller than a page: each page
//! is mapped for all CPUs while the disk writes to it (sf_buf paper, 2.6; `vnode_pager_input_smlfs`).
//!
//! # Locks
//! The volume's sleep lock, for as long as bytes move; the offset's lock of class `Pipe` for a moment.
//!
//! # What can fail
//! Space on the volume, memory, the caller's addresses, signals.

use super::buffer_cache::Cached;
use super::buffers::Disk;
use super::cursor::{Cursor, Rights};
use super::mounted::MountedVolume;
use super::ops::{FileOps, MapRequest, VnodeOps};
use super::regular::show_header;
use super::volume_pager::page_from_disk;
use super::volume_work::{read_bytes, write_bytes};
use crate::proc::{Syscall, Uio, UioMode, Visibility, Window};
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_ephemeral::MappingUser;
use pageferry_fs::{Ino, Volume};
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Prot, Va};
use pageferry_vm::{Backing, Inherit, KernelLoan, Mapped, Object, Wired};

/// See the [module](self).
pub struct VolumeFile<M: Machine> {
    mounted: Arc<MountedVolume<M>>,
    ino: Ino,
    cursor: Cursor<M>,
}

impl<M: Machine> VolumeFile<M> {
    /// An open file of the volume, which was opened there.
    pub fn new(machine: &M, mounted: Arc<MountedVolume<M>>, ino: Ino, rights: Rights) -> VolumeFile<M> {
        VolumeFile { mounted, ino, cursor: Cursor::new(machine, rights) }
    }
}

impl<M: Machine> FileOps<M> for VolumeFile<M> {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::BadFd);
        }
        call.machine().execute(call.core.config.disk.paths.file_call);
        let by_buffers = self.by_buffers(call, |volume, disk| {
            self.cursor.moving(
                uio,
                || Ok(self.cursor.at()),
                |uio| {
                    let piece = &mut |va, len, uio: &mut Uio| call.uiomove(va, len, uio);
                    let hole = &mut |len, uio: &mut Uio| call.uiozero(len, uio);
                    read_bytes(volume, disk, self.ino, uio, piece, hole)
                },
            )
        });
        by_buffers.unwrap_or_else(|| {
            self.mounted.by_pages(call, || {
                self.cursor.moving(uio, || Ok(self.cursor.at()), |uio| self.move_pages(call, uio))
            })
        })
    }

    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::NotSupported);
        }
        call.machine().execute(call.core.config.disk.paths.file_call);
        let by_buffers = self.by_buffers(call, |volume, disk| {
            if self.cursor.rights.appends && !uio.is_positional() {
                self.cursor.seek(volume.stat(disk, self.ino)?.size_bytes);
            }
            self.cursor.moving(
                uio,
                || Ok(self.cursor.at()),
                |uio| {
                    let piece = &mut |va, len, uio: &mut Uio| call.uiomove(va, len, uio);
                    write_bytes(volume, disk, self.ino, uio, piece)
                },
            )
        });
        by_buffers.unwrap_or_else(|| {
            self.mounted.by_pages(call, || {
                if self.cursor.rights.appends && !uio.is_positional() {
                    self.cursor.seek(self.size_bytes(call)?);
                }
                self.cursor.moving(uio, || Ok(self.cursor.at()), |uio| self.move_pages(call, uio))
            })
        })
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        self.mounted.close(call, self.ino);
    }
}

impl<M: Machine> VnodeOps<M> for VolumeFile<M> {
    fn seek(&self, _: &Syscall<'_, M>, to: u64) -> Result<(), Errno> {
        self.cursor.seek(to);
        Ok(())
    }

    fn size_bytes(&self, call: &Syscall<'_, M>) -> Result<u64, Errno> {
        self.mounted
            .with(call.core, call.thread, true, |volume, disk, _| Ok(volume.stat(disk, self.ino)?.size_bytes))
    }

    fn truncate(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<(), Errno> {
        let by_buffers =
            self.by_buffers(call, |volume, disk| Ok(volume.truncate(disk, self.ino, size_bytes)?));
        by_buffers.unwrap_or_else(|| {
            self.mounted.by_pages(call, || self.mounted.set_size(call, self.ino, size_bytes))
        })
    }

    fn sync(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        self.mounted.write_back(call, self.ino)?;
        self.mounted.with(call.core, call.thread, true, |volume, disk, _| Ok(volume.fsync(disk, self.ino)?))
    }

    fn map(&self, call: &Syscall<'_, M>, mapping: &MapRequest) -> Result<Va, Errno> {
        // Beside shared mappings a private one sees what they store, until it has a page of its own.
        if mapping.shared || self.mounted.has_objects() {
            return self.map_object(call, mapping);
        }
        map_private(call, mapping, || self.size_bytes(call), &mut |va, at| self.fill(call, va, at))
    }

    fn with_header(
        &self,
        call: &Syscall<'_, M>,
        work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.mounted.write_back(call, self.ino)?;
        let size = self.size_bytes(call)?;
        show_first_page(call, size, &mut |va, at| self.fill(call, va, at), work)
    }

    fn read_kernel(&self, call: &Syscall<'_, M>, at: u64, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        call.machine().execute(call.core.config.disk.paths.file_call);
        self.mounted.write_back(call, self.ino)?;
        let mut uio = Uio::read(to, len_bytes).at_offset(at);
        self.mounted.with(call.core, call.thread, true, |volume, disk, _| {
            let piece = &mut |va, len, uio: &mut Uio| {
                call.copy_kernel(uio.at(), va, len);
                uio.advance(len);
                Ok(())
            };
            let hole = &mut |len, uio: &mut Uio| {
                let _c = call.machine().scope(Cause::Zero);
                call.machine().zero(uio.at(), len).expect("the kernel's own address is mapped");
                uio.advance(len);
                Ok(())
            };
            read_bytes(volume, disk, self.ino, &mut uio, piece, hole)
        })?;
        Ok(uio.done())
    }

    /// Lends the file's own page: from then on files of the volume are read and written by pages.
    fn loan_to_kernel(
        &self,
        call: &Syscall<'_, M>,
        at: u64,
        len_bytes: usize,
    ) -> Result<Option<KernelLoan>, Errno> {
        self.mounted.by_pages(call, || {
            self.mounted.with_object(call, self.ino, |object| {
                let left = self.size_bytes(call)?.saturating_sub(at);
                let len = usize::try_from(left).map_or(len_bytes, |left| left.min(len_bytes));
                if len == 0 {
                    return Ok(None);
                }
                Ok(Some(call.core.vm.loan_object_to_kernel(call.thread, object, at, len)?))
            })
        })
    }
}

impl<M: Machine> VolumeFile<M> {
    /// Fills a page at `va`, which is clear, with the bytes of the file from `at` on.
    fn fill(&self, call: &Syscall<'_, M>, va: Va, at: u64) -> Result<(), Errno> {
        self.mounted.with(call.core, call.thread, true, |volume, disk, _| {
            page_from_disk(call.core, call.thread, (volume, disk), self.ino, va, at)
        })
    }

    /// Does `work` on the volume and its buffers; nothing where files are read and written by pages.
    fn by_buffers(
        &self,
        call: &Syscall<'_, M>,
        work: impl FnOnce(&mut Volume, &mut Cached<'_, Disk<'_, M>>) -> Result<(), Errno>,
    ) -> Option<Result<(), Errno>> {
        if self.mounted.has_objects() {
            return None;
        }
        let done = self.mounted.with(call.core, call.thread, true, |volume, disk, _| {
            // Under the volume's lock, so that no page is an object's before the work is done.
            if self.mounted.has_objects() { Ok(None) } else { Ok(Some(work(volume, disk))) }
        });
        done.unwrap_or_else(|e| Some(Err(e)))
    }

    fn move_pages(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let copy = &mut |kva, len, uio: &mut Uio| call.uiomove(kva, len, uio);
        self.mounted.move_pages(call, self.ino, uio, copy)
    }

    /// Maps the file's own pages, which come at faults.
    fn map_object(&self, call: &Syscall<'_, M>, mapping: &MapRequest) -> Result<Va, Errno> {
        let &MapRequest { offset, place, len_bytes, prot, max_prot, shared } = mapping;
        self.mounted.by_pages(call, || {
            self.mounted.with_object(call, self.ino, |object| {
                let mapped = Mapped {
                    object: object.clone(),
                    first_page: offset / PAGE_SIZE as u64,
                    copy_on_write: !shared,
                };
                let inherit = if shared { Inherit::Share } else { Inherit::Copy };
                let prots = (prot, max_prot);
                Ok(call.space.map_at(call.thread, place, len_bytes, prots, inherit, Some(mapped))?)
            })
        })
    }
}

/// Fills a page at a kernel address, which is clear, with the bytes of a file from some byte on.
pub type Fill<'a> = &'a mut dyn FnMut(Va, u64) -> Result<(), Errno>;

/// Maps a file privately: the pages of an object of its own, all filled now.
pub fn map_private<M: Machine>(
    call: &Syscall<'_, M>,
    mapping: &MapRequest,
    size: impl FnOnce() -> Result<u64, Errno>,
    fill: Fill<'_>,
) -> Result<Va, Errno> {
    let &MapRequest { offset, place, len_bytes, prot, shared, .. } = mapping;
    if shared {
        return Err(Errno::NotSupported);
    }
    if len_bytes == 0 {
        return Err(Errno::Invalid);
    }
    let (core, thread) = (call.core, call.thread);
    // Behind the file's end there are zeros.
    let mapped_pages = len_bytes.div_ceil(PAGE_SIZE) as u64;
    let pages = size()?.saturating_sub(offset).div_ceil(PAGE_SIZE as u64).min(mapped_pages);
    let object = core.vm.object(mapped_pages, Backing::Zero)?;
    let filled = (0..pages).try_for_each(|page| {
        let wired = page_in(call, &object, page, offset + page * PAGE_SIZE as u64, fill)?;
        core.vm.unwire(wired);
        Ok(())
    });
    let mapped = filled.and_then(|()| {
        let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: true };
        let prots = (prot, Prot::all());
        Ok(call.space.map_at(thread, place, len_bytes, prots, Inherit::Copy, Some(mapped))?)
    });
    core.vm.release_object(object);
    mapped
}

/// Calls `work` with the address of a file's first page, and how many bytes of it are the file's.
pub fn show_first_page<M: Machine>(
    call: &Syscall<'_, M>,
    size: u64,
    fill: Fill<'_>,
    work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let len = size.min(PAGE_SIZE as u64) as usize;
    if len == 0 {
        return Err(Errno::NotExecutable);
    }
    let vm = &call.core.vm;
    let object = vm.object(1, Backing::Zero)?;
    let shown = page_in(call, &object, 0, 0, fill).and_then(|wired| {
        let shown = show_header(call, wired.frames()[0], len, work);
        vm.unwire(wired);
        shown
    });
    vm.release_object(object);
    shown
}

/// Makes a page of an object resident that has the bytes of a file from `at` on, and wires it: the vnode pager's way
/// where a block may be smaller than a page.
fn page_in<M: Machine>(
    call: &Syscall<'_, M>,
    object: &Arc<Object<M>>,
    page: u64,
    at: u64,
    fill: Fill<'_>,
) -> Result<Wired, Errno> {
    let (core, thread) = (call.core, call.thread);
    let wired = core.vm.wire_page(thread, object, page, true)?;
    let frame = wired.frames()[0];
    let filled = Window::open(core, MappingUser::VnodePager).and_then(|mut window| {
        let shown = window.show(core, thread, frame, Visibility::Shared, |va| fill(va, at));
        window.close(core);
        shown.and_then(|filled| filled)
    });
    match filled {
        Ok(()) => Ok(wired),
        Err(e) => {
            core.vm.unwire(wired);
            Err(e)
        }
    }
}
