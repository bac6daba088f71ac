//! Files on the disk as open files: what reads, writes, maps, cuts or grows them by a descriptor.
//!
//! All but the rights and the offset is the inode's: see `vnode`, and `file_transfer` for reading by page transfer.
//!
//! # Locks
//! The inode's sleep lock, for as long as bytes or pages move; the offset's lock of class `Pipe` for a moment.
//!
//! # What can fail
//! Rights that the file was not opened with; space on the disk, memory, the disk itself; the caller's addresses;
//! signals.

use super::ops::{FileOps, MapRequest, VnodeOps};
use super::vnode::Regular;
use crate::defect::NetDefect;
use crate::proc::{Syscall, Uio, UioMode, Visibility, Window};
use alloc::boxed::Box;
use pageferry_abi::Errno;
use pageferry_ephemeral::MappingUser;
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Pfn, Va};
use pageferry_vm::{Inherit, KernelLoan, Mapped, PushDown};

impl<M: Machine> FileOps<M> for Regular<M> {
    /// Reads up to the end of the file, by copy or by [transfer](Regular::transfer).
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        self.inode.locked(call, || {
            self.cursor.moving(
                uio,
                || Ok(self.cursor.at()),
                |uio| {
                    let left = self.inode.size_bytes().saturating_sub(uio.offset());
                    uio.limit(usize::try_from(left).unwrap_or(usize::MAX));
                    match uio.mode() {
                        UioMode::Copy => self.copy_bytes(call, uio.left(), uio),
                        UioMode::Pages | UioMode::Auto => self.transfer(call, uio),
                        _ => Err(Errno::NotSupported),
                    }
                },
            )
        })
    }

    /// Writes by copy; the file grows by what is written behind its end, and by no more.
    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::NotSupported);
        }
        let _c = call.machine().scope(Cause::Protocol);
        self.inode.locked(call, || {
            self.cursor.moving(
                uio,
                || Ok(self.next_write()),
                |uio| self.write_by(call, uio, |uio| self.copy_bytes(call, uio.left(), uio)),
            )
        })
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        (*self).close(&call.core.vm);
    }
}

impl<M: Machine> VnodeOps<M> for Regular<M> {
    fn seek(&self, _: &Syscall<'_, M>, to: u64) -> Result<(), Errno> {
        self.cursor.seek(to);
        Ok(())
    }

    fn size_bytes(&self, _: &Syscall<'_, M>) -> Result<u64, Errno> {
        Ok(self.inode.size_bytes())
    }

    fn truncate(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<(), Errno> {
        self.set_size(call, size_bytes)
    }

    fn sync(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        Ok(call.core.vm.clean_file(call.thread, &self.inode.object)?)
    }

    fn map(&self, call: &Syscall<'_, M>, mapping: &MapRequest) -> Result<Va, Errno> {
        let &MapRequest { offset, place, len_bytes, prot, max_prot, shared } = mapping;
        let mapped = Mapped {
            object: self.inode.object.clone(),
            first_page: offset / PAGE_SIZE as u64,
            copy_on_write: !shared,
        };
        let inherit = if shared { Inherit::Share } else { Inherit::Copy };
        let prots = (prot, max_prot);
        Ok(call.space.map_at(call.thread, place, len_bytes, prots, inherit, Some(mapped))?)
    }

    fn push_down(
        &self,
        call: &Syscall<'_, M>,
        at: Va,
        len_bytes: usize,
        how: PushDown,
    ) -> Result<usize, Errno> {
        let object = &self.inode.object;
        self.inode.locked(call, || Ok(call.space.push_down(call.thread, at, len_bytes, object, how)?))
    }

    fn with_header(
        &self,
        call: &Syscall<'_, M>,
        work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let len = self.inode.size_bytes().min(PAGE_SIZE as u64) as usize;
        if len == 0 {
            return Err(Errno::NotExecutable);
        }
        let wired = call.core.vm.wire_page(call.thread, &self.inode.object, 0, false)?;
        let shown = show_header(call, wired.frames()[0], len, work);
        call.core.vm.unwire(wired);
        shown
    }

    fn read_kernel(&self, call: &Syscall<'_, M>, at: u64, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.inode.locked(call, || {
            let len = self.there(at, len_bytes);
            self.each_page(call, at, len, false, &mut |kva, done, piece| {
                call.copy_kernel(to + done, kva, piece);
                Ok(())
            })?;
            Ok(len)
        })
    }

    fn loan_to_kernel(
        &self,
        call: &Syscall<'_, M>,
        at: u64,
        len_bytes: usize,
    ) -> Result<Option<KernelLoan>, Errno> {
        self.inode.locked(call, || {
            let len = self.there(at, len_bytes);
            if len == 0 {
                return Ok(None);
            }
            let beyond = call.core.config.net_defect.is(NetDefect::FileBeyondEnd);
            let len = if beyond { len_bytes } else { len };
            Ok(Some(call.core.vm.loan_object_to_kernel(call.thread, &self.inode.object, at, len)?))
        })
    }
}

impl<M: Machine> Regular<M> {
    /// How many of `wanted` bytes from `at` on are in the file. Under its sleep lock.
    fn there(&self, at: u64, wanted: usize) -> usize {
        let there = self.inode.size_bytes().saturating_sub(at);
        usize::try_from(there).unwrap_or(usize::MAX).min(wanted)
    }
}

/// Shows the frame with a file's first page to all CPUs, as `exec_map_first_page` maps it.
pub(super) fn show_header<M: Machine>(
    call: &Syscall<'_, M>,
    frame: Pfn,
    len: usize,
    work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut window = Window::open(call.core, MappingUser::Exec)?;
    let shown = window.show(call.core, call.thread, frame, Visibility::Shared, |va| work(va, len));
    window.close(call.core);
    shown.and_then(|done| done)
}
