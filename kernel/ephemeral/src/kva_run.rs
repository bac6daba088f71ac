//! Addresses that their user keeps: the original kernel's pipes cached some for themselves, because the general
//! allocator was too slow (sf_buf paper, 5).
//!
//! A [`KvaRun`] belongs to one user, which serialises its use; there is no lock. FreeBSD 5 changed runs of kernel pages
//! with `pmap_qenter` and `pmap_qremove`: as many page-table entries as pages, then one invalidation of the range on
//! all CPUs, whether or not anything was mapped there before. A [`FlushPolicy`] may say otherwise: at one of the two,
//! or page by page.
//!
//! Where pages have colours a run has some addresses more than pages, so that the first frame finds one of its colour.
//! The pages of a buffer follow one another, and so do their colours.

use crate::config::{AllocError, FlushBy, FlushPolicy, KernelAddresses};
use crate::counter::EphemeralCounter;
use crate::flusher::Flusher;
use crate::user::MappingUser;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use pageferry_hal::{Machine, PAGE_SIZE, Pfn, Prot, Va, VaRange};
use pageferry_pmap::Pmaps;

/// A run of kernel addresses that its user keeps. To be given back with [`crate::Ephemeral::release_run`].
#[derive(Debug)]
#[must_use = "addresses must be released"]
pub struct KvaRun {
    range: VaRange,
    /// The most pages that are mapped at once.
    len_pages: usize,
    mapped: Option<VaRange>,
    by: MappingUser,
}

impl KvaRun {
    /// The most pages that fit.
    pub fn len_pages(&self) -> usize {
        self.len_pages
    }
}

pub(crate) struct KvaRuns<M: Machine, K: KernelAddresses> {
    pmaps: Arc<Pmaps<M>>,
    addresses: Arc<K>,
    /// Runs that exist; for checks at quiescence only.
    live: AtomicUsize,
    pub(crate) flusher: Flusher,
}

impl<M: Machine, K: KernelAddresses> KvaRuns<M, K> {
    pub(crate) fn new(pmaps: Arc<Pmaps<M>>, addresses: Arc<K>, policy: FlushPolicy) -> KvaRuns<M, K> {
        KvaRuns { pmaps, addresses, live: AtomicUsize::new(0), flusher: Flusher::new(policy) }
    }

    pub(crate) fn make(&self, len_pages: usize, by: MappingUser) -> Result<KvaRun, AllocError> {
        assert!(len_pages > 0, "a run of no pages");
        let wanted = len_pages + self.pmaps.colours() as usize - 1;
        let range = self.addresses.alloc(wanted).ok_or(AllocError::NoAddresses)?;
        assert_eq!(range.len_pages(), wanted, "the address allocator gave {range:?}");
        self.live.fetch_add(1, Ordering::Relaxed);
        Ok(KvaRun { range, len_pages, mapped: None, by })
    }

    pub(crate) fn enter(&self, run: &mut KvaRun, frames: &[Pfn]) -> Va {
        assert_eq!(run.mapped, None, "frames are mapped in this run already");
        assert!(
            !frames.is_empty() && frames.len() <= run.len_pages(),
            "{} pages do not fit a run of {}",
            frames.len(),
            run.len_pages()
        );
        let (start, pmaps) = (run.range.start(), &self.pmaps);
        let ahead = pmaps.best_colour(frames[0]).wrapping_sub(pmaps.colour(start)) & (pmaps.colours() - 1);
        let start = start + ahead as usize * PAGE_SIZE;
        self.map(start, frames, run.by);
        run.mapped = Some(VaRange::pages_from(start, frames.len()));
        start
    }

    pub(crate) fn extend(&self, run: &mut KvaRun, frames: &[Pfn]) {
        let mapped = run.mapped.expect("something is mapped in this run");
        let (start, before) = (mapped.start(), mapped.len_pages());
        assert!(
            (before..=run.len_pages()).contains(&frames.len()),
            "{} pages instead of {before} in a run of {}",
            frames.len(),
            run.len_pages()
        );
        // Where nothing is flushed for being mapped, what is there stays.
        let from = if self.flusher.policy.at.maps() { 0 } else { before };
        if from < frames.len() {
            self.map(start + from * PAGE_SIZE, &frames[from..], run.by);
        }
        run.mapped = Some(VaRange::pages_from(start, frames.len()));
    }

    fn map(&self, start: Va, frames: &[Pfn], by: MappingUser) {
        let pmaps = &self.pmaps;
        for (pages, frames) in self.pieces(start, frames.len()).zip(frames.chunks(self.at_once(frames.len())))
        {
            let flush = pmaps.kenter(pages.start(), frames, Prot::RW);
            self.flusher.mapped(flush, by, pmaps);
        }
        pmaps.machine().count(EphemeralCounter::RunPages, frames.len() as u64);
        by.mapped(pmaps.machine(), frames.len());
    }

    pub(crate) fn remove(&self, run: &mut KvaRun) {
        let mapped = run.mapped.take().expect("something is mapped in this run");
        for pages in self.pieces(mapped.start(), mapped.len_pages()) {
            let flush = self.pmaps.kremove(pages);
            self.flusher.unmapped(flush, run.by, &self.pmaps);
        }
    }

    /// So many of `pages` are changed at once.
    fn at_once(&self, pages: usize) -> usize {
        if self.flusher.policy.by == FlushBy::Page { 1 } else { pages }
    }

    /// What is changed at once, of so many pages.
    fn pieces(&self, start: Va, pages: usize) -> impl Iterator<Item = VaRange> + use<M, K> {
        let step = self.at_once(pages);
        (0..pages).step_by(step).map(move |page| VaRange::pages_from(start + page * PAGE_SIZE, step))
    }

    pub(crate) fn release(&self, run: KvaRun) {
        assert_eq!(run.mapped, None, "frames are still mapped in this run");
        self.addresses.free(run.range);
        let before = self.live.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more runs released than made");
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}
