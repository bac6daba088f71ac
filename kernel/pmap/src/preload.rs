//! What a refill loads beside what was missed: the neighbours of the page in its space's recency stack.
//!
//! The miss has interrupted the space that runs, and the stack is that space's. A neighbour is loaded as the page
//! tables have it, and only if they have noted that it is used: so nothing need be noted for a page that perhaps is
//! not used again. It takes an entry as the missed page does, and what it displaces lies on a stack as well. On an
//! SH-4 nothing says whether an entry was used that was loaded ahead.
//!
//! # Locks
//! None, as the refill handler.

use crate::config::Preload;
use crate::counter::PmapCounter;
use crate::defect::PmapDefect;
use crate::pmap::Pmaps;
use crate::tables::radix::{self, Walk, walk};
use crate::tlb::loaded::{pack, page_of};
use core::sync::atomic::Ordering::SeqCst;
use pageferry_hal::{Asid, Attr, Machine, Pa, Slot, Va};

/// Entries that one call of the handler has loaded: the missed page and two neighbours. None of them takes another's.
#[derive(Default)]
pub(crate) struct SlotList {
    slots: [usize; 3],
    count: usize,
}

impl SlotList {
    fn has(&self, slot: usize) -> bool {
        self.slots[..self.count].contains(&slot)
    }

    fn add(&mut self, slot: usize) {
        self.slots[self.count] = slot;
        self.count += 1;
    }
}

impl<M: Machine> Pmaps<M> {
    /// The neighbours of a page that is about to be loaded, which leaves its stack; 0 for none.
    pub(crate) fn neighbours(&self, asid: Asid, va: Va) -> [u64; 2] {
        let (m, page) = (&self.machine, pack(asid, va));
        let Some(recency) = self.recency.get(m.cpu().index()) else { return [0; 2] };
        m.execute(self.config.refill.beside.stack);
        recency.take(m, page).unwrap_or([0; 2])
    }

    /// Loads them as well.
    pub(crate) fn preload(&self, root: Pa, asid: Asid, neighbours: [u64; 2], taken: &mut SlotList) {
        let (m, format) = (&self.machine, &self.kernel.format);
        let Some(recency) = self.recency.get(m.cpu().index()) else { return };
        for page in neighbours.into_iter().filter(|page| *page != 0) {
            m.execute(self.config.refill.beside.neighbour);
            let va = page_of(page);
            let Walk::Leaf(slot) = walk(m, format, root, va) else { continue };
            let wanted = Attr::USER | Attr::REFERENCED;
            let found = radix::load(m, format, slot).filter(|tte| tte.attr.contains(wanted));
            let Some(mut tte) = found else { continue };
            if self.config.defect.is(PmapDefect::PreloadUnseen) {
                tte.attr |= Attr::WRITE | Attr::MODIFIED;
            }
            if !self.config.defect.is(PmapDefect::PreloadTwice) {
                recency.take(m, page);
            }
            let Some(slot) = self.choose_apart(asid, va, taken) else { return };
            m.tlb_load(slot, asid, va, tte);
            m.count(PmapCounter::Preloads, 1);
        }
    }

    /// The entry that the load of this page is to take, none of those taken; `None` when there is no other.
    pub(crate) fn choose_apart(&self, asid: Asid, va: Va, taken: &mut SlotList) -> Option<Slot> {
        let m = &self.machine;
        let loaded = &self.loaded[m.cpu().index()];
        let (reserved, all) = (self.reserved_entries(), loaded.0.len());
        if reserved + taken.count >= all {
            return None;
        }
        let slot = self.unused_entry().unwrap_or_else(|| {
            let first = m.tlb_random();
            let entries = (first..all).chain(reserved..first);
            entries.into_iter().find(|slot| !taken.has(*slot)).expect("there are more than are taken")
        });
        taken.add(slot);
        let displaced = loaded.0[slot].swap(pack(asid, va), SeqCst);
        if let (Some(recency), true) = (self.recency.get(m.cpu().index()), displaced != 0) {
            recency.push(m, displaced);
        }
        if self.config.refill.counts {
            m.execute(self.config.refill.beside.count);
        }
        Some(Slot::Chosen(slot))
    }

    /// The own TLB has dropped this page, which it may have had.
    pub(crate) fn left_by_flush(&self, page: u64) {
        let m = &self.machine;
        if let (Some(recency), Preload::RecencyFlushed) =
            (self.recency.get(m.cpu().index()), self.config.refill.preload)
        {
            recency.push(m, page);
        }
    }
}
