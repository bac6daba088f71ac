//! Files of the file system in memory ([`super::memfs`]): their bytes.
//!
//! The disk holds a block for each page of a file, behind the swap area. An inode's contents are the pages of one VM
//! object, whether they are read and written by system calls or mapped: there is one cache, and it is always coherent.
//! `read` and `write` wire a page of the object, map it by an ephemeral mapping, and copy (sf_buf paper, 2.3: as the
//! vnode pager and `uiomove` of a page in FreeBSD 5).
//!
//! # Locks
//! An inode is a monitor (class `Pipe`); a thread that reads or writes it, or changes its length, holds its sleep lock,
//! and may sleep. Faults on a mapping of the file do not take that, so a process may read a file into its own mapping
//! of it.
//!
//! # What can fail
//! Growing a file, for want of blocks; the disk; waits, by a signal.

use super::cursor::Cursor;
use crate::proc::{Syscall, Uio, UioRw};
use crate::sched::{Monitor, SleepLock};
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_ephemeral::Flags;
use pageferry_hal::StructVa;
use pageferry_hal::{Cause, Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Place, Threads, Va};
use pageferry_vm::Object;

/// A file.
pub(crate) struct Inode<M: Machine> {
    pub(crate) object: Arc<Object<M>>,
    state: Monitor<M, State>,
}

struct State {
    io: SleepLock,
    size_bytes: u64,
    /// Under the file system's lock as well, when they change.
    opens: u32,
    links: u16,
}

/// An open file: what is to be done with it, and where it is read or written next.
pub(crate) struct Regular<M: Machine> {
    pub(crate) inode: Arc<Inode<M>>,
    pub(super) cursor: Cursor<M>,
}

impl<M: Machine> Inode<M> {
    /// An empty file that has a name and is open.
    pub(super) fn new(machine: &M, at: StructVa, object: Arc<Object<M>>) -> Inode<M> {
        let state = State { io: SleepLock::default(), size_bytes: 0, opens: 1, links: 1 };
        Inode { object, state: Monitor::new(machine, at, state) }
    }

    pub(super) fn at(&self) -> StructVa {
        self.state.at()
    }

    // The four below are called under the file system's lock.

    /// It is open once more.
    pub(super) fn opened(&self) {
        self.state.lock().opens += 1;
    }

    /// It is open once less; true when it has no opener and no name any more.
    pub(super) fn closed(&self) -> bool {
        let mut state = self.state.lock();
        assert!(state.opens > 0, "a file is closed more often than it was opened");
        state.opens -= 1;
        state.opens == 0 && state.links == 0
    }

    /// It has a name more.
    pub(super) fn named(&self) {
        self.state.lock().links += 1;
    }

    /// It has a name less; true when it has no opener and no name any more.
    pub(super) fn unnamed(&self) -> bool {
        let mut state = self.state.lock();
        assert!(state.links > 0, "a file loses more names than it has had");
        state.links -= 1;
        state.opens == 0 && state.links == 0
    }

    pub(super) fn links(&self) -> u16 {
        self.state.lock().links
    }

    /// Length in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.state.lock().size_bytes
    }

    /// Does `work` under this inode's sleep lock. No lock is held before and after.
    pub(super) fn locked<R>(
        &self,
        call: &Syscall<'_, M>,
        work: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let (held, taken) = self.state.acquire(call.thread, self.state.lock(), |s| &mut s.io, "file", true);
        drop(held);
        taken?;
        let result = work();
        let mut held = self.state.lock();
        self.state.release(call.thread, &mut held, |s| &mut s.io);
        result
    }

    /// Calls `work` with the kernel address of `page`, and how it is to be used.
    fn with_page<R>(
        &self,
        call: &Syscall<'_, M>,
        page: u64,
        write: bool,
        work: impl FnOnce(Va) -> R,
    ) -> Result<R, Errno> {
        let (vm, ephemeral, thread) = (&call.kernel.vm, &call.kernel.ephemeral, call.thread);
        let wired = vm.wire_page(thread, &self.object, page, write)?;
        thread.pin();
        let mapped = ephemeral.alloc(thread, wired.frames()[0], Flags::PRIVATE);
        let result = mapped.map(|mapping| {
            let result = work(ephemeral.kva(&mapping));
            ephemeral.free(thread, mapping);
            result
        });
        thread.unpin();
        vm.unwire(wired);
        Ok(result?)
    }

    /// Clears what lies behind byte `from` in its page, so that what was stored behind the end is never read.
    fn clear_tail(&self, call: &Syscall<'_, M>, from: u64) -> Result<(), Errno> {
        let offset = from as usize % PAGE_SIZE;
        if offset == 0 {
            return Ok(());
        }
        self.with_page(call, from / PAGE_SIZE as u64, true, |va| {
            let _c = call.machine().scope(Cause::Zero);
            call.machine().zero(va + offset, PAGE_SIZE - offset).expect("the kernel's own page is mapped");
        })
    }

    /// Makes the file at least `size_bytes` long, and answers how long it was. The caller holds its sleep lock.
    fn grow(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<u64, Errno> {
        let old = self.size_bytes();
        if size_bytes <= old {
            return Ok(old);
        }
        let pages = size_bytes.div_ceil(PAGE_SIZE as u64);
        let more = pages.saturating_sub(self.object.len_pages());
        let blocks = call.kernel.files.take_blocks(usize::try_from(more).map_err(|_| Errno::NoSpace)?)?;
        self.clear_tail(call, old).inspect_err(|_| call.kernel.files.give_blocks(blocks.clone()))?;
        call.kernel.vm.extend_file(&self.object, blocks);
        self.state.lock().size_bytes = size_bytes;
        Ok(old)
    }

    /// Makes the file `size_bytes` long (`ftruncate`).
    pub(crate) fn set_size(&self, call: &Syscall<'_, M>, size_bytes: u64) -> Result<(), Errno> {
        self.locked(call, || {
            if size_bytes > self.size_bytes() {
                return self.grow(call, size_bytes).map(drop);
            }
            self.cut(call, size_bytes);
            self.clear_tail(call, size_bytes)
        })
    }

    /// Takes what lies behind `size_bytes` from the file, and gives its blocks back. The rest of the last page is
    /// cleared when the file grows again, at the latest. The caller holds its sleep lock.
    fn cut(&self, call: &Syscall<'_, M>, size_bytes: u64) {
        let pages = size_bytes.div_ceil(PAGE_SIZE as u64);
        self.state.lock().size_bytes = size_bytes;
        let blocks = call.kernel.vm.truncate_file(call.thread, &self.object, pages);
        call.kernel.files.give_blocks(blocks);
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
}

impl<M: Machine> Regular<M> {
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
        let mut done = 0;
        while done < len {
            let position = at + done as u64;
            let offset = position as usize % PAGE_SIZE;
            let piece = (PAGE_SIZE - offset).min(len - done);
            let page = position / PAGE_SIZE as u64;
            self.inode.with_page(call, page, write, |kva| copy(kva + offset, done, piece))??;
            done += piece;
        }
        Ok(())
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
