//! Inodes of the file system in memory: what a file is, whoever has it open.
//!
//! An inode's contents are the pages of one VM object, whether they are read and written by system calls or mapped:
//! there is one cache, and it is always coherent.
//!
//! # Locks
//! An inode is a monitor (class `Pipe`); a thread that reads or writes it, or changes its length, holds its sleep lock,
//! and may sleep. Faults on a mapping of the file do not take that, so a process may read a file into its own mapping
//! of it.
//!
//! # What can fail
//! The disk; waits, by a signal.

use crate::proc::Syscall;
use crate::sched::{Monitor, SleepLock};
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_hal::{Machine, StructVa};
use pageferry_vm::Object;

/// A file.
pub struct Inode<M: Machine> {
    /// Its pages, by page of the file; the one cache that there is of them.
    pub object: Arc<Object<M>>,
    state: Monitor<M, State>,
}

struct State {
    io: SleepLock,
    size_bytes: u64,
    /// Under the file system's lock as well, when they change.
    opens: u32,
    links: u16,
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

    // The four below are called under a lock of the file system's: that of its names, or of its inodes.

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
    pub fn size_bytes(&self) -> u64 {
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

    /// It is `size_bytes` long from now on. The caller holds its sleep lock.
    pub(super) fn set_size_bytes(&self, size_bytes: u64) {
        self.state.lock().size_bytes = size_bytes;
    }
}
