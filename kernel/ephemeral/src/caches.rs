//! Several caches of mappings beside each other, each with its addresses, its buffers and its lock.
//!
//! A mapping knows the cache that it is from. Which one a frame goes to is the caller's business: that of its colour
//! ([`crate::hybrid`]), or that of the process that asks, as in Solaris 2.4 (H.-K. J. Chu, USENIX 1996; sf_buf paper,
//! 7): there a frame that several processes look at is mapped once for each.

use crate::cache::Cache;
use crate::config::{AccessedRule, AllocError, ConfigError, EphemeralPaths, Flags, KernelAddresses};
use crate::index::BufferId;
use crate::mapping::{Backing, Request};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{CpuId, Machine, Pfn, StructArena, Threads, Va};
use pageferry_pmap::Pmaps;

pub(crate) struct Caches<M: Machine>(pub(crate) Vec<Cache<M>>);

impl<M: Machine> Caches<M> {
    /// So many caches of so many entries each.
    pub(crate) fn new(
        (caches, entries): (usize, usize),
        paths: EphemeralPaths,
        pmaps: &Arc<Pmaps<M>>,
        addresses: &dyn KernelAddresses,
        arena: &mut StructArena,
    ) -> Result<Caches<M>, ConfigError> {
        if caches == 0 {
            return Err(ConfigError::NoEntries);
        }
        let mut made: Vec<Cache<M>> = Vec::with_capacity(caches);
        for _ in 0..caches {
            match Cache::new(entries, AccessedRule::Safe, paths, pmaps, addresses, arena) {
                Ok(cache) => made.push(cache),
                Err(e) => {
                    made.iter().for_each(|cache| addresses.free(cache.range()));
                    return Err(e);
                }
            }
        }
        Ok(Caches(made))
    }

    /// The cache of the process that `threads` speaks for. Processes whose numbers are as many apart as there are
    /// caches share one.
    pub(crate) fn of(&self, threads: &dyn Threads) -> usize {
        threads.process() as usize % self.0.len()
    }

    pub(crate) fn alloc(
        &self,
        cache: usize,
        threads: &dyn Threads,
        request: Request,
        flags: Flags,
    ) -> Result<Backing, AllocError> {
        match self.0[cache].alloc(threads, request, flags)? {
            Backing::Cached { id, private_on } => Ok(Backing::Among { cache, id, private_on }),
            other => unreachable!("{other:?} is from no cache"),
        }
    }

    pub(crate) fn free(
        &self,
        cache: usize,
        threads: &dyn Threads,
        id: BufferId,
        frame: Pfn,
        private_on: Option<CpuId>,
    ) {
        self.0[cache].free(threads, id, frame, private_on);
    }

    pub(crate) fn va(&self, cache: usize, id: BufferId) -> Va {
        self.0[cache].va(id)
    }

    /// Buffers of the smallest, if there is any.
    pub(crate) fn smallest(&self) -> Option<usize> {
        self.0.iter().map(Cache::buffers).min()
    }

    pub(crate) fn active(&self) -> usize {
        self.0.iter().map(Cache::active).sum()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.0.iter().map(Cache::waiting).sum()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.0.iter().try_for_each(Cache::check)
    }
}
