//! The hybrid of sparc64 (sf_buf paper, 4.4): the direct map where colours agree, a cache where they do not.
//!
//! In a cache that is indexed by virtual addresses a frame is to be reached by addresses of one colour
//! ([`pageferry_pmap::Pmaps::claim`]). In the direct map a frame has the colour of its number, and nothing is to be
//! done where the frame's users have it by the same. Where they have another, an address of theirs is taken: there is a
//! cache for each colour, of addresses of that colour, so that a frame's mapping is found again as long as the frame
//! keeps its colour. A mapping of the wrong colour stays in its cache until it is the least recently used: it is not
//! found, and is not used.
//!
//! Locks and failures are those of [`crate::cache`], on machines with one CPU.

use crate::cache::{Cache, Spaced};
use crate::caches::Caches;
use crate::config::{AccessedRule, AllocError, ConfigError, EphemeralPaths, Flags, KernelAddresses};
use crate::counter::EphemeralCounter;
use crate::direct::Direct;
use crate::mapping::{Backing, Request};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Machine, PAGE_SIZE, StructArena, Threads};
use pageferry_pmap::Pmaps;

pub(crate) struct Hybrid<M: Machine> {
    pmaps: Arc<Pmaps<M>>,
    pub(crate) direct: Direct<M>,
    /// By colour; none where pages have no colours.
    pub(crate) caches: Caches<M>,
}

impl<M: Machine> Hybrid<M> {
    pub(crate) fn new(
        entries: usize,
        paths: EphemeralPaths,
        pmaps: &Arc<Pmaps<M>>,
        addresses: &dyn KernelAddresses,
        arena: &mut StructArena,
    ) -> Result<Hybrid<M>, ConfigError> {
        let direct = Direct::new(pmaps)?;
        let colours = pmaps.colours() as usize;
        let mut caches = Vec::new();
        if colours > 1 {
            if entries == 0 {
                return Err(ConfigError::NoEntries);
            }
            let pages = entries.checked_mul(colours).filter(|&pages| pages < u32::MAX as usize);
            let range = pages.and_then(|pages| addresses.alloc(pages));
            let range = range.ok_or(ConfigError::TooManyEntries { entries })?;
            // As many pages in a row as there are colours have one of each.
            let mut firsts: Vec<_> = range.pages().take(colours).collect();
            firsts.sort_by_key(|&va| pmaps.colour(va));
            for first in firsts {
                let spaced = Spaced { first, stride_bytes: colours * PAGE_SIZE };
                let made = Cache::over(spaced, entries, AccessedRule::Safe, paths, pmaps, arena);
                caches.push(made.inspect_err(|_| addresses.free(range))?);
            }
        }
        Ok(Hybrid { pmaps: pmaps.clone(), direct, caches: Caches(caches) })
    }

    pub(crate) fn alloc(
        &self,
        threads: &dyn Threads,
        request: Request,
        flags: Flags,
    ) -> Result<Backing, AllocError> {
        let colour = self.pmaps.best_colour(request.frame);
        if colour == self.pmaps.own_colour(request.frame) {
            self.pmaps.machine().count(EphemeralCounter::EphemeralDirect, 1);
            request.by.mapped(self.pmaps.machine(), 1);
            return Ok(Backing::Direct);
        }
        self.caches.alloc(colour as usize, threads, request, flags)
    }
}
