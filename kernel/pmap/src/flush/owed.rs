//! The flush that a change of mappings obliges to.
//!
//! A [`TlbFlush`] lists the pages whose old translations TLBs may hold, says whose they are, and keeps the machine's
//! window open: the time in which the use of such a translation is no error. It owns nothing else and needs no lock.

use super::invalidations::Invalidations;
use super::part::Part;
use crate::pmap::Pmaps;
use crate::tlb::asid::Tags;
use alloc::sync::Arc;
use pageferry_hal::{Attr, Machine, SpaceId, Tte, Va, VaRange};
use smallvec::SmallVec;

/// Mappings have changed, and TLBs may hold what was there: an obligation to flush. Discharge it with one of its
/// methods; several can be merged and discharged in one shootdown.
///
/// Pages of user mappings are listed only if their old entry was valid. Pages of [`Pmaps::kenter`] and
/// [`Pmaps::kremove`] are listed always: FreeBSD 5 invalidates after `pmap_qenter` and `pmap_qremove` whatever was
/// there before, and the original kernel of the sf_buf paper (6.2) is measured by that. A caller that knows better
/// discharges it by [`TlbFlush::flush_local`] or [`TlbFlush::not_cached`].
///
/// # Panics
/// Dropping one that lists pages and was not discharged panics: a flush was forgotten. (While another panic unwinds,
/// this ends the program at once.) An empty one owes nothing and may be dropped.
#[must_use = "stale translations stay in TLBs until this is flushed"]
pub struct TlbFlush<M: Machine> {
    // Most changes have one range and one window: neither is allocated for.
    parts: SmallVec<[Part; 1]>,
    windows: SmallVec<[M::FlushWindow; 1]>,
    old_accessed: bool,
    found: bool,
}

impl<M: Machine> Default for TlbFlush<M> {
    fn default() -> TlbFlush<M> {
        TlbFlush::new()
    }
}

impl<M: Machine> TlbFlush<M> {
    /// Nothing to flush: something to merge others into.
    pub fn new() -> TlbFlush<M> {
        TlbFlush { parts: SmallVec::new(), windows: SmallVec::new(), old_accessed: false, found: false }
    }

    /// The window for the next change of a valid entry; opened at the first call.
    #[track_caller]
    pub(crate) fn window(&mut self, machine: &M) -> &M::FlushWindow {
        if self.windows.is_empty() {
            self.windows.push(machine.open_flush_window());
        }
        &self.windows[0]
    }

    /// Lists the page at `va` of `space`; `old` is the mapping that was replaced.
    pub(crate) fn list(&mut self, space: SpaceId, tags: Option<&Arc<Tags>>, va: Va, old: Option<Tte>) {
        assert!(va.is_page_aligned(), "{va:?} is no page");
        self.old_accessed |= old.is_some_and(|old| old.attr.contains(Attr::REFERENCED));
        self.add(Part { space, range: VaRange::pages_from(va, 1), tags: tags.cloned() });
    }

    /// Adds pages; to the last range, if they continue it.
    fn add(&mut self, part: Part) {
        match self.parts.last_mut() {
            Some(last) if last.space == part.space && last.range.end() == part.range.start() => {
                last.range = VaRange::new(last.range.start(), part.range.end());
            }
            _ => self.parts.push(part),
        }
    }

    /// True when nothing need be invalidated.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True when an entry that was replaced was valid and had its accessed bit set: a TLB may hold it. When it is
    /// false, no walk has used the old entry *since it was made*; TLBs may hold what stood there before it.
    pub fn old_accessed(&self) -> bool {
        self.old_accessed
    }

    /// The mapping that was to be entered was there.
    pub(crate) fn set_found(&mut self) {
        self.found = true;
    }

    /// True when [`Pmaps::enter`] found the mapping as it was to be: another CPU was faster, or the own TLB knew an
    /// older one. Merging forgets it.
    pub fn found(&self) -> bool {
        self.found
    }

    /// Adds the obligation of `other`.
    pub fn merge(&mut self, mut other: TlbFlush<M>) {
        other.parts.drain(..).for_each(|p| self.add(p));
        self.windows.append(&mut other.windows);
        self.old_accessed |= other.old_accessed;
    }

    /// Invalidates wherever a translation may be cached, and waits until it is done: first page by page in the own TLB,
    /// then by a shootdown of the other CPUs that may hold it. Those are all CPUs for kernel pages, and for user pages
    /// the ones that have the address space loaded.
    ///
    /// More user pages than [`crate::PmapConfig::full_flush_pages`] are invalidated with all of their address space
    /// instead. Answers what was issued.
    ///
    /// # Locks
    /// Takes the shootdown lock on a multiprocessor. The caller may hold locks of any lower class.
    pub fn flush(mut self, pmaps: &Pmaps<M>) -> Invalidations {
        let parts = core::mem::take(&mut self.parts);
        let mut issued = Invalidations::NONE;
        if !parts.is_empty() {
            issued = pmaps.invalidate_everywhere(|| parts.iter());
        }
        self.close(pmaps);
        issued
    }

    /// Invalidates in the own TLB only. The caller answers for the other CPUs: they must not use the mapping before
    /// they have invalidated it themselves. Answers what was issued.
    ///
    /// # Locks
    /// Takes none. The caller is pinned or holds a spin lock, else "own" means nothing.
    pub fn flush_local(mut self, pmaps: &Pmaps<M>) -> Invalidations {
        let parts = core::mem::take(&mut self.parts);
        let mut local = 0;
        if !parts.is_empty() {
            local = pmaps.invalidate_here(pmaps.machine().cpu(), || parts.iter());
        }
        self.close(pmaps);
        Invalidations { local, remote: 0 }
    }

    /// Invalidates nothing: the caller knows that no TLB holds the old translation, or that no CPU uses the mapping
    /// before invalidating it.
    pub fn not_cached(mut self, pmaps: &Pmaps<M>) {
        self.parts.clear();
        self.close(pmaps);
    }

    fn close(mut self, pmaps: &Pmaps<M>) {
        self.windows.drain(..).for_each(|w| pmaps.machine().close_flush_window(w));
    }
}

impl<M: Machine> Drop for TlbFlush<M> {
    fn drop(&mut self) {
        if let Some(part) = self.parts.first() {
            panic!("a change of mappings was dropped without a flush: {part:?} and perhaps others");
        }
    }
}
