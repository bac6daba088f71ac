//! The machine-dependent layer: page tables, reverse mappings, and the invalidations that their changes oblige to.
//!
//! Stub: signatures only.
#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, unused_variables, dead_code, clippy::todo)]
extern crate alloc;
use alloc::vec::Vec;
use core::marker::PhantomData;
use pageferry_hal::{CpuSet, Instructions, Machine, Pa, Pfn, Prot, StructArena, Va, VaRange};

/// Path lengths of this floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmapPaths {
    /// Entering or removing one managed (user) mapping, without its memory accesses.
    pub enter: Instructions,
    pub remove: Instructions,
    /// One unmanaged kernel mapping (`pmap_kenter`, `pmap_kremove`).
    pub kenter: Instructions,
    /// Initiating a shootdown, without IPI and waiting.
    pub shootdown_send: Instructions,
    /// The handler's instructions around its invalidations.
    pub shootdown_handle: Instructions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmapConfig {
    /// Bytes of the arena of kernel structures, rounded up to a superpage.
    pub arena_bytes: usize,
    pub paths: PmapPaths,
    /// One shootdown for a whole range (FreeBSD 5: IPI_INVLRNG), or one for each page.
    pub ranged_shootdown: bool,
}

/// What the machine-independent floors find after bootstrap.
pub struct Bootstrap {
    /// Kernel structures take their modelled addresses from here.
    pub arena: StructArena,
    /// Kernel addresses that may be mapped page by page; their page tables exist already.
    pub kva: VaRange,
    /// Frames below this one belong to the kernel (arena, page tables); the others are free.
    pub first_free: Pfn,
}

/// Where page-table frames come from. A call that may need one takes `&dyn FrameSource`.
pub trait FrameSource {
    fn take(&self) -> Option<Pfn>;
    fn give(&self, frame: Pfn);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PmapError {
    #[error("no frame for a page table")]
    NoFrame,
    #[error("the machine has {frames} frames, the kernel needs {wanted}")]
    MemoryTooSmall { frames: usize, wanted: usize },
}

/// The module: kernel page tables, reverse mappings, shootdowns.
pub struct Pmaps<M: Machine> {
    machine: M,
}

/// One user address space's page tables.
pub struct Pmap<M: Machine> {
    _m: PhantomData<M>,
}

/// Mappings have changed, and TLBs may not know it: an obligation. Discharge it with one of its methods; several can be
/// merged and discharged in one shootdown.
#[must_use = "stale translations stay in TLBs until this is flushed"]
pub struct Change<M: Machine> {
    _m: PhantomData<M>,
}

impl<M: Machine> Pmaps<M> {
    pub fn bootstrap(machine: M, config: PmapConfig) -> Result<(Pmaps<M>, Bootstrap), PmapError> {
        todo!()
    }
    /// Called on each CPU once, before anything else runs there; loads the kernel's root.
    pub fn init_cpu(&self) {
        todo!()
    }
    /// The handler for `Interrupt::Shootdown`.
    pub fn handle_shootdown(&self) {
        todo!()
    }
    pub fn machine(&self) -> &M {
        &self.machine
    }
    /// The address of a frame in the direct map, if the machine has one.
    pub fn direct_va(&self, frame: Pfn) -> Option<Va> {
        todo!()
    }
    pub fn create(&self, frames: &dyn FrameSource) -> Result<Pmap<M>, PmapError> {
        todo!()
    }
    /// Panics if mappings are left or a CPU still has it active.
    pub fn destroy(&self, frames: &dyn FrameSource, pmap: Pmap<M>) {
        todo!()
    }
    /// Makes `pmap` (or only the kernel) the executing CPU's address space.
    pub fn activate(&self, from: Option<&Pmap<M>>, to: Option<&Pmap<M>>) {
        todo!()
    }
    /// Maps `frame` at `va`, replacing what was there.
    pub fn enter(
        &self,
        frames: &dyn FrameSource,
        pmap: &Pmap<M>,
        va: Va,
        frame: Pfn,
        prot: Prot,
        wired: bool,
    ) -> Result<Change<M>, PmapError> {
        todo!()
    }
    pub fn remove(&self, pmap: &Pmap<M>, range: VaRange) -> Change<M> {
        todo!()
    }
    /// Takes permissions away in `range`; never adds any.
    pub fn protect(&self, pmap: &Pmap<M>, range: VaRange, prot: Prot) -> Change<M> {
        todo!()
    }
    pub fn set_wired(&self, pmap: &Pmap<M>, va: Va, wired: bool) {
        todo!()
    }
    pub fn extract(&self, pmap: &Pmap<M>, va: Va) -> Option<(Pfn, Prot)> {
        todo!()
    }
    /// Reduces every user mapping of `frame` to `prot`; the empty set removes them all.
    pub fn page_protect(&self, frame: Pfn, prot: Prot) -> Change<M> {
        todo!()
    }
    /// Number of user mappings of `frame`.
    pub fn mappings(&self, frame: Pfn) -> usize {
        todo!()
    }
    pub fn is_referenced(&self, frame: Pfn) -> bool {
        todo!()
    }
    pub fn is_modified(&self, frame: Pfn) -> bool {
        todo!()
    }
    pub fn clear_referenced(&self, frame: Pfn) -> Change<M> {
        todo!()
    }
    pub fn clear_modified(&self, frame: Pfn) -> Change<M> {
        todo!()
    }
    /// Maps consecutive kernel pages from `va` on; unmanaged, global, wired (`pmap_qenter`).
    pub fn kenter(&self, va: Va, frames: &[Pfn], prot: Prot) -> Change<M> {
        todo!()
    }
    /// Unmaps kernel pages (`pmap_qremove`).
    pub fn kremove(&self, range: VaRange) -> Change<M> {
        todo!()
    }
    /// Clears a frame through a temporary or the direct mapping.
    pub fn zero_page(&self, frame: Pfn) {
        todo!()
    }
    pub fn copy_page(&self, from: Pfn, to: Pfn) {
        todo!()
    }
    /// Invalidates one kernel page in the own TLB, and counts it.
    pub fn invalidate_local(&self, va: Va) {
        todo!()
    }
    /// Makes `cpus` (itself excluded) invalidate one kernel page, waits, and counts it.
    pub fn invalidate_remote(&self, va: Va, cpus: CpuSet) {
        todo!()
    }
}

impl<M: Machine> Change<M> {
    /// True when an old entry that was replaced had its accessed bit set: a TLB may hold it.
    pub fn old_accessed(&self) -> bool {
        todo!()
    }
    /// Adds the obligation of `other`.
    pub fn merge(&mut self, other: Change<M>) {
        todo!()
    }
    /// Invalidates wherever a translation may be cached, in one shootdown, and waits.
    pub fn flush(self, pmaps: &Pmaps<M>) {
        todo!()
    }
    /// Invalidates in the own TLB only. The caller answers for the other CPUs: they must not use the mapping before
    /// they have invalidated it themselves.
    pub fn flush_local(self, pmaps: &Pmaps<M>) {
        todo!()
    }
    /// Invalidates nothing: the caller knows that no TLB holds the old translation.
    pub fn not_cached(self, pmaps: &Pmaps<M>) {
        todo!()
    }
}
