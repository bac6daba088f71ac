//! The module's state, and the life of an address space's page tables.
//!
//! [`Pmaps`] owns the kernel's tables, the reverse mappings with the registry of address spaces, what each CPU has
//! loaded, and the shootdown in flight. A [`Pmap`] is owned by its address space (`vm`); the registry shares what is
//! needed to reach its entries from a frame.

use crate::area::Area;
use crate::asid::{FreeNumbers, Tagging, Tags};
use crate::bootstrap::{self, Bootstrap, Built, KernelTables};
use crate::colours::Reach;
use crate::config::{FrameSource, PmapConfig, PmapDefect, PmapError, Reload};
use crate::cpu::Active;
use crate::entries::Loaded;
use crate::ipi::{REQUEST_BYTES, Shootdown};
use crate::pv::PvTable;
use crate::radix::Tables;
use crate::refill::{FRAME_BYTES, FRAMES as REFILL_FRAMES};
use crate::second::Second;
use crate::space::Shared;
use crate::sysmap::Sysmap;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, AtomicU64};
use pageferry_hal::{
    Asid, Cause, LockClass, Machine, PAGE_SIZE, SpaceId, SpinLock, StructVa, Va, VaRange, Width,
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
    /// [`PmapError::NoChoice`], and those of the communication area.
    pub fn bootstrap(machine: M, config: PmapConfig) -> Result<(Pmaps<M>, Bootstrap), PmapError> {
        let _c = machine.scope(Cause::Boot);
        let board = machine.board();
        let Built { tables, mut arena, arena_bytes, paged, first_free } =
            bootstrap::build(&machine, &config)?;
        let entry_bytes = match board.pointer {
            Width::Four => 24,
            Width::Eight => 48,
        };
        let capacity = (arena_bytes / 4 / entry_bytes).min(2 * board.frames);
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
        let frames = match config.refill.reload {
            Reload::Fast => StructVa(tables.layout.kernel_base),
            Reload::Slow | Reload::SlowInsert => {
                arena.array("exception frames", board.cpus * REFILL_FRAMES, FRAME_BYTES)?
            }
        };
        let area = config.area.map(|area| Area::new(&machine, area, &mut arena)).transpose()?;
        let pv = PvTable::new(board.frames, entries, entry_bytes, capacity, FreeNumbers::new(board.asids));

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
            loaded: (0..board.cpus).map(|_| Loaded::new(&board, config.choice)).collect(),
            kernel: tables,
            machine,
        };
        Ok((pmaps, Bootstrap { arena, kva, first_free }))
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// An empty address space: one table, in which the kernel's half is that of all others.
    ///
    /// # Errors
    /// [`PmapError::NoFrame`], [`PmapError::NoTag`].
    ///
    /// # Locks
    /// Takes the lock of reverse mappings, and the shootdown lock where tags run out; `frames` is called with no lock
    /// held.
    pub fn create(&self, frames: &dyn FrameSource) -> Result<Pmap<M>, PmapError> {
        let (m, width) = (&self.machine, self.kernel.format.width);
        let _c = m.scope(Cause::PteWork);
        let frame = frames.take().ok_or(PmapError::NoFrame)?;
        let root = frame.pa();
        self.claim(frame, Va(root.0), Reach::Write);
        m.pt_clear(root);
        for &index in &self.kernel.root_entries {
            let offset = index * width.bytes();
            let entry = m.pt_load(self.kernel.root + offset, width);
            m.pt_store(root + offset, width, entry);
        }
        let tags = match self.tagging {
            Tagging::None => None,
            Tagging::PerCpu => Some(Tags::per_cpu(self.active.len())),
            Tagging::Shared => {
                let Some(asid) = self.shared_number() else {
                    frames.give(frame);
                    return Err(PmapError::NoTag);
                };
                Some(Tags::Shared { asid: AtomicU32::new(asid.0), ran_on: Default::default() })
            }
        };
        let mut pv = self.pv.lock();
        let id = pv.new_id();
        let tables = m.new_lock(LockClass::PMAP, Tables::new(frame));
        let shared = Arc::new(Shared {
            id,
            root,
            tables,
            block: AtomicU64::new(0),
            tags: tags.map(Arc::new),
            wired: AtomicU32::new(0),
            wired_asid: AtomicU32::new(Asid::KERNEL.0),
            attached: AtomicU32::new(0),
        });
        pv.spaces.insert(id, shared.clone());
        Ok(Pmap { shared })
    }

    /// A number that is the same on all CPUs; `None` when all are in use.
    fn shared_number(&self) -> Option<Asid> {
        loop {
            let rested = {
                let mut pv = self.pv.lock();
                let free = pv.numbers.take();
                if free.is_some() || !pv.numbers.some_rest() {
                    return free;
                }
                pv.numbers.rested()
            };
            // Also for those that another CPU is about to free: then it is waited for.
            if self.config.defect != PmapDefect::TagReusedEarly {
                self.empty_everywhere();
            }
            if let Some(second) = self.second.as_ref().filter(|_| self.purges()) {
                second.purge(&self.machine, &rested);
            }
            self.pv.lock().numbers.free(rested);
        }
    }

    /// The hash table may hold entries of numbers that no address space has.
    fn purges(&self) -> bool {
        self.config.renew_pages.is_some() && self.config.defect != PmapDefect::TagReusedInHashTable
    }

    /// Gives back the page tables of an address space that maps nothing any more.
    ///
    /// # Locks
    /// Takes the shootdown lock, then those of the space and of the reverse mappings, one after the other; `frames` is
    /// called with no lock held.
    ///
    /// # Panics
    /// When mappings are left, or a process runs on it.
    pub fn destroy(&self, frames: &dyn FrameSource, pmap: Pmap<M>) {
        let _c = self.machine.scope(Cause::PteWork);
        let shared = pmap.shared;
        let wired = shared.wired.load(SeqCst);
        assert_eq!(wired, 0, "an address space is destroyed with reserved entries of its own");
        self.leave_everywhere(&shared);
        let taken = {
            let mut tables = shared.tables.lock();
            assert_eq!(
                (tables.resident, tables.wired),
                (0, 0),
                "an address space is destroyed with mappings in it"
            );
            core::mem::take(&mut tables.frames)
        };
        let registered = {
            let mut pv = self.pv.lock();
            // A flush of what another thread has changed in it may still be owed: the number rests first.
            shared.hash_tag().into_iter().for_each(|asid| pv.numbers.give(asid));
            pv.spaces.remove(&shared.id)
        };
        assert!(registered.is_some(), "an address space is destroyed that was never created here");
        taken.into_iter().for_each(|frame| frames.give(frame));
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
}
