//! The module's state, and the life of an address space's page tables.
//!
//! [`Pmaps`] owns the kernel's tables, the reverse mappings with the registry of address spaces, what each CPU has
//! loaded, and the shootdown in flight. A [`Pmap`] is owned by its address space (`vm`); the registry shares what is
//! needed to reach its entries from a frame.

use crate::config::{FRAME_BYTES, FRAMES as REFILL_FRAMES};
use crate::config::{PmapConfig, Preload, Reload};
use crate::defect::AreaDefect;
use crate::error::PmapError;
use crate::tables::area::Area;
use crate::tables::bootstrap::{self, Bootstrap, Built, KernelTables};
use crate::tables::pv::PvTable;
use crate::tables::second::Second;
use crate::tables::space::Shared;
use crate::tables::sysmap::Sysmap;
use crate::tlb::active::Active;
use crate::tlb::asid::{FreeNumbers, Tagging};
use crate::tlb::loaded::Loaded;
use crate::tlb::recency::Recency;
use crate::tlb::request::{REQUEST_BYTES, Shootdown};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;
use pageferry_defects::Planted;
use pageferry_hal::{
    Asid, Cause, LockClass, Machine, MemoryUse, PAGE_SHIFT, PAGE_SIZE, Pfn, SpaceId, SpinLock, StructVa, Va,
    VaRange, Width,
};

/// One user address space's page tables. Given back with [`Pmaps::destroy`]; dropping one leaks its frames.
#[must_use = "page tables must be destroyed"]
pub struct Pmap<M: Machine> {
    pub(crate) shared: Arc<Shared<M>>,
}

impl<M: Machine> Pmap<M> {
    /// Its name.
    pub fn id(&self) -> SpaceId {
        self.shared.id
    }
    /// Number of pages mapped.
    ///
    /// # Locks
    /// Takes this space's lock (class `Pmap`).
    pub fn resident_pages(&self) -> usize {
        self.shared.tables.lock().resident
    }
    /// What of the communication area is attached: reserved entries, and pages in the page table. None may be left when
    /// it is [destroyed](Pmaps::destroy).
    pub fn attachments(&self) -> usize {
        (self.shared.wired.load(SeqCst) + self.shared.attached.load(SeqCst)) as usize
    }
    /// Number of pages mapped and wired.
    ///
    /// # Locks
    /// Takes this space's lock (class `Pmap`).
    pub fn wired_pages(&self) -> usize {
        self.shared.tables.lock().wired
    }
}

/// The module: kernel page tables, reverse mappings, shootdowns.
pub struct Pmaps<M: Machine> {
    pub(crate) machine: M,
    pub(crate) config: PmapConfig,
    pub(crate) kernel: KernelTables,
    /// Colours of pages; 1 where the caches know none.
    pub(crate) colours: u32,
    /// The cache that has them writes through.
    pub(crate) writes_through: bool,
    /// Frames of memory, without that of devices.
    pub(crate) frame_count: usize,
    pub(crate) pv: M::Lock<PvTable<M>>,
    pub(crate) shootdown: Shootdown<M>,
    pub(crate) tagging: Tagging,
    /// The hash table that hardware looks into, if it does.
    pub(crate) second: Option<Second<M>>,
    /// Where the slow refill handler saves registers.
    pub(crate) frames: StructVa,
    /// One for each CPU.
    pub(crate) active: Box<[Active]>,
    /// One for each CPU where there is no direct map, or where its addresses may be of the wrong colour; else empty.
    pub(crate) sysmaps: Box<[Sysmap<M>]>,
    /// The communication area, if there is one.
    pub(crate) area: Option<Area<M>>,
    /// One for each CPU.
    pub(crate) loaded: Box<[Loaded]>,
    /// One for each CPU where a refill loads neighbours, else empty.
    pub(crate) recency: Box<[Recency]>,
}

impl<M: Machine> Pmaps<M> {
    /// Makes the kernel's page tables in the lowest frames of `machine`. Nothing is loaded yet: that is
    /// [`Pmaps::init_cpu`].
    ///
    /// A quarter of the arena at most goes to reverse mappings, enough for two of each frame at most.
    ///
    /// # Errors
    /// [`PmapError::MemoryTooSmall`], [`PmapError::ArenaTooLarge`], [`PmapError::ArenaTooSmall`],
    /// [`PmapError::TooFewBlocks`], [`PmapError::NoDirectMap`], [`PmapError::NoTags`],
    /// [`PmapError::NoChoice`], [`PmapError::NoPreload`], [`PmapError::NoRows`], and those of the communication area.
    pub fn bootstrap(machine: M, config: PmapConfig) -> Result<(Pmaps<M>, Bootstrap), PmapError> {
        let _c = machine.scope(Cause::Boot);
        let board = machine.board();
        let Built { tables, mut arena, paged, first_free } = bootstrap::build(&machine, &config)?;
        let entry_bytes = config.pv_bytes.unwrap_or(match board.pointer {
            Width::Four => 24,
            Width::Eight => 48,
        });
        let capacity = (arena.left_bytes() / 4 / entry_bytes).min(2 * board.frames);
        let entries = arena.array("reverse mappings", capacity, entry_bytes)?;
        let request = arena.array("shootdown request", 1, REQUEST_BYTES)?;
        if config.refill.reload != Reload::Fast && tables.layout.direct_map.is_none() {
            return Err(PmapError::NoDirectMap);
        }
        if config.tags && board.asids == 0 {
            return Err(PmapError::NoTags);
        }
        if !config.choice.is_possible(&board) {
            return Err(PmapError::NoChoice);
        }
        if !config.refill.is_possible(&board) {
            return Err(PmapError::NoPreload);
        }
        if !config.refill.can_load_rows(&board) {
            return Err(PmapError::NoRows);
        }
        let frames = match config.refill.reload {
            Reload::Fast => StructVa(tables.layout.kernel_base),
            Reload::Slow | Reload::SlowInsert => {
                let count = board.cpus * REFILL_FRAMES;
                let at = arena.array("exception frames", count, FRAME_BYTES)?;
                machine.set_use(at.0, count * FRAME_BYTES, MemoryUse::Stacks);
                at
            }
        };
        let area = config.area.map(|area| Area::new(&machine, area, &mut arena)).transpose()?;
        let mut recency = alloc::vec::Vec::new();
        if config.refill.preload != Preload::None {
            for _ in 0..board.cpus {
                recency.push(Recency::new(board.asids, config.defect, &mut arena)?);
            }
        }
        let numbers = FreeNumbers::new(config.first_number, board.asids);
        let pv = PvTable::new(board.frames, entries, entry_bytes, capacity, numbers);

        let mut kva = paged;
        let mut sysmaps = alloc::vec::Vec::new();
        if tables.layout.direct_map.is_none() || board.colours > 1 {
            for _ in 0..board.cpus {
                let pages = VaRange::pages_from(kva.start(), Sysmap::<M>::pages(board.colours));
                sysmaps.push(Sysmap::new(&machine, pages, board.colours));
                kva = VaRange::new(pages.end(), kva.end());
            }
        }
        let taken = PAGE_SIZE * Sysmap::<M>::pages(board.colours) * board.cpus;
        assert!(!kva.is_empty() && kva.start() - paged.start() <= taken);
        let pmaps = Pmaps {
            config,
            colours: board.colours,
            writes_through: board.writes_through,
            frame_count: board.frames,
            pv: machine.new_lock(LockClass::REVERSE_MAP, pv),
            shootdown: Shootdown::new(&machine, request),
            tagging: Tagging::of(&board, tables.hash.is_some(), config.tags),
            second: tables.hash.map(|table| Second::new(&machine, table, config.defect)),
            frames,
            active: (0..board.cpus).map(|_| Active::new(tables.root)).collect(),
            sysmaps: sysmaps.into(),
            area,
            loaded: (0..board.cpus).map(|_| Loaded::new(&board, &config)).collect(),
            recency: recency.into(),
            kernel: tables,
            machine,
        };
        Ok((pmaps, Bootstrap { arena, kva, first_free }))
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Takes the entry of a page whose mapping has changed out of the hash table, if there is a table and an entry.
    /// `asid` is that of the space where hardware uses such a table.
    ///
    /// # Locks
    /// Takes `HashTable`.
    pub(crate) fn forget_hashed(&self, asid: Option<Asid>, va: Va) {
        if let (Some(second), Some(asid)) = (&self.second, asid) {
            second.forget(&self.machine, asid, va);
        }
    }

    /// The right to shoot down; `None` on a uniprocessor, where there is no CPU to exclude.
    pub(crate) fn ipi_lock(&self) -> Option<<M::Lock<()> as SpinLock<()>>::Guard<'_>> {
        (self.active.len() > 1).then(|| self.shootdown.ipi_lock.lock())
    }

    /// The address of a frame in the direct map, if the machine has one (sf_buf paper, 4.3).
    pub fn direct_va(&self, frame: Pfn) -> Option<Va> {
        let base = self.kernel.layout.direct_map?;
        assert!(frame.index() < self.machine.board().frames, "{frame:?} is no frame of this machine");
        Some(base + (frame.index() << PAGE_SHIFT))
    }

    pub(crate) fn area(&self) -> &Area<M> {
        self.area.as_ref().expect("this kernel has a communication area")
    }

    pub(crate) fn area_defect(&self) -> Planted<AreaDefect> {
        self.area.as_ref().map_or(Planted::NONE, |area| area.config.defect)
    }

    /// Entries of the TLB that are reserved.
    pub fn reserved_entries(&self) -> usize {
        self.area.as_ref().map_or(0, |area| area.config.reserved)
    }
}
