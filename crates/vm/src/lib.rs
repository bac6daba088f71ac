//! Machine-independent virtual memory. Stub: signatures only.
#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, unused_variables, dead_code, clippy::todo)]
extern crate alloc;
use alloc::sync::Arc;
use core::marker::PhantomData;
use pageferry_ephemeral::KernelAddresses;
use pageferry_hal::{Instructions, Machine, Pfn, Prot, StructArena, Threads, Trap, Va, VaRange};
use pageferry_pmap::{Pmap, Pmaps};

/// Path lengths of this floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmPaths {
    /// A fault's look-ups and decisions, without trap entry and memory work.
    pub fault: Instructions,
    /// Making, clipping or removing a map entry.
    pub map_entry: Instructions,
    /// Finding space in the kernel's address allocator.
    pub kva_alloc: Instructions,
    pub kva_free: Instructions,
    /// Taking a frame off the free list or putting it back.
    pub frame: Instructions,
    /// Wiring or unwiring one frame.
    pub wire: Instructions,
    /// One slot of an amap, or one anon.
    pub anon: Instructions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmConfig {
    pub paths: VmPaths,
}

/// Errors a Unix programmer expects; nothing has changed when one is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VmError {
    #[error("invalid argument (EINVAL)")]
    Invalid,
    #[error("out of memory (ENOMEM)")]
    NoMemory,
    #[error("bad address {0:?} (EFAULT)")]
    Fault(Va),
    #[error("permission denied (EACCES)")]
    Access,
    #[error("range is in use (EEXIST)")]
    Exists,
    #[error("busy (EBUSY)")]
    Busy,
    #[error("interrupted (EINTR)")]
    Interrupted,
}

/// What happens to a range at fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    None,
    Share,
    Copy,
}

/// The VM system: frames, the kernel map, and what all address spaces share.
pub struct Vm<M: Machine> {
    machine: M,
}

/// A process's address space (`vmspace`): map and pmap.
pub struct Space<M: Machine> {
    _m: PhantomData<M>,
}

/// Frames wired for the kernel's use, in order of their addresses; the data begins `offset` bytes into the first.
#[must_use = "wired frames must be unwired"]
pub struct Wired {
    _private: (),
}

impl Wired {
    pub fn frames(&self) -> &[Pfn] {
        todo!()
    }
    pub fn offset(&self) -> usize {
        todo!()
    }
    pub fn len_bytes(&self) -> usize {
        todo!()
    }
}

/// Kernel memory: addresses with wired frames behind them.
#[must_use = "kernel memory must be freed"]
pub struct KernelMemory {
    _private: (),
}

impl KernelMemory {
    pub fn va(&self) -> Va {
        todo!()
    }
    pub fn len_bytes(&self) -> usize {
        todo!()
    }
}

impl<M: Machine> Vm<M> {
    /// Takes over the frames that bootstrap left free.
    pub fn new(
        config: VmConfig,
        pmaps: Arc<Pmaps<M>>,
        arena: &mut StructArena,
        kva: VaRange,
        first_free: Pfn,
    ) -> Result<Arc<Vm<M>>, VmError> {
        todo!()
    }
    pub fn machine(&self) -> &M {
        &self.machine
    }
    pub fn pmaps(&self) -> &Arc<Pmaps<M>> {
        todo!()
    }
    pub fn space(self: &Arc<Self>) -> Result<Arc<Space<M>>, VmError> {
        todo!()
    }
    pub fn unwire(&self, wired: Wired) {
        todo!()
    }
    pub fn kernel_alloc(&self, len_pages: usize) -> Result<KernelMemory, VmError> {
        todo!()
    }
    pub fn kernel_free(&self, memory: KernelMemory) {
        todo!()
    }
    /// Asserts the conservation laws of frames, anons, amaps and maps; `Err` says which one is broken.
    pub fn check(&self) -> Result<(), alloc::string::String> {
        todo!()
    }
    pub fn free_frames(&self) -> usize {
        todo!()
    }
}

/// The kernel map's address allocator, for `ephemeral`.
impl<M: Machine> KernelAddresses for Vm<M> {
    fn alloc(&self, len_pages: usize) -> Option<VaRange> {
        todo!()
    }
    fn free(&self, range: VaRange) {
        todo!()
    }
}

impl<M: Machine> Space<M> {
    pub fn pmap(&self) -> &Pmap<M> {
        todo!()
    }
    /// Maps zero-fill memory; `at` fixes the address, else one is chosen.
    pub fn map(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        len_bytes: usize,
        prot: Prot,
        inherit: Inherit,
    ) -> Result<Va, VmError> {
        todo!()
    }
    pub fn unmap(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<(), VmError> {
        todo!()
    }
    pub fn protect(&self, t: &dyn Threads, at: Va, len_bytes: usize, prot: Prot) -> Result<(), VmError> {
        todo!()
    }
    pub fn fork(&self, t: &dyn Threads) -> Result<Arc<Space<M>>, VmError> {
        todo!()
    }
    /// Resolves a fault in user space, or says why not.
    pub fn fault(&self, t: &dyn Threads, trap: Trap) -> Result<(), VmError> {
        todo!()
    }
    /// Makes the pages of a user buffer resident and wires them (`vm_fault_quick` + `pmap_extract_and_hold`).
    pub fn wire(&self, t: &dyn Threads, at: Va, len_bytes: usize, prot: Prot) -> Result<Wired, VmError> {
        todo!()
    }
    /// Unmaps everything; the last reference may then be dropped.
    pub fn terminate(&self, t: &dyn Threads) {
        todo!()
    }
}
