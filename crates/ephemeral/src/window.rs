//! Addresses that their user keeps: the original kernel's pipes cached some for themselves, because the general allocator
//! was too slow (sf_buf paper, 5).
//!
//! A [`Window`] belongs to one user, who serialises its use; there is no lock. FreeBSD 5 changed runs of kernel pages with
//! `pmap_qenter` and `pmap_qremove`: as many page-table entries as pages, then one invalidation of the range on all CPUs,
//! whether or not anything was mapped there before.

use crate::{AllocError, Flusher, KernelAddresses};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use pageferry_hal::{Machine, Pfn, Prot, Va, VaRange};
use pageferry_pmap::Pmaps;

/// Addresses that a user keeps for itself. To be given back with [`crate::Ephemeral::window_release`].
#[derive(Debug)]
#[must_use = "addresses must be released"]
pub struct Window {
    range: VaRange,
    mapped_pages: usize,
}

impl Window {
    /// The longest run that fits.
    pub fn len_pages(&self) -> usize {
        self.range.len_pages()
    }
}

pub(crate) struct Windows<M: Machine, K: KernelAddresses> {
    pmaps: Arc<Pmaps<M>>,
    addresses: Arc<K>,
    /// Windows that exist; for checks at quiescence only.
    live: AtomicUsize,
    pub(crate) flusher: Flusher,
}

impl<M: Machine, K: KernelAddresses> Windows<M, K> {
    pub(crate) fn new(pmaps: Arc<Pmaps<M>>, addresses: Arc<K>) -> Windows<M, K> {
        Windows { pmaps, addresses, live: AtomicUsize::new(0), flusher: Flusher { local_only: false } }
    }

    pub(crate) fn make(&self, len_pages: usize) -> Result<Window, AllocError> {
        assert!(len_pages > 0, "a window of no pages");
        let range = self.addresses.alloc(len_pages).ok_or(AllocError::NoAddresses)?;
        assert_eq!(range.len_pages(), len_pages, "the address allocator gave {range:?}");
        self.live.fetch_add(1, Ordering::Relaxed);
        Ok(Window { range, mapped_pages: 0 })
    }

    pub(crate) fn enter(&self, window: &mut Window, frames: &[Pfn]) -> Va {
        assert_eq!(window.mapped_pages, 0, "a run is mapped in this window already");
        assert!(
            !frames.is_empty() && frames.len() <= window.len_pages(),
            "{} pages do not fit a window of {}",
            frames.len(),
            window.len_pages()
        );
        let change = self.pmaps.kenter(window.range.start(), frames, Prot::RW);
        self.flusher.flush(change, &self.pmaps);
        window.mapped_pages = frames.len();
        window.range.start()
    }

    pub(crate) fn remove(&self, window: &mut Window) {
        assert!(window.mapped_pages > 0, "no run is mapped in this window");
        let change = self.pmaps.kremove(VaRange::pages_from(window.range.start(), window.mapped_pages));
        self.flusher.flush(change, &self.pmaps);
        window.mapped_pages = 0;
    }

    pub(crate) fn release(&self, window: Window) {
        assert_eq!(window.mapped_pages, 0, "a run is still mapped in this window");
        self.addresses.free(window.range);
        let before = self.live.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more windows released than made");
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}
