//! Colours: under which addresses the bytes of a frame may lie in a cache that is indexed by virtual addresses.
//!
//! # What it holds
//! For each frame, beside its reverse mappings and under their lock: the colours by which it may be in the cache, and
//! the one by which it may be newer there than in memory. Both are what *may* be. A mapping is used without asking, so
//! the colours of all user mappings are among the first, and that of one that permits stores is the second.
//!
//! # The rule
//! A frame that is stored to by addresses of one colour is accessed by no other. So whatever is about to reach a frame
//! by an address *claims* the address's colour for it: [`Pmaps::enter`] for a user mapping, [`Pmaps::kenter`] and the
//! other ways in for the kernel. A claim to read takes the right to store away from mappings of other colours, and has
//! the cache write back; a claim to store removes these mappings, and has the cache forget what it has by them. What
//! was taken away comes back by a fault, which claims. A cache that writes through has nothing to write back.
//!
//! That is right whatever addresses are chosen, and slow where they are chosen badly. Frames and addresses are chosen
//! so that colours agree: frames by the page that they are for (`vm`), addresses in the kernel by the frame
//! ([`Pmaps::best_colour`]; sf_buf paper, 4.4).
//!
//! # Locks
//! Reverse mappings, and within a claim the lock of each address space in turn. Only on machines with one CPU: with
//! several, another could store while a claim is made. Where pages have no colours nothing here costs anything.

use crate::counter::PmapCounter;
use crate::defect::PmapDefect;
use crate::flush::TlbFlush;
use crate::pmap::Pmaps;
use crate::tables::cached::Reach;
use crate::tables::pv::PvTable;
use alloc::vec::Vec;
use pageferry_hal::{Cause, Machine, PAGE_SHIFT, Pfn, SpaceId, SpinLock, Va};

/// A colour, as an index and as a bit.
fn bit(colour: u32) -> u8 {
    1 << colour
}

impl<M: Machine> Pmaps<M> {
    /// How many colours pages have; 1 where the caches know none.
    #[inline]
    pub fn colours(&self) -> u32 {
        self.colours
    }

    /// The colour of an address.
    #[inline]
    pub fn colour(&self, va: Va) -> u32 {
        (va.0 >> PAGE_SHIFT) as u32 & (self.colours - 1)
    }

    /// The colour of the kernel's own address of a frame, in the direct map.
    #[inline]
    pub fn own_colour(&self, frame: Pfn) -> u32 {
        frame.0 & (self.colours - 1)
    }

    /// The colour by which the kernel reaches a frame with the least to do: that by which it is stored to, or is in the
    /// cache alone; else the frame's own.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings, where pages have colours.
    pub fn best_colour(&self, frame: Pfn) -> u32 {
        let own = self.own_colour(frame);
        if self.colours == 1 {
            return own;
        }
        let cached = self.pv.lock().cached(frame);
        match (cached.stored, cached.by) {
            (0, by) if by.count_ones() == 1 => by.trailing_zeros(),
            (0, _) => own,
            (stored, _) => stored.trailing_zeros(),
        }
    }

    /// The kernel is about to reach `frame` at `va`, where it has it mapped. The claim lasts until another is made: a
    /// caller that keeps the address claims again before it uses it after a sleep.
    ///
    /// # Locks
    /// Where pages have colours: takes the lock of reverse mappings, and inside it those of address spaces.
    #[track_caller]
    #[inline]
    pub fn claim(&self, frame: Pfn, va: Va, reach: Reach) {
        if self.colours > 1 {
            self.claim_in(&mut self.pv.lock(), frame, va, reach);
        }
    }

    /// The address of `frame` in the direct map, if the machine has one, with the frame claimed for it.
    ///
    /// # Locks
    /// As [`Pmaps::claim`].
    #[track_caller]
    pub fn direct(&self, frame: Pfn, reach: Reach) -> Option<Va> {
        let va = self.direct_va(frame)?;
        self.claim(frame, va, reach);
        Some(va)
    }

    /// As [`Pmaps::claim`], by a caller that has the lock of reverse mappings and none of an address space.
    #[track_caller]
    pub(crate) fn claim_in(&self, pv: &mut PvTable<M>, frame: Pfn, va: Va, reach: Reach) {
        // Memory of devices is in no cache.
        if self.colours == 1 || frame.index() >= self.frame_count || self.has(PmapDefect::ColourIgnored) {
            return;
        }
        let claimed = bit(self.colour(va));
        let mut cached = pv.cached(frame);
        let others = cached.in_the_way(claimed, reach);
        if others != 0 {
            self.take_away(pv, frame, others, reach);
            cached.stored = 0;
            if reach == Reach::Write {
                cached.by = 0;
            }
        }
        cached.by |= claimed;
        if reach == Reach::Write {
            cached.stored = claimed;
        }
        pv.set_cached(frame, cached);
    }

    /// Takes the right to store, or all, from mappings of these colours, and has the cache write back what it has by
    /// them.
    #[track_caller]
    fn take_away(&self, pv: &mut PvTable<M>, frame: Pfn, colours: u8, reach: Reach) {
        let m = &self.machine;
        let _c = m.scope(Cause::PteWork);
        pv.touch_list(m, frame);
        let list: Vec<(SpaceId, Va)> =
            pv.mappings(frame).filter(|&(_, va)| bit(self.colour(va)) & colours != 0).collect();
        let mut flush = TlbFlush::new();
        if !self.has(PmapDefect::OtherColourStays) {
            for (space, va) in list {
                let shared = pv.space(space);
                let mut tables = shared.tables.lock();
                let leaf = self.leaf(&shared, frame, va);
                match reach {
                    Reach::Read => self.write_protect_at(pv, leaf, &mut flush),
                    Reach::Write => self.remove_at(pv, &mut tables, leaf, &mut flush),
                }
            }
        }
        flush.flush(self);
        if reach == Reach::Read && self.writes_through {
            return;
        }
        for colour in (0..self.colours).filter(|&colour| bit(colour) & colours != 0) {
            m.count(PmapCounter::ColoursPurged, 1);
            if !self.has(PmapDefect::NotPurged) {
                m.dcache_purge(frame.pa(), colour);
            }
        }
    }

    fn has(&self, defect: PmapDefect) -> bool {
        self.config.defect.is(defect)
    }
}
