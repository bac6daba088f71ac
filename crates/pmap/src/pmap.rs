//! The module's state, and the life of an address space's page tables.
//!
//! [`Pmaps`] owns the kernel's tables, the reverse mappings with the registry of address spaces, what each CPU has
//! loaded, and the shootdown in flight. A [`Pmap`] is owned by its address space (`vm`); the registry shares what is
//! needed to reach its entries from a frame.

use crate::bootstrap::{self, Bootstrap, KernelTables};
use crate::config::{FrameSource, PmapConfig, PmapError};
use crate::loaded::Loaded;
use crate::reverse::Reverse;
use crate::shootdown::Shootdown;
use crate::table::Tables;
use crate::window::Temporary;
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_hal::{Arch, Cause, LockClass, Machine, PAGE_SIZE, Pa, SpinLock, VaRange};

/// The name of an address space; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PmapId(pub(crate) u32);

impl PmapId {
    /// The kernel's addresses, which all spaces share.
    pub(crate) const KERNEL: PmapId = PmapId(0);
}

/// What the registry shares of an address space.
pub(crate) struct Shared<M: Machine> {
    pub(crate) id: PmapId,
    pub(crate) root: Pa,
    pub(crate) tables: M::Lock<Tables>,
}

/// One user address space's page tables. Given back with [`Pmaps::destroy`]; dropping one leaks its frames.
#[must_use = "page tables must be destroyed"]
pub struct Pmap<M: Machine> {
    pub(crate) shared: Arc<Shared<M>>,
}

impl<M: Machine> Pmap<M> {
    /// Its name.
    pub fn id(&self) -> PmapId {
        self.shared.id
    }
    /// Number of pages mapped.
    ///
    /// # Locks
    /// Takes this space's lock (class `Pmap`).
    pub fn resident_pages(&self) -> usize {
        self.shared.tables.lock().resident
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
    pub(crate) reverse: M::Lock<Reverse<M>>,
    pub(crate) shootdown: Shootdown<M>,
    /// One for each CPU.
    pub(crate) loaded: Box<[Loaded]>,
    /// One for each CPU where there is no direct map; else empty.
    pub(crate) temporary: Box<[Temporary<M>]>,
}

impl<M: Machine> Pmaps<M> {
    /// Makes the kernel's page tables in the lowest frames of `machine`. Nothing is loaded yet: that is
    /// [`Pmaps::init_cpu`].
    ///
    /// A quarter of the arena at most goes to reverse mappings, enough for two of each frame at most.
    ///
    /// # Errors
    /// [`PmapError::MemoryTooSmall`], [`PmapError::ArenaTooLarge`], [`PmapError::ArenaTooSmall`].
    pub fn bootstrap(machine: M, config: PmapConfig) -> Result<(Pmaps<M>, Bootstrap), PmapError> {
        let _c = machine.scope(Cause::Boot);
        let topology = machine.topology();
        let mut built = bootstrap::build(&machine, &config)?;
        let entry_bytes = match topology.arch {
            Arch::I386 => 24,
            Arch::Amd64 => 48,
        };
        let capacity = (built.arena_bytes / 4 / entry_bytes).min(2 * topology.frames);
        let entries = built.arena.array("reverse mappings", capacity, entry_bytes)?;
        let request = built.arena.array("shootdown request", 1, Shootdown::<M>::BYTES)?;
        let reverse = Reverse::new(topology.frames, entries, entry_bytes, capacity);

        let tables = built.tables;
        let mut kva = tables.paged;
        let mut temporary = alloc::vec::Vec::new();
        if tables.layout.direct_map.is_none() {
            for _ in 0..topology.cpus {
                let pages = VaRange::pages_from(kva.start(), Temporary::<M>::PAGES);
                temporary.push(Temporary::new(&machine, pages));
                kva = VaRange::new(pages.end(), kva.end());
            }
        }
        assert!(!kva.is_empty() && kva.start() - tables.paged.start() <= PAGE_SIZE * 2 * topology.cpus);
        let pmaps = Pmaps {
            config,
            reverse: machine.new_lock(LockClass::ReverseMap, reverse),
            shootdown: Shootdown::new(&machine, request),
            loaded: (0..topology.cpus).map(|_| Loaded::new(tables.root)).collect(),
            temporary: temporary.into(),
            kernel: tables,
            machine,
        };
        Ok((pmaps, Bootstrap { arena: built.arena, kva, first_free: built.first_free }))
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// An empty address space: one table, in which the kernel's half is that of all others.
    ///
    /// # Errors
    /// [`PmapError::NoFrame`].
    ///
    /// # Locks
    /// Takes the lock of reverse mappings; `frames` is called with no lock held.
    pub fn create(&self, frames: &dyn FrameSource) -> Result<Pmap<M>, PmapError> {
        let (m, width) = (&self.machine, self.kernel.format.width);
        let _c = m.scope(Cause::PteWork);
        let frame = frames.take().ok_or(PmapError::NoFrame)?;
        let root = frame.pa();
        m.pte_clear_frame(root);
        for &index in &self.kernel.root_entries {
            let offset = index * width.bytes();
            let entry = m.pte_load(self.kernel.root + offset, width);
            m.pte_fill(root + offset, width, entry);
        }
        let mut reverse = self.reverse.lock();
        let id = reverse.new_id();
        let tables = m.new_lock(LockClass::Pmap, Tables::new(frame));
        let shared = Arc::new(Shared { id, root, tables });
        reverse.spaces.insert(id, shared.clone());
        Ok(Pmap { shared })
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
        self.leave_everywhere(shared.id);
        let taken = {
            let mut tables = shared.tables.lock();
            assert_eq!(
                (tables.resident, tables.wired),
                (0, 0),
                "an address space is destroyed with mappings in it"
            );
            core::mem::take(&mut tables.frames)
        };
        let registered = self.reverse.lock().spaces.remove(&shared.id);
        assert!(registered.is_some(), "an address space is destroyed that was never created here");
        taken.into_iter().for_each(|frame| frames.give(frame));
    }
}
