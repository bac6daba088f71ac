//! The VM system, which is what all address spaces share, and the address space.
//!
//! The system owns the table of frames, the kernel map and the zones of structures, each with its own lock; this file
//! only puts them together. A space has its map, behind the map lock, and the page tables that cache it. The two stand
//! in one file because each names the other: a space holds a reference to its system, and the system has a register of
//! its spaces. What they do is in the rooms. Making the system fails, at boot, for want of memory.

use crate::config::{
    Anonymous, LoanLocking, PagingConfig, ShadowConfig, StructureSizes, TransferConfig, VmConfig, VmPaths,
    virtual_pages,
};
use crate::counter::VmCounter;
use crate::error::VmError;
use crate::map::{KernelMap, Map, MapLock};
use crate::movers::{LoanHistory, ProtectBatches};
use crate::page::{Demand, FrameInfo, Frames, Io, Swap, SwapCensus};
use crate::probe::{Journal, Probes, Tally, VmDefect};
use crate::shadow::{Chains, ChainsGuard};
use crate::structures::Structures;
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_hal::{
    BlockDevice, Cause, DeviceId, LockClass, Machine, Pfn, SpinLock, StructArena, StructVa, Threads, VaRange,
};
use pageferry_pmap::{Pmap, Pmaps};

/// The VM system: frames, the kernel map, and what all address spaces share.
pub struct Vm<M: Machine> {
    machine: M,
    config: VmConfig,
    sizes: StructureSizes,
    user: VaRange,
    pmaps: Arc<Pmaps<M>>,
    frames: Frames<M>,
    kernel_map: KernelMap<M>,
    structures: Structures<M, Space<M>>,
    chains: M::Lock<Chains<M>>,
    batches: ProtectBatches,
    tally: Tally,
    io: Io<M>,
    swap: Swap<M>,
    demand: Demand<M>,
    probes: Probes,
}

impl<M: Machine> Vm<M> {
    /// Takes over the frames from `first_free` on, the kernel addresses in `kva`, and the disk; structures take their
    /// modelled addresses from `arena`, at most [`VmConfig::arena_bytes`] of them.
    ///
    /// # Errors
    /// [`VmError::NoMemory`] when the arena is too small or no frame is free. [`VmError::Invalid`] when paging makes no
    /// sense, or the disk is smaller than the swap area; or when pages are to be filled so many at once that they make
    /// no row, or where memory is made of shadow objects.
    pub fn new(
        config: VmConfig,
        pmaps: Arc<Pmaps<M>>,
        disk: Option<Box<dyn BlockDevice>>,
        arena: &mut StructArena,
        kva: VaRange,
        first_free: Pfn,
    ) -> Result<Arc<Vm<M>>, VmError> {
        let machine = pmaps.machine().clone();
        let board = machine.board();
        let io = Io::new(&machine, disk, config.paging, arena)?;
        let probes = Probes::default();
        let paging = config.paging;
        let swap_pages = paging.map_or(0, |p| p.swap_pages);
        let rows = config.zero_fill_pages.is_power_of_two()
            && (config.zero_fill_pages == 1 || config.anonymous == Anonymous::Amaps);
        if paging.is_some_and(|p| !p.is_valid()) || u64::from(swap_pages) > io.blocks() || !rows {
            return Err(VmError::Invalid);
        }
        let frames = Frames::new(machine.clone(), &config, board, arena, first_free, probes.clone())?;
        let kernel_map = KernelMap::new(machine.clone(), &config, board, arena, kva, probes.clone())?;
        let virtual_pages = virtual_pages(board, paging.as_ref());
        let structures = Structures::new(&machine, board, (virtual_pages, &config), arena, probes.clone())?;
        Ok(Arc::new(Vm {
            io,
            swap: Swap::new(&machine, swap_pages),
            demand: Demand::new(&machine, paging),
            chains: machine.new_lock(LockClass::AMAP, Chains::default()),
            machine,
            config,
            sizes: config.sizes_on(board),
            user: pmaps.user_range(),
            pmaps,
            frames,
            kernel_map,
            structures,
            batches: ProtectBatches::new(board.cpus),
            tally: Tally::default(),
            probes,
        }))
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// So many pages of anonymous memory are filled at once ([`VmConfig::zero_fill_pages`]).
    pub(crate) fn zero_fill_pages(&self) -> usize {
        self.config.zero_fill_pages
    }

    /// How loans between objects and anons are locked.
    pub fn loan_locking(&self) -> LoanLocking {
        self.config.loan_locking
    }

    /// The machine-dependent layer.
    pub fn pmaps(&self) -> &Arc<Pmaps<M>> {
        &self.pmaps
    }

    /// Frames on the free list.
    ///
    /// # Locks
    /// Takes the page queues, as do the next two.
    pub fn free_frames(&self) -> usize {
        self.frames.free_count()
    }

    /// Wires that are held by [`crate::Wired`] values.
    pub fn wired_frames(&self) -> u64 {
        self.frames.held_wires()
    }

    /// The state of a frame.
    ///
    /// # Panics
    /// When the machine has no such frame.
    pub fn frame_info(&self, frame: Pfn) -> FrameInfo {
        self.frames.lock().get(frame).info()
    }

    /// The colours that pages have, by their addresses or as the kernel gives them ([`crate::FreeLists`]); each has a
    /// list of free frames.
    pub fn page_colours(&self) -> u32 {
        self.frames().colours
    }

    /// Kernel pages now allocated in the kernel map, and the map entries they take.
    pub fn kernel_map_census(&self) -> (usize, usize) {
        self.kernel_map.census()
    }

    /// How full the swap area is.
    ///
    /// # Locks
    /// Takes a leaf lock.
    pub fn swap_census(&self) -> SwapCensus {
        self.swap.census()
    }

    /// The blocks of the disk that are not the swap area: room for files.
    pub fn file_blocks(&self) -> core::ops::Range<u64> {
        u64::from(self.config.paging.map_or(0, |p| p.swap_pages))..self.io.blocks()
    }

    /// The number by which the disk interrupts, if there is one.
    pub fn disk_id(&self) -> Option<DeviceId> {
        self.io.disk_id()
    }

    /// Takes the disk's answers and wakes the threads that wait for them. To be called after the disk's interrupt, not
    /// by its handler: it takes locks.
    ///
    /// # Locks
    /// Takes a leaf lock; no spin lock of class `KernelVa` or higher may be held.
    pub fn disk_interrupt(&self, t: &dyn Threads) {
        self.io.interrupt(t);
    }

    /// True when an allocation of a floor above is to fail, as tests plan it together with those of this floor
    /// (`Vm::fail_after`). A kernel without `verify` has no such plan.
    pub fn allocation_fails(&self) -> bool {
        self.probes.failures.due()
    }

    pub(crate) fn has(&self, defect: VmDefect) -> bool {
        self.probes.planted.is(defect)
    }
    pub(crate) fn paths(&self) -> &VmPaths {
        &self.config.paths
    }
    pub(crate) fn transfer_config(&self) -> &TransferConfig {
        &self.config.transfer
    }
    /// How memory is taken back, if it is.
    pub(crate) fn paging(&self) -> Option<&PagingConfig> {
        self.config.paging.as_ref()
    }
    /// How chains of shadow objects are kept, if memory is made of them.
    pub(crate) fn shadows(&self) -> Option<&ShadowConfig> {
        match &self.config.anonymous {
            Anonymous::Amaps => None,
            Anonymous::Shadows(shadows) => Some(shadows),
        }
    }
    /// Refuses what needs anons where there are none.
    ///
    /// # Errors
    /// [`VmError::Unsupported`].
    pub(crate) fn needs_anons(&self) -> Result<(), VmError> {
        if self.shadows().is_some() { Err(VmError::Unsupported) } else { Ok(()) }
    }
    /// The chains of shadow objects, locked. The lock's class is that of amaps: it comes behind map locks and before
    /// objects.
    pub(crate) fn chains(&self) -> ChainsGuard<'_, M> {
        self.chains.lock()
    }
    pub(crate) fn io(&self) -> &Io<M> {
        &self.io
    }
    pub(crate) fn swap(&self) -> &Swap<M> {
        &self.swap
    }
    pub(crate) fn demand(&self) -> &Demand<M> {
        &self.demand
    }
    pub(crate) fn sizes(&self) -> &StructureSizes {
        &self.sizes
    }
    /// The addresses of user space.
    pub(crate) fn user(&self) -> VaRange {
        self.user
    }
    pub(crate) fn frames(&self) -> &Frames<M> {
        &self.frames
    }
    pub(crate) fn kernel_map(&self) -> &KernelMap<M> {
        &self.kernel_map
    }
    pub(crate) fn structures(&self) -> &Structures<M, Space<M>> {
        &self.structures
    }
    /// Write-protections under way.
    pub(crate) fn batches(&self) -> &ProtectBatches {
        &self.batches
    }
    /// The obligations that callers hold.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }
    pub(crate) fn probes(&self) -> &Probes {
        &self.probes
    }
    /// Where changes are noted, for a watch.
    pub(crate) fn journal(&self) -> &Journal {
        &self.probes.journal
    }

    /// A frame has got its bytes from the disk: forgets what its last owner did to it, and lets it be taken. Nothing
    /// maps it yet.
    pub(crate) fn publish_clean(&self, frame: Pfn, dirty: bool) {
        self.pmaps.clear_modified(frame).not_cached(&self.pmaps);
        self.pmaps.clear_referenced(frame).not_cached(&self.pmaps);
        let mut table = self.frames.lock();
        table.get_mut(frame).dirty = dirty;
        if table.keeps_queues() {
            table.set_busy(frame, false);
        }
    }

    /// Clears a frame.
    pub(crate) fn zero(&self, frame: Pfn) {
        if self.has(VmDefect::ZeroForgotten) {
            return;
        }
        let _c = self.machine.scope(Cause::Zero);
        self.pmaps.zero_page(frame);
    }

    /// Copies a frame for a copy-on-write.
    pub(crate) fn copy(&self, from: Pfn, to: Pfn) {
        assert!(from != to, "a frame is not copied onto itself");
        if self.has(VmDefect::CopyForgotten) {
            return;
        }
        let _c = self.machine.scope(Cause::Copy);
        self.machine.count(VmCounter::CowCopies, 1);
        self.pmaps.copy_page(from, to);
    }
}

/// A process's address space. Made by [`Vm::space`] or [`Space::fork`]; ended by [`Space::terminate`].
pub struct Space<M: Machine> {
    pub(crate) vm: Arc<Vm<M>>,
    /// Where the structure lies; also where waiters for the map sleep.
    pub(crate) at: StructVa,
    pub(crate) map: MapLock<M, Map<M>>,
    /// Taken when the space is dropped.
    pub(crate) pmap: Option<Pmap<M>>,
    pub(crate) loans: LoanHistory,
}

impl<M: Machine> Space<M> {
    /// The page tables.
    pub fn pmap(&self) -> &Pmap<M> {
        self.pmap.as_ref().expect("taken only when the space is dropped")
    }

    /// Attaches page `page` of the communication area by a page table ([`pageferry_pmap::Pmaps::area_enter`]).
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub fn area_enter(&self, page: usize) -> Result<(), VmError> {
        Ok(self.vm.pmaps.area_enter(&self.vm.frames, self.pmap(), page)?)
    }

    /// What became of the loans of this space.
    pub fn loan_history(&self) -> &LoanHistory {
        &self.loans
    }

    /// The VM system.
    pub fn vm(&self) -> &Arc<Vm<M>> {
        &self.vm
    }

    pub(crate) fn locked_map(&self) -> &MapLock<M, Map<M>> {
        &self.map
    }

    pub(crate) fn struct_va(&self) -> StructVa {
        self.at
    }
}
