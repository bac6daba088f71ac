//! Ephemeral mappings: a frame's short-lived kernel address. The historical name is `sf_buf`.
//!
//! A kernel that wants the bytes of some frame needs a virtual address for it: to copy a pipe writer's page into the
//! reader's buffer, to read a page of a memory disk, to look into a traced process. Making that address means allocating
//! it, changing a page-table entry, and telling every TLB; [`Ephemeral`] is one interface over three ways to pay for it
//! (sf_buf paper, sections 4 and 6.2):
//!
//! | [`Scheme`] | the address is | a TLB is told |
//! |---|---|---|
//! | [`Scheme::Cache`] | kept with its frame until it is needed for another | when that change could be seen |
//! | [`Scheme::Direct`] | permanent: all memory is mapped | never |
//! | [`Scheme::Original`] | allocated for each use | at each mapping and each unmapping, on all CPUs |
//!
//! The four calls are [`Ephemeral::alloc`], [`Ephemeral::free`], [`Ephemeral::kva`] and [`Ephemeral::page`]. Beside them
//! stands what the original kernel's pipes used instead: a [`Window`], addresses that the user keeps and maps again and
//! again.
//!
//! * [`index`]: hash and inactive list of the cache, as plain data.
//! * `cache`, `direct`, `original`: the schemes. `window`: addresses kept by their user.
//!
//! # Ownership
//! Frames belong to `vm`; a caller wires a frame before it maps it and until it has freed the mapping. Addresses come
//! from [`KernelAddresses`]: the cache takes its range once, the original scheme one page at each use.
//!
//! # Locks
//! The cache has one lock, of class [`LockClass::Ephemeral`](pageferry_hal::LockClass::Ephemeral). It is held while other
//! CPUs invalidate, and given up in a sleep. The other schemes have none of their own.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod cache;
mod direct;
pub mod index;
mod original;
mod window;

pub use window::Window;

use alloc::string::String;
use alloc::sync::Arc;
use cache::Cache;
use direct::Direct;
use index::BufferId;
use original::Original;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Counter, CpuId, Machine, Pfn, StructArena, Threads, Va, VaRange, paths};
use pageferry_pmap::{Change, Pmaps};
use window::Windows;

bitflags::bitflags! {
    /// How [`Ephemeral::alloc`] may behave (sf_buf paper, 4.1). Empty: the mapping may be used by every CPU, and the call
    /// sleeps until there is one.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u8 {
        /// The mapping is for the calling thread alone, which stays pinned from before the call until it has freed it.
        const PRIVATE = 1;
        /// Do not sleep: fail instead.
        const NOWAIT = 2;
        /// A signal may end the sleep. Without effect beside `NOWAIT`.
        const INTERRUPTIBLE = 4;
    }
}

/// What a miss concludes from an old page-table entry whose accessed bit is clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessedRule {
    /// The old mapping was used by nobody, so whoever was free of older translations still is: the mask stays as it was,
    /// and the rules of a hit apply to the rest. Correct.
    Safe,
    /// As the sf_buf paper prints it (4.2): nothing is invalidated and the mask becomes all CPUs. It forgets that a CPU
    /// outside the mask may hold a translation from *before* the old mapping, and is kept to show that.
    AsPrinted,
}

/// How frames get their addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// A cache of mappings, as on i386 (sf_buf paper, 4.2).
    Cache {
        /// Buffers, each with one page of kernel addresses.
        entries: usize,
        /// What a clear accessed bit means.
        rule: AccessedRule,
    },
    /// The direct map, as on amd64 (4.3).
    Direct,
    /// An address is allocated and a mapping made and unmade for each use (6.2).
    Original,
}

paths! {
    /// Path lengths of this floor, without the memory accesses and without what other floors do for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EphemeralPaths {
        /// The cache: an allocation that hits.
        pub alloc_hit: Path,
        /// The cache: an allocation that misses, from look-up to return.
        pub alloc_miss: Path,
        /// The cache: giving a mapping back.
        pub free: Path,
    }
}

/// What [`Ephemeral::new`] builds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EphemeralConfig {
    /// How frames get their addresses.
    pub scheme: Scheme,
    /// False: [`Flags::PRIVATE`] is ignored, every mapping is shared (sf_buf paper, 6.4.1: "private option eliminated").
    pub honour_private: bool,
    /// Path lengths.
    pub paths: EphemeralPaths,
}

/// Where kernel addresses come from: implemented by `vm`'s kernel map.
pub trait KernelAddresses {
    /// A range of `len_pages` pages, unmapped; `None` when none is left.
    fn alloc(&self, len_pages: usize) -> Option<VaRange>;
    /// Takes back a range that [`KernelAddresses::alloc`] gave out; nothing in it is mapped any more.
    fn free(&self, range: VaRange);
}

/// Why there is no mapping. The caller's frame and the cache are as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocError {
    /// Every buffer is in use, and the flags forbid to sleep.
    #[error("no ephemeral mapping is free and the caller would not wait")]
    WouldBlock,
    /// A signal ended the sleep.
    #[error("the wait for an ephemeral mapping was interrupted by a signal")]
    Interrupted,
    /// The original scheme, or a window: the kernel's address space is used up.
    #[error("no kernel addresses are left")]
    NoAddresses,
}

/// A configuration that this machine cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A cache of zero entries.
    #[error("a mapping cache needs at least one entry")]
    NoEntries,
    /// [`Scheme::Direct`] on a machine that cannot map all of its memory.
    #[error("this machine has no direct map")]
    NoDirectMap,
    /// More entries than there are pages of kernel addresses.
    #[error("{entries} entries do not fit the kernel's address space")]
    TooManyEntries {
        /// Entries asked for.
        entries: usize,
    },
    /// No room for the buffers themselves.
    #[error("the mapping cache does not fit: {0}")]
    Arena(#[from] ArenaFull),
}

/// An ephemeral mapping (`struct sf_buf *`): opaque, one reference, to be given back with [`Ephemeral::free`].
#[derive(Debug)]
#[must_use = "an ephemeral mapping must be freed"]
pub struct Mapping {
    frame: Pfn,
    place: Place,
}

/// Where a mapping is, and what giving it back takes.
#[derive(Debug)]
enum Place {
    /// In the direct map.
    Direct,
    /// In a buffer of the cache; a private one belongs to a CPU.
    Cached { id: BufferId, private_on: Option<CpuId> },
    /// At an address of its own.
    Own(VaRange),
}

/// How a change of a shared mapping is made known.
#[derive(Clone, Copy, Debug)]
struct Flusher {
    /// A planted defect: the other CPUs are not told.
    local_only: bool,
}

impl Flusher {
    fn flush<M: Machine>(self, change: Change<M>, pmaps: &Pmaps<M>) {
        if self.local_only { change.flush_local(pmaps) } else { change.flush(pmaps) }
    }
}

/// The ephemeral mappings of a kernel. See the [crate](self) for the model.
pub struct Ephemeral<M: Machine, K: KernelAddresses> {
    machine: M,
    honour_private: bool,
    imp: Imp<M, K>,
    windows: Windows<M, K>,
}

enum Imp<M: Machine, K: KernelAddresses> {
    Cache(Cache<M>),
    Direct(Direct<M>),
    Original(Original<M, K>),
}

impl<M: Machine, K: KernelAddresses> Ephemeral<M, K> {
    /// The mappings of one kernel, made at boot. The cache takes all of its addresses here.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing was taken.
    pub fn new(
        config: EphemeralConfig,
        pmaps: Arc<Pmaps<M>>,
        addresses: Arc<K>,
        arena: &mut StructArena,
    ) -> Result<Self, ConfigError> {
        let imp = match config.scheme {
            Scheme::Cache { entries, rule } => {
                Imp::Cache(Cache::new(entries, rule, config.paths, &pmaps, &*addresses, arena)?)
            }
            Scheme::Direct => Imp::Direct(Direct::new(&pmaps)?),
            Scheme::Original => Imp::Original(Original::new(&pmaps, &addresses)),
        };
        let machine = pmaps.machine().clone();
        let windows = Windows::new(pmaps, addresses);
        Ok(Ephemeral { machine, honour_private: config.honour_private, imp, windows })
    }

    /// Plants a defect, to prove that checks find it: changes of shared mappings are no longer made known to other CPUs.
    /// Harmless with one CPU, or with the direct map.
    pub fn plant_missing_shootdown(&mut self) {
        match &mut self.imp {
            Imp::Cache(c) => c.flusher.local_only = true,
            Imp::Original(o) => o.flusher.local_only = true,
            Imp::Direct(_) => {}
        }
        self.windows.flusher.local_only = true;
    }

    /// A mapping of `frame` (`sf_buf_alloc`; sf_buf paper, 4.1). Callers that map the same frame may share one. The caller
    /// keeps `frame` wired until it has freed the mapping, and stays pinned as long if `flags` has [`Flags::PRIVATE`].
    ///
    /// # Errors
    /// [`AllocError::WouldBlock`] only with [`Flags::NOWAIT`], [`AllocError::Interrupted`] only with
    /// [`Flags::INTERRUPTIBLE`]; [`AllocError::NoAddresses`] only in the original scheme. The direct map never fails.
    ///
    /// # Locks
    /// Takes `Ephemeral` or what [`KernelAddresses`] takes, and what the pmap takes below. Without
    /// [`Flags::NOWAIT`] the cache may sleep: the caller then holds no spin lock.
    pub fn alloc(&self, threads: &dyn Threads, frame: Pfn, flags: Flags) -> Result<Mapping, AllocError> {
        let flags = if self.honour_private { flags } else { flags.difference(Flags::PRIVATE) };
        let place = match &self.imp {
            Imp::Cache(cache) => cache.alloc(threads, frame, flags)?,
            Imp::Direct(_) => {
                self.machine.count(Counter::EphemeralHits, 1);
                Place::Direct
            }
            Imp::Original(original) => original.alloc(frame)?,
        };
        Ok(Mapping { frame, place })
    }

    /// Gives a mapping back (`sf_buf_free`). The last reference to a buffer of the cache makes it inactive, still mapped,
    /// and wakes one sleeper.
    ///
    /// # Panics
    /// When a private mapping is freed on another CPU than it was allocated on: the thread was not pinned.
    ///
    /// # Locks
    /// As [`Ephemeral::alloc`]; never sleeps.
    pub fn free(&self, threads: &dyn Threads, mapping: Mapping) {
        match (&self.imp, mapping.place) {
            (Imp::Cache(cache), Place::Cached { id, private_on }) => {
                cache.free(threads, id, mapping.frame, private_on);
            }
            (Imp::Direct(_), Place::Direct) => {}
            (Imp::Original(original), Place::Own(range)) => original.free(range),
            (_, place) => panic!("{place:?} is not a mapping of this kernel"),
        }
        self.machine.count(Counter::EphemeralFrees, 1);
    }

    /// The kernel address of a mapping (`sf_buf_kva`).
    pub fn kva(&self, mapping: &Mapping) -> Va {
        match (&self.imp, &mapping.place) {
            (Imp::Cache(cache), Place::Cached { id, .. }) => cache.va(*id),
            (Imp::Direct(direct), Place::Direct) => direct.va(mapping.frame),
            (Imp::Original(_), Place::Own(range)) => range.start(),
            (_, place) => panic!("{place:?} is not a mapping of this kernel"),
        }
    }

    /// The frame of a mapping (`sf_buf_page`).
    pub fn page(&self, mapping: &Mapping) -> Pfn {
        mapping.frame
    }

    /// Addresses for runs of up to `len_pages` pages, to be mapped again and again by their owner, as each pipe of the
    /// original kernel kept them (sf_buf paper, 5). Independent of the scheme.
    ///
    /// # Errors
    /// [`AllocError::NoAddresses`].
    ///
    /// # Panics
    /// When `len_pages` is zero.
    pub fn window(&self, len_pages: usize) -> Result<Window, AllocError> {
        self.windows.make(len_pages)
    }

    /// Maps a run of frames from the window's start on, with one unconditional flush for all of it (`pmap_qenter` of
    /// FreeBSD 5). Any CPU may use the addresses.
    ///
    /// # Panics
    /// When the run is empty or longer than the window, or another is mapped.
    ///
    /// # Locks
    /// What the pmap takes for a shootdown.
    pub fn window_enter(&self, window: &mut Window, frames: &[Pfn]) -> Va {
        self.windows.enter(window, frames)
    }

    /// Unmaps the run, with one unconditional flush for all of it (`pmap_qremove` of FreeBSD 5).
    ///
    /// # Panics
    /// When nothing is mapped.
    ///
    /// # Locks
    /// As [`Ephemeral::window_enter`].
    pub fn window_remove(&self, window: &mut Window) {
        self.windows.remove(window);
    }

    /// Gives the addresses back.
    ///
    /// # Panics
    /// When a run is still mapped.
    pub fn window_release(&self, window: Window) {
        self.windows.release(window);
    }

    /// References to ephemeral mappings, or for the cache the buffers with at least one; zero for the direct map, which
    /// does not count. Windows are not included.
    ///
    /// # Locks
    /// Takes `Ephemeral` for the cache.
    pub fn held(&self) -> usize {
        match &self.imp {
            Imp::Cache(cache) => cache.active(),
            Imp::Direct(_) => 0,
            Imp::Original(original) => original.live(),
        }
    }

    /// Windows that exist.
    pub fn windows(&self) -> usize {
        self.windows.live()
    }

    /// Tests the invariants of the cache (sf_buf paper, 4.2); see [`index::MappingIndex::check`]. O(entries).
    ///
    /// # Errors
    /// What is broken, in words.
    ///
    /// # Locks
    /// Takes `Ephemeral` for the cache.
    pub fn check(&self) -> Result<(), String> {
        match &self.imp {
            Imp::Cache(cache) => cache.check(),
            Imp::Direct(_) | Imp::Original(_) => Ok(()),
        }
    }
}
