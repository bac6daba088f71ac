//! Ephemeral mappings: a frame's short-lived kernel address. The historical name is `sf_buf`.
//!
//! A kernel that wants the bytes of some frame needs a virtual address for it: to copy a pipe writer's page into the
//! reader's buffer, to read a page of a memory disk, to look into a traced process. Making that address means
//! allocating it, changing a page-table entry, and invalidating in every TLB; [`Ephemeral`] is one interface over four
//! ways to pay for it (sf_buf paper, sections 4 and 6.2), and three more for comparison (7):
//!
//! | [`Scheme`] | the address is | a TLB is invalidated |
//! |---|---|---|
//! | [`Scheme::Cache`] | kept with its frame until it is needed for another | when that change could be seen |
//! | [`Scheme::Direct`] | permanent: all memory is mapped | never |
//! | [`Scheme::Hybrid`] | permanent, or one of the frame's colour from a cache | as with the cache |
//! | [`Scheme::Original`] | allocated for each use | at each mapping, at each unmapping, or both, on all CPUs |
//! | [`Scheme::FreeList`] | taken from a list of some | the same |
//! | [`Scheme::Vmem`] | taken from a CPU's magazine | the same |
//! | [`Scheme::PerProcess`] | kept in a cache of the process's own | as with the cache |
//!
//! The four calls are [`Ephemeral::alloc`], [`Ephemeral::free`], [`Ephemeral::kva`] and [`Ephemeral::page`]. Beside
//! them stands what the original kernel's pipes used instead: a [`KvaRun`], addresses that the user keeps and maps
//! again and again.
//!
//! * [`index`]: hash and inactive list of the cache, as plain data.
//! * `cache`, `direct`, `hybrid`, `caches` (of processes), `original` and its `free_list`: the schemes. `kva_run`:
//!   addresses kept by their user. `flusher`: when and how far they invalidate.
//! * `user`: who asks, and `counter`: what is counted for each.
//! * `config`: what the crate is built from, what it asks for, and what can go wrong.
//!
//! # Ownership
//! Frames belong to `vm`; a caller wires a frame before it maps it and until it has freed the mapping. Addresses come
//! from [`KernelAddresses`]: the cache takes its range once, the original scheme one page at each use.
//!
//! # Locks
//! The cache has one lock, of class [`LockClass::EPHEMERAL`](pageferry_hal::LockClass::EPHEMERAL), and so has the free
//! list. It is held while other CPUs invalidate, and given up in a sleep. The other schemes have none of their own.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod cache;
mod caches;
mod config;
mod counter;
mod defect;
mod direct;
mod errno;
mod flusher;
mod free_list;
mod hybrid;
pub mod index;
mod kva_run;
mod mapping;
mod original;
mod user;

pub use config::{
    AccessedRule, AllocError, ConfigError, EphemeralConfig, EphemeralPaths, Flags, FlushAt, FlushBy,
    FlushPolicy, KernelAddresses, Scheme,
};
pub use counter::EphemeralCounter;
pub use defect::EphemeralDefect;
pub use kva_run::KvaRun;
pub use mapping::Mapping;
pub use user::MappingUser;

use alloc::string::String;
use alloc::sync::Arc;
use cache::Cache;
use caches::Caches;
use direct::Direct;
use free_list::FreeList;
use hybrid::Hybrid;
use kva_run::KvaRuns;
use mapping::{Backing, Request};
use original::Original;
use pageferry_hal::{Level, Machine, Pfn, StructArena, Threads, Va};
use pageferry_pmap::{Pmaps, Reach};

/// The ephemeral mappings of a kernel. See the [crate](self) for the model.
pub struct Ephemeral<M: Machine, K: KernelAddresses> {
    machine: M,
    pmaps: Arc<Pmaps<M>>,
    honour_private: bool,
    flush: FlushPolicy,
    imp: Imp<M, K>,
    runs: KvaRuns<M, K>,
}

enum Imp<M: Machine, K: KernelAddresses> {
    Cache(Cache<M>),
    Direct(Direct<M>),
    Hybrid(Hybrid<M>),
    PerProcess(Caches<M>),
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
            Scheme::Hybrid { entries } => {
                Imp::Hybrid(Hybrid::new(entries, config.paths, &pmaps, &*addresses, arena)?)
            }
            Scheme::PerProcess { entries, caches } => {
                Imp::PerProcess(Caches::new((caches, entries), config.paths, &pmaps, &*addresses, arena)?)
            }
            Scheme::Original => Imp::Original(Original::new(&pmaps, &addresses, config.flush)),
            Scheme::FreeList { entries } => {
                let path = config.paths.magazine;
                let list = FreeList::new(pmaps.machine(), entries, path, &*addresses, arena)?;
                Imp::Original(Original::with_list(&pmaps, &addresses, config.flush, list))
            }
            Scheme::Vmem => {
                let cpus = pmaps.machine().cpus().len();
                let path = config.paths.magazine;
                Imp::Original(Original::with_magazines(&pmaps, &addresses, config.flush, cpus, path))
            }
        };
        let machine = pmaps.machine().clone();
        let runs = KvaRuns::new(pmaps.clone(), addresses, config.flush);
        Ok(Ephemeral {
            machine,
            pmaps,
            honour_private: config.honour_private,
            flush: config.flush,
            imp,
            runs,
        })
    }

    /// How mappings are flushed that are made for each use.
    pub fn flush_policy(&self) -> FlushPolicy {
        self.flush
    }

    /// Plants a defect, to prove that checks find it. Harmless with one CPU, or with the direct map.
    #[cfg(feature = "verify")]
    pub fn plant(&mut self, defect: EphemeralDefect) {
        match &mut self.imp {
            Imp::Cache(c) => c.flusher.planted = defect.into(),
            Imp::PerProcess(caches) => caches.0.iter_mut().for_each(|c| c.flusher.planted = defect.into()),
            Imp::Original(o) => o.flusher.planted = defect.into(),
            // Pages have no colours where there are several CPUs.
            Imp::Direct(_) | Imp::Hybrid(_) => {}
        }
        self.runs.flusher.planted = defect.into();
    }

    /// A mapping of `frame` for `by` (`sf_buf_alloc`; sf_buf paper, 4.1). Callers that map the same frame may share
    /// one. The caller keeps `frame` wired until it has freed the mapping, and stays pinned as long if `flags` has
    /// [`Flags::PRIVATE`].
    ///
    /// # Errors
    /// [`AllocError::WouldBlock`] only with [`Flags::NOWAIT`], [`AllocError::Interrupted`] only with
    /// [`Flags::INTERRUPTIBLE`], both only of a cache or a free list; [`AllocError::NoAddresses`] only in the original
    /// scheme and Vmem. The direct map never fails.
    ///
    /// # Locks
    /// Takes `Ephemeral` or what [`KernelAddresses`] takes, and what the pmap takes below ([`Pmaps::claim`]). Without
    /// [`Flags::NOWAIT`] the cache and the free list may sleep: the caller then holds no spin lock.
    pub fn alloc(
        &self,
        threads: &dyn Threads,
        frame: Pfn,
        by: MappingUser,
        flags: Flags,
    ) -> Result<Mapping, AllocError> {
        let request = Request { frame, by };
        let flags = if self.honour_private { flags } else { flags.difference(Flags::PRIVATE) };
        let backing = match &self.imp {
            Imp::Cache(cache) => cache.alloc(threads, request, flags)?,
            Imp::Direct(_) => {
                self.machine.count(EphemeralCounter::EphemeralDirect, 1);
                by.mapped(&self.machine, 1);
                Backing::Direct
            }
            Imp::Hybrid(hybrid) => hybrid.alloc(threads, request, flags)?,
            Imp::PerProcess(caches) => caches.alloc(caches.of(threads), threads, request, flags)?,
            Imp::Original(original) => original.alloc(threads, request, flags)?,
        };
        let mapping = Mapping { frame, by, backing };
        if self.pmaps.colours() > 1 {
            self.pmaps.claim(frame, self.kva(&mapping), Reach::Write);
        }
        self.machine.trace_level(Level::EphemeralMappings, 1);
        Ok(mapping)
    }

    /// Gives a mapping back (`sf_buf_free`). The last reference to a buffer of the cache makes it inactive, still
    /// mapped, and wakes one sleeper.
    ///
    /// # Panics
    /// When a private mapping is freed on another CPU than it was allocated on: the thread was not pinned.
    ///
    /// # Locks
    /// As [`Ephemeral::alloc`]; never sleeps.
    pub fn free(&self, threads: &dyn Threads, mapping: Mapping) {
        match (&self.imp, mapping.backing) {
            (Imp::Cache(cache), Backing::Cached { id, private_on }) => {
                cache.free(threads, id, mapping.frame, private_on);
            }
            (Imp::Direct(_) | Imp::Hybrid(_), Backing::Direct) => {}
            (
                Imp::Hybrid(Hybrid { caches, .. }) | Imp::PerProcess(caches),
                Backing::Among { cache, id, private_on },
            ) => {
                caches.free(cache, threads, id, mapping.frame, private_on);
            }
            (Imp::Original(original), Backing::Own(range)) => original.free(threads, range, mapping.by),
            (_, backing) => panic!("{backing:?} is not a mapping of this kernel"),
        }
        self.machine.count(EphemeralCounter::EphemeralFrees, 1);
        self.machine.trace_level(Level::EphemeralMappings, -1);
    }

    /// The kernel address of a mapping (`sf_buf_kva`).
    pub fn kva(&self, mapping: &Mapping) -> Va {
        match (&self.imp, &mapping.backing) {
            (Imp::Cache(cache), Backing::Cached { id, .. }) => cache.va(*id),
            (Imp::Direct(direct) | Imp::Hybrid(Hybrid { direct, .. }), Backing::Direct) => {
                direct.va(mapping.frame)
            }
            (
                Imp::Hybrid(Hybrid { caches, .. }) | Imp::PerProcess(caches),
                Backing::Among { cache, id, .. },
            ) => caches.va(*cache, *id),
            (Imp::Original(_), Backing::Own(range)) => range.start(),
            (_, backing) => panic!("{backing:?} is not a mapping of this kernel"),
        }
    }

    /// The frame of a mapping (`sf_buf_page`).
    pub fn page(&self, mapping: &Mapping) -> Pfn {
        mapping.frame
    }

    /// A run of `len_pages` pages of addresses for `by`, to be mapped again and again by its owner, as each pipe of the
    /// original kernel kept one (sf_buf paper, 5). Independent of the scheme.
    ///
    /// # Errors
    /// [`AllocError::NoAddresses`].
    ///
    /// # Panics
    /// When `len_pages` is zero.
    pub fn kva_run(&self, len_pages: usize, by: MappingUser) -> Result<KvaRun, AllocError> {
        self.runs.make(len_pages, by)
    }

    /// Maps `frames` from the run's start on, with one unconditional flush for all of them (`pmap_qenter` of FreeBSD
    /// 5), unless the [`FlushPolicy`] says otherwise. Any CPU may use the addresses.
    ///
    /// # Panics
    /// When there are no frames or more than the run has pages, or others are mapped.
    ///
    /// # Locks
    /// What the pmap takes for a shootdown.
    pub fn enter_run(&self, run: &mut KvaRun, frames: &[Pfn]) -> Va {
        self.runs.enter(run, frames)
    }

    /// Maps `frames` from the run's start on, of which the first are mapped there already: all are entered once more,
    /// with one flush for all of them (`allocbuf` of FreeBSD 5), unless the [`FlushPolicy`] says that nothing is
    /// flushed for being mapped.
    ///
    /// # Panics
    /// When there are fewer frames than are mapped, or more than the run has pages, or nothing is mapped.
    ///
    /// # Locks
    /// As [`Ephemeral::enter_run`].
    pub fn extend_run(&self, run: &mut KvaRun, frames: &[Pfn]) {
        self.runs.extend(run, frames);
    }

    /// Unmaps what is mapped in the run, with one unconditional flush for all of it (`pmap_qremove` of FreeBSD 5),
    /// unless the [`FlushPolicy`] says otherwise.
    ///
    /// # Panics
    /// When nothing is mapped.
    ///
    /// # Locks
    /// As [`Ephemeral::enter_run`].
    pub fn remove_run(&self, run: &mut KvaRun) {
        self.runs.remove(run);
    }

    /// Gives the addresses back.
    ///
    /// # Panics
    /// When something is still mapped.
    pub fn release_run(&self, run: KvaRun) {
        self.runs.release(run);
    }

    /// References to ephemeral mappings, or for the cache the buffers with at least one; zero for the direct map, which
    /// does not count. Runs of addresses are not included.
    ///
    /// # Locks
    /// Takes `Ephemeral` for the cache.
    pub fn held(&self) -> usize {
        match &self.imp {
            Imp::Cache(cache) => cache.active(),
            Imp::Direct(_) => 0,
            Imp::Hybrid(Hybrid { caches, .. }) | Imp::PerProcess(caches) => caches.active(),
            Imp::Original(original) => original.live(),
        }
    }

    /// How many frames there can be mappings of at a time, for certain: the buffers of the cache, or of the smallest of
    /// several, or the addresses of the free list. None where neither sets a bound.
    pub fn buffers(&self) -> Option<usize> {
        match &self.imp {
            Imp::Cache(cache) => Some(cache.buffers()),
            Imp::Hybrid(Hybrid { caches, .. }) | Imp::PerProcess(caches) => caches.smallest(),
            Imp::Original(original) => original.addresses(),
            Imp::Direct(_) => None,
        }
    }

    /// Threads that sleep for a buffer of the cache or an address of the free list, or were woken and have not looked
    /// yet.
    ///
    /// # Locks
    /// Takes `Ephemeral` for the cache and the free list.
    pub fn waiting(&self) -> usize {
        match &self.imp {
            Imp::Cache(cache) => cache.waiting(),
            Imp::Direct(_) => 0,
            Imp::Hybrid(Hybrid { caches, .. }) | Imp::PerProcess(caches) => caches.waiting(),
            Imp::Original(original) => original.waiting(),
        }
    }

    /// Runs of addresses that exist.
    pub fn kva_runs(&self) -> usize {
        self.runs.live()
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
            Imp::Hybrid(Hybrid { caches, .. }) | Imp::PerProcess(caches) => caches.check(),
            Imp::Direct(_) | Imp::Original(_) => Ok(()),
        }
    }
}
