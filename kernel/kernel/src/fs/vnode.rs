//! Files: a directory of names, inodes, and blocks of the modelled disk.
//!
//! The directory is flat and, like the inodes, lives in memory; what the disk holds is the contents, a block for each
//! page, behind the swap area. An inode's contents are the pages of one VM object, whether they are read and written by
//! system calls or mapped: there is one cache, and it is always coherent. `read` and `write` wire a page of the object,
//! map it by an ephemeral mapping, and copy (sf_buf paper, 2.3: as the vnode pager and `uiomove` of a page in FreeBSD
//! 5).
//!
//! An inode lives as long as it has a name or is open, its object as long as anything maps it; the blocks are free when
//! both are gone. A file has blocks for all of its pages from the moment in which it grows, so only growing can find
//! the disk full.
//!
//! # Locks
//! The directory and the free blocks are under one lock of class `Process`, held for a look-up only. An inode is a
//! monitor (class `Pipe`); a thread that reads or writes it, or changes its length, holds its sleep lock, and may
//! sleep. Faults on a mapping of the file do not take that, so a process may read a file into its own mapping of it.
//!
//! # What can fail
//! Making a file, for want of memory or of an inode; growing it, for want of blocks; the disk; waits, by a signal.

use super::cursor::{Create, Cursor, Rights};
use crate::proc::{Syscall, Uio, UioRw};
use crate::sched::{Monitor, SleepLock};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_ephemeral::Flags;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Cause, Flow, FlowStep, LockClass, Machine, Means, PAGE_SIZE, Parcel, Place, SpinLock, StructArena,
    Threads, Va, Zone,
};
use pageferry_vm::{Object, Vm};

/// Files at a time, unless more are asked for, and bytes of an inode in memory.
const MAX_INODES: usize = 256;
const INODE_BYTES: usize = 256;
/// The longest name (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// The files of one kernel. See the [module](self).
pub(crate) struct FileSystem<M: Machine> {
    state: M::Lock<Directory<M>>,
}

struct Directory<M: Machine> {
    names: BTreeMap<String, Arc<Inode<M>>>,
    /// Inodes without name and opener whose objects are still mapped.
    leaving: Vec<Arc<Inode<M>>>,
    /// Blocks that no file has had, and those that some have given back.
    fresh_blocks: Range<u64>,
    freed_blocks: BTreeSet<u64>,
    structures: Zone,
}

/// A file.
pub(crate) struct Inode<M: Machine> {
    pub(crate) object: Arc<Object<M>>,
    state: Monitor<M, State>,
}

struct State {
    io: SleepLock,
    size_bytes: u64,
    /// Under the directory's lock as well, when they change.
    opens: u32,
    named: bool,
}

/// An open file: what is to be done with it, and where it is read or written next.
pub(crate) struct Regular<M: Machine> {
    pub(crate) inode: Arc<Inode<M>>,
    pub(super) cursor: Cursor<M>,
}

impl<M: Machine> FileSystem<M> {
    /// An empty directory over the blocks of the disk that are not the swap area, for at least so many `files`.
    pub(crate) fn new(vm: &Vm<M>, files: usize, arena: &mut StructArena) -> Result<FileSystem<M>, ArenaFull> {
        let directory = Directory {
            names: BTreeMap::new(),
            leaving: Vec::new(),
            fresh_blocks: vm.file_blocks(),
            freed_blocks: BTreeSet::new(),
            structures: arena.zone("inodes", files.max(MAX_INODES), INODE_BYTES)?,
        };
        Ok(FileSystem { state: vm.machine().new_lock(LockClass::PROCESS, directory) })
    }

    /// Opens a file by its name, or makes one.
    pub(crate) fn open(
        &self,
        vm: &Vm<M>,
        name: &str,
        create: Create,
        rights: Rights,
    ) -> Result<Regular<M>, Errno> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Errno::Invalid);
        }
        self.sweep(vm);
        let found = {
            let directory = self.state.lock();
            let found = directory.names.get(name).cloned();
            if found.is_some() && create == Create::New {
                return Err(Errno::Exists);
            }
            found.inspect(|inode| inode.state.lock().opens += 1)
        };
        let inode = match found {
            Some(inode) => inode,
            None if create == Create::No => return Err(Errno::NoFile),
            None => self.create(vm, name, create)?,
        };
        Ok(Regular { inode, cursor: Cursor::new(vm.machine(), rights) })
    }

    fn create(&self, vm: &Vm<M>, name: &str, how: Create) -> Result<Arc<Inode<M>>, Errno> {
        let at = self.state.lock().structures.alloc().ok_or(Errno::NoSpace)?;
        let object = match vm.file_object(Vec::new()) {
            Ok(object) => object,
            Err(e) => {
                self.state.lock().structures.free(at);
                return Err(e.into());
            }
        };
        let state = State { io: SleepLock::default(), size_bytes: 0, opens: 1, named: true };
        let inode = Arc::new(Inode { object, state: Monitor::new(vm.machine(), at, state) });
        let mut directory = self.state.lock();
        if let Some(other) = directory.names.get(name).cloned() {
            // Another thread has made it meanwhile.
            let is_new = how == Create::New;
            if !is_new {
                other.state.lock().opens += 1;
            }
            directory.structures.free(at);
            drop(directory);
            vm.release_object(inode.object.clone());
            return if is_new { Err(Errno::Exists) } else { Ok(other) };
        }
        directory.names.insert(name.to_string(), inode.clone());
        Ok(inode)
    }

    /// Takes a name away; the file goes with its last opener and mapping.
    pub(crate) fn unlink(&self, vm: &Vm<M>, name: &str) -> Result<(), Errno> {
        {
            let mut directory = self.state.lock();
            let inode = directory.names.remove(name).ok_or(Errno::NoFile)?;
            let mut state = inode.state.lock();
            state.named = false;
            let last = state.opens == 0;
            drop(state);
            if last {
                directory.leaving.push(inode);
            }
        }
        self.sweep(vm);
        Ok(())
    }

    /// An opener is gone.
    pub(crate) fn close(&self, vm: &Vm<M>, file: Regular<M>) {
        {
            let mut directory = self.state.lock();
            let mut state = file.inode.state.lock();
            assert!(state.opens > 0, "a file is closed more often than it was opened");
            state.opens -= 1;
            let last = state.opens == 0 && !state.named;
            drop(state);
            if last {
                directory.leaving.push(file.inode);
            }
        }
        self.sweep(vm);
    }

    /// Ends the inodes without a name, an opener and a mapping.
    fn sweep(&self, vm: &Vm<M>) {
        let mut directory = self.state.lock();
        for inode in core::mem::take(&mut directory.leaving) {
            match vm.end_file(&inode.object) {
                Some(blocks) => {
                    directory.freed_blocks.extend(blocks);
                    directory.structures.free(inode.state.at());
                }
                None => directory.leaving.push(inode),
            }
        }
    }

    /// `count` free blocks, the lowest there are.
    fn take_blocks(&self, count: usize) -> Result<Vec<u64>, Errno> {
        let mut directory = self.state.lock();
        if directory.free_blocks() < count {
            return Err(Errno::NoSpace);
        }
        let block = |d: &mut Directory<M>| d.freed_blocks.pop_first().or_else(|| d.fresh_blocks.next());
        Ok((0..count).map(|_| block(&mut directory).expect("counted above")).collect())
    }

    fn give_blocks(&self, blocks: Vec<u64>) {
        self.state.lock().freed_blocks.extend(blocks);
    }

    /// Blocks that no file has.
    pub(crate) fn free_blocks(&self) -> usize {
        self.state.lock().free_blocks()
    }

    /// Frames that hold pages of files.
    pub(crate) fn resident_pages(&self, vm: &Vm<M>) -> usize {
        self.sweep(vm);
        let directory = self.state.lock();
        directory.names.values().chain(&directory.leaving).map(|i| i.object.resident_pages()).sum()
    }
}

impl<M: Machine> Directory<M> {
    fn free_blocks(&self) -> usize {
        (self.fresh_blocks.end - self.fresh_blocks.start) as usize + self.freed_blocks.len()
    }
}

impl<M: Machine> Inode<M> {
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
