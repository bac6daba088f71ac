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

use super::cursor::{Cursor, either};
use super::file::FileOps;
use super::vnode::{Regular, trace_copy};
use crate::proc::{Shown, Syscall, Window};
use alloc::boxed::Box;
use pageferry_abi::{Errno, ReceiveMode, Received, SendMode};
use pageferry_hal::{Cause, FlowStep, Machine, PAGE_SIZE, Pfn, Place, Prot, Va};
use pageferry_vm::{Inherit, MapAddr, Mapped, PushDown};

impl<M: Machine> FileOps<M> for Regular<M> {
    fn cursor(&self) -> Option<&Cursor<M>> {
        Some(&self.cursor)
    }

    /// Reads from the offset on, and moves it: up to `len_bytes`, zero at the end of the file.
    fn read(&self, call: &Syscall<'_, M>, to: Va, len_bytes: usize, _: bool) -> Result<usize, Errno> {
        self.read_by(call, len_bytes, |from, len| self.copy_out(call, from, to, len))
    }

    /// See [`Regular::transfer`].
    fn read_transfer(
        &self,
        call: &Syscall<'_, M>,
        mode: ReceiveMode,
        at: Option<Va>,
        len_bytes: usize,
        _: bool,
    ) -> Result<Received, Errno> {
        self.transfer(call, mode, at, len_bytes)
    }

    /// Writes at the offset by copy, and moves it; the file grows by what is written behind its end, and by no more.
    fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
        _: bool,
    ) -> Result<usize, Errno> {
        if mode != SendMode::Copy {
            return Err(Errno::NotSupported);
        }
        let _c = call.machine().scope(Cause::Protocol);
        self.inode.locked(call, || {
            let at = self.next_write();
            let wrote = self.copy_from(call, from, at, len_bytes)?;
            self.cursor.moved_on(at, wrote)
        })
    }

    fn read_at(&self, call: &Syscall<'_, M>, offset: u64, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        self.inode.locked(call, || {
            let left = self.inode.size_bytes().saturating_sub(offset);
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(len_bytes);
            either(self.copy_out(call, offset, to, len))
        })
    }

    fn write_at(
        &self,
        call: &Syscall<'_, M>,
        offset: u64,
        from: Va,
        len_bytes: usize,
    ) -> Result<usize, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        self.inode.locked(call, || either(self.copy_from(call, from, offset, len_bytes)?))
    }

    fn size_bytes(&self, _: &Syscall<'_, M>) -> Result<u64, Errno> {
        Ok(self.inode.size_bytes())
    }

    fn truncate(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<(), Errno> {
        if !self.cursor.rights.writable {
            return Err(Errno::BadFd);
        }
        self.inode.set_size(call, size_bytes)
    }

    fn sync(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        Ok(call.kernel.vm.clean_file(call.thread, &self.inode.object)?)
    }

    fn map(
        &self,
        call: &Syscall<'_, M>,
        offset: u64,
        place: MapAddr,
        len_bytes: usize,
        prot: Prot,
        shared: bool,
    ) -> Result<Va, Errno> {
        if !offset.is_multiple_of(PAGE_SIZE as u64) {
            return Err(Errno::Invalid);
        }
        let mut max_prot = Prot::all();
        if shared && !self.cursor.rights.writable {
            max_prot.remove(Prot::WRITE);
        }
        if !self.cursor.rights.readable || !max_prot.contains(prot) {
            return Err(Errno::Access);
        }
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
        if !self.cursor.rights.writable {
            return Err(Errno::Access);
        }
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
        let wired = call.kernel.vm.wire_page(call.thread, &self.inode.object, 0, false)?;
        let shown = show_header(call, wired.frames()[0], len, work);
        call.kernel.vm.unwire(wired);
        shown
    }

    fn as_regular(&self) -> Option<&Regular<M>> {
        Some(self)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        call.kernel.files.close(&call.kernel.vm, *self);
    }
}

impl<M: Machine> Regular<M> {
    /// Copies from the process to the file from byte `at` on. The caller holds the inode's sleep lock.
    fn copy_from(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        at: u64,
        len_bytes: usize,
    ) -> Result<(usize, Result<(), Errno>), Errno> {
        self.inode.write_by(call, at, len_bytes, || {
            self.each_page(call, at, len_bytes, true, |kva, done, piece| {
                trace_copy(call, kva, piece, Place::User(from + done), FlowStep::Taken);
                let copied = call.copy_in(kva, from + done, piece);
                trace_copy(call, kva, piece, Place::File(at + done as u64), FlowStep::Received);
                copied
            })
        })
    }
}

/// Shows the frame with a file's first page to all CPUs, as `exec_map_first_page` maps it.
pub(super) fn show_header<M: Machine>(
    call: &Syscall<'_, M>,
    frame: Pfn,
    len: usize,
    work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut window = Window::open(call.kernel)?;
    let shown = window.show(call.kernel, call.thread, frame, Shown::ToAll, |va| work(va, len));
    window.close(call.kernel);
    shown.and_then(|done| done)
}
