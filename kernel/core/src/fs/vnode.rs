//! Files of the file system in memory as they are open: their bytes, and how long they are.
//!
//! The disk holds a block for each page of a file, behind the swap area; [`Inodes`] has those that are free.
//!
//! # Locks
//! The inode's sleep lock, for as long as bytes move or the length changes.
//!
//! # What can fail
//! Growing a file, for want of blocks; the disk; waits, by a signal.

use super::cursor::{Cursor, Rights};
use super::inode::Inode;
use super::inodes::Inodes;
use super::object_io::{clear_tail, each_page};
use crate::proc::{Syscall, Uio, UioRw};
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_hal::{Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Place, Va};
use pageferry_vm::Vm;

/// An open file: what is to be done with it, and where it is read or written next.
pub struct Regular<M: Machine> {
    inodes: Arc<Inodes<M>>,
    /// Open until this is closed.
    pub inode: Arc<Inode<M>>,
    pub(super) cursor: Cursor<M>,
}

impl<M: Machine> Regular<M> {
    /// A file of `inodes`, which was opened there.
    pub(super) fn new(
        machine: &M,
        inodes: Arc<Inodes<M>>,
        inode: Arc<Inode<M>>,
        rights: Rights,
    ) -> Regular<M> {
        Regular { inodes, inode, cursor: Cursor::new(machine, rights) }
    }

    /// Nobody has it open by this file any more.
    pub(super) fn close(self, vm: &Vm<M>) {
        self.inodes.close(vm, self.inode);
    }

    /// Makes the file at least `size_bytes` long, and answers how long it was. The caller holds its sleep lock.
    fn grow(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<u64, Errno> {
        let old = self.inode.size_bytes();
        if size_bytes <= old {
            return Ok(old);
        }
        let pages = size_bytes.div_ceil(PAGE_SIZE as u64);
        let more = pages.saturating_sub(self.inode.object.len_pages());
        let blocks = self.inodes.take_blocks(usize::try_from(more).map_err(|_| Errno::NoSpace)?)?;
        clear_tail(call, &self.inode.object, old).inspect_err(|_| self.inodes.give_blocks(blocks.clone()))?;
        call.core.vm.extend_file(&self.inode.object, blocks);
        self.inode.set_size_bytes(size_bytes);
        Ok(old)
    }

    /// Makes the file `size_bytes` long (`ftruncate`).
    pub fn set_size(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<(), Errno> {
        self.inode.locked(call, || {
            if size_bytes > self.inode.size_bytes() {
                return self.grow(call, size_bytes).map(drop);
            }
            self.cut(call, size_bytes);
            clear_tail(call, &self.inode.object, size_bytes)
        })
    }

    /// Takes what lies behind `size_bytes` from the file, and gives its blocks back. The rest of the last page is
    /// cleared when the file grows again, at the latest. The caller holds its sleep lock.
    fn cut(&self, call: &Syscall<'_, M>, size_bytes: u64) {
        let pages = size_bytes.div_ceil(PAGE_SIZE as u64);
        self.inode.set_size_bytes(size_bytes);
        let blocks = call.core.vm.truncate_file(call.thread, &self.inode.object, pages);
        self.inodes.give_blocks(blocks);
    }

    /// Makes room for what a buffer has, from its byte of the file on, and lets `write` fill it. A file that grew ends
    /// where the writing ended; where nothing was written it is as long as before. The caller holds its sleep lock.
    ///
    /// # Errors
    /// When there is no room, and nothing was tried; what `write` answers is passed on.
    pub(super) fn write_by(
        &self,
        call: &Syscall<'_, M>,
        uio: &mut Uio,
        write: impl FnOnce(&mut Uio) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let end = uio.offset().checked_add(uio.left() as u64).ok_or(Errno::Invalid)?;
        if uio.left() == 0 {
            return write(uio);
        }
        let (old, before) = (self.grow(call, end)?, uio.done());
        let result = write(uio);
        let reached = if uio.done() > before { old.max(uio.offset()) } else { old };
        if reached < end {
            self.cut(call, reached);
        }
        result
    }

    /// Where the next write begins. The caller holds the inode's sleep lock.
    pub(super) fn next_write(&self) -> u64 {
        if self.cursor.rights.appends { self.inode.size_bytes() } else { self.cursor.at() }
    }

    /// Copies the next `len` bytes between the file and a buffer, whichever way that goes.
    pub(super) fn copy_bytes(&self, call: &Syscall<'_, M>, len: usize, uio: &mut Uio) -> Result<(), Errno> {
        let (at, first) = (uio.offset(), uio.at());
        let writes = uio.rw() == UioRw::Write;
        self.each_page(call, at, len, writes, &mut |kva, done, piece| {
            let (file, user) = (Place::File(at + done as u64), Place::User(first + done));
            let (from, to) = if writes { (user, file) } else { (file, user) };
            trace_copy(call, kva, piece, from, FlowStep::Taken);
            let copied = call.uiomove(kva, piece, uio);
            trace_copy(call, kva, piece, to, FlowStep::Received);
            copied
        })
    }

    /// Calls `copy` with the kernel address of each piece of `len` bytes from byte `at` on, a page at a time.
    pub(super) fn each_page(
        &self,
        call: &Syscall<'_, M>,
        at: u64,
        len: usize,
        write: bool,
        copy: &mut dyn FnMut(Va, usize, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        each_page(call, &self.inode.object, at, len, write, copy)
    }
}

/// A piece of a page of a file, which the kernel has at `kva`, is copied from `at` or to it.
fn trace_copy<M: Machine>(
    call: &Syscall<'_, M>,
    kva: Va,
    len_bytes: usize,
    at: Place,
    step: fn(Parcel) -> FlowStep,
) {
    let parcel = Parcel { by: Means::Copy, at, len_bytes };
    call.machine().trace_flow(Flow::Buffer(kva), step(parcel));
}
