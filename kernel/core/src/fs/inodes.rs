//! The inodes of the file system in memory, and the blocks of the disk that they have.
//!
//! # What it holds
//! The blocks that no file has; structures of inodes; and inodes that wait for their last mapping. An inode lives as
//! long as it has a name or is open, its object as long as anything maps it; the blocks are free when both are gone. A
//! file has blocks for all of its pages from the moment in which it grows, so only growing can find the disk full.
//!
//! # Locks
//! One of class `Process`, held for a look-up only.
//!
//! # What can fail
//! Taking blocks or a structure, when none is left.

use super::inode::Inode;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{LockClass, Machine, SpinLock, StructArena, StructVa, Zone};
use pageferry_vm::Vm;

/// Files and directories at a time, unless more are asked for, and bytes of an inode in memory.
const MAX_INODES: usize = 256;
const INODE_BYTES: usize = 256;

/// See the [module](self).
pub(super) struct Inodes<M: Machine> {
    state: M::Lock<State<M>>,
}

struct State<M: Machine> {
    /// Inodes without name and opener whose objects are still mapped.
    leaving: Vec<Arc<Inode<M>>>,
    /// Blocks that no file has had, and those that some have given back.
    fresh_blocks: Range<u64>,
    freed_blocks: BTreeSet<u64>,
    structures: Zone,
}

impl<M: Machine> Inodes<M> {
    /// Without any, over the blocks of the disk that are not the swap area; for at least so many `files`.
    pub(super) fn new(vm: &Vm<M>, files: usize, arena: &mut StructArena) -> Result<Inodes<M>, ArenaFull> {
        let state = State {
            leaving: Vec::new(),
            fresh_blocks: vm.file_blocks(),
            freed_blocks: BTreeSet::new(),
            structures: arena.zone("inodes", files.max(MAX_INODES), INODE_BYTES)?,
        };
        Ok(Inodes { state: vm.machine().new_lock(LockClass::PROCESS, state) })
    }

    /// A structure for an inode or a directory.
    ///
    /// # Errors
    /// [`Errno::NoSpace`].
    pub(super) fn alloc(&self) -> Result<StructVa, Errno> {
        self.state.lock().structures.alloc().ok_or(Errno::NoSpace)
    }

    /// Gives a structure back that nothing is in.
    pub(super) fn free(&self, at: StructVa) {
        self.state.lock().structures.free(at);
    }

    /// Makes an empty file, which is open and about to have a name.
    ///
    /// # Errors
    /// [`Errno::NoSpace`], [`Errno::NoMemory`].
    pub(super) fn create(&self, vm: &Vm<M>) -> Result<Arc<Inode<M>>, Errno> {
        let at = self.alloc()?;
        match vm.file_object(Vec::new()) {
            Ok(object) => Ok(Arc::new(Inode::new(vm.machine(), at, object))),
            Err(e) => {
                self.free(at);
                Err(e.into())
            }
        }
    }

    /// Takes back a file that got no name.
    pub(super) fn discard(&self, vm: &Vm<M>, inode: &Inode<M>) {
        self.free(inode.at());
        vm.release_object(inode.object.clone());
    }

    /// An opener is gone.
    pub(super) fn close(&self, vm: &Vm<M>, inode: Arc<Inode<M>>) {
        {
            let mut state = self.state.lock();
            if inode.closed() {
                state.leaving.push(inode);
            }
        }
        self.sweep(vm, None);
    }

    /// Ends the inodes without a name, an opener and a mapping; `unnamed` has lost its last name, and has no opener.
    pub(super) fn sweep(&self, vm: &Vm<M>, unnamed: Option<Arc<Inode<M>>>) {
        let mut state = self.state.lock();
        state.leaving.extend(unnamed);
        for inode in core::mem::take(&mut state.leaving) {
            match vm.end_file(&inode.object) {
                Some(blocks) => {
                    state.freed_blocks.extend(blocks);
                    state.structures.free(inode.at());
                }
                None => state.leaving.push(inode),
            }
        }
    }

    /// `count` free blocks, the lowest there are.
    ///
    /// # Errors
    /// [`Errno::NoSpace`].
    pub(super) fn take_blocks(&self, count: usize) -> Result<Vec<u64>, Errno> {
        let mut state = self.state.lock();
        if state.free_blocks() < count {
            return Err(Errno::NoSpace);
        }
        let block = |s: &mut State<M>| s.freed_blocks.pop_first().or_else(|| s.fresh_blocks.next());
        Ok((0..count).map(|_| block(&mut state).expect("counted above")).collect())
    }

    pub(super) fn give_blocks(&self, blocks: Vec<u64>) {
        self.state.lock().freed_blocks.extend(blocks);
    }

    /// Blocks that no file has.
    pub(super) fn free_blocks(&self) -> usize {
        self.state.lock().free_blocks()
    }

    /// Frames that hold pages of files without a name.
    pub(super) fn leaving_pages(&self) -> usize {
        self.state.lock().leaving.iter().map(|inode| inode.object.resident_pages()).sum()
    }
}

impl<M: Machine> State<M> {
    fn free_blocks(&self) -> usize {
        (self.fresh_blocks.end - self.fresh_blocks.start) as usize + self.freed_blocks.len()
    }
}
