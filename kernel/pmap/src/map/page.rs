//! What all user mappings of a frame say and permit: for copy-on-write, loans and the page daemon.
//!
//! Everything here holds the lock of reverse mappings while it goes through a frame's list, and takes the lock of each
//! address space in turn.
//!
//! Referenced and modified are not stored while a frame is mapped: they are the accessed and dirty bits of its entries,
//! and what removed entries left behind. Kernel mappings do not count; the kernel says by itself what it writes.

use crate::flush::TlbFlush;
use crate::pmap::Pmaps;
use crate::tables::radix::{self};
use alloc::vec::Vec;
use pageferry_hal::{Attr, Cause, Machine, Pfn, Prot, SpaceId, SpinLock, Va};

impl<M: Machine> Pmaps<M> {
    /// Reduces every user mapping of `frame` to `prot`; the empty set removes them all.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings, and inside it each space's lock in turn.
    #[track_caller]
    pub fn page_protect(&self, frame: Pfn, prot: Prot) -> TlbFlush<M> {
        let mut flush = TlbFlush::new();
        if prot.contains(Prot::WRITE) {
            return flush;
        }
        let _c = self.machine.scope(Cause::PteWork);
        let mut pv = self.pv.lock();
        pv.touch_list(&self.machine, frame);
        let list: Vec<(SpaceId, Va)> = pv.mappings(frame).collect();
        for (space, va) in list {
            let shared = pv.space(space);
            let mut tables = shared.tables.lock();
            let leaf = self.leaf(&shared, frame, va);
            if prot.is_empty() {
                self.remove_at(&mut pv, &mut tables, leaf, &mut flush);
            } else {
                self.write_protect_at(&mut pv, leaf, &mut flush);
            }
        }
        assert!(!prot.is_empty() || pv.mappings(frame).next().is_none(), "{frame:?} is still mapped");
        flush
    }

    /// Number of user mappings of `frame`.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings.
    pub fn mappings(&self, frame: Pfn) -> usize {
        self.pv.lock().mappings(frame).count()
    }

    /// The frames that have user mappings, in order, and how many each.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings.
    pub fn all_mapped(&self) -> Vec<(Pfn, usize)> {
        self.pv.lock().mapped().collect()
    }

    /// The user mappings of `frame`, oldest first.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings.
    pub fn mapped_at(&self, frame: Pfn) -> Vec<(SpaceId, Va)> {
        self.pv.lock().mappings(frame).collect()
    }

    /// True when a mapping of `frame` was used since [`Pmaps::clear_referenced`].
    ///
    /// # Locks
    /// As [`Pmaps::page_protect`].
    pub fn is_referenced(&self, frame: Pfn) -> bool {
        self.any_has(frame, Attr::REFERENCED)
    }

    /// True when a mapping of `frame` was written through since [`Pmaps::clear_modified`].
    ///
    /// # Locks
    /// As [`Pmaps::page_protect`].
    pub fn is_modified(&self, frame: Pfn) -> bool {
        self.any_has(frame, Attr::MODIFIED)
    }

    /// Makes `frame` unreferenced. Until the flush is done, uses through TLBs go unseen. To be called, as
    /// [`Pmaps::clear_modified`], also when a frame is given to a new owner.
    ///
    /// # Locks
    /// As [`Pmaps::page_protect`].
    #[track_caller]
    pub fn clear_referenced(&self, frame: Pfn) -> TlbFlush<M> {
        self.clear(frame, Attr::REFERENCED)
    }

    /// Makes `frame` unmodified. Until the flush is done, stores through TLBs go unseen.
    ///
    /// # Locks
    /// As [`Pmaps::page_protect`].
    #[track_caller]
    pub fn clear_modified(&self, frame: Pfn) -> TlbFlush<M> {
        self.clear(frame, Attr::MODIFIED)
    }

    fn any_has(&self, frame: Pfn, noted: Attr) -> bool {
        let _c = self.machine.scope(Cause::PteWork);
        let pv = self.pv.lock();
        if pv.saved(frame).intersects(noted) {
            return true;
        }
        pv.touch_list(&self.machine, frame);
        pv.mappings(frame).any(|(space, va)| {
            let shared = pv.space(space);
            let _tables = shared.tables.lock();
            let leaf = self.leaf(&shared, frame, va);
            radix::load(&self.machine, &self.kernel.format, leaf.slot)
                .is_some_and(|e| e.attr.intersects(noted))
        })
    }

    #[track_caller]
    fn clear(&self, frame: Pfn, noted: Attr) -> TlbFlush<M> {
        let _c = self.machine.scope(Cause::PteWork);
        let mut flush = TlbFlush::new();
        let mut pv = self.pv.lock();
        pv.forget(frame, noted);
        pv.touch_list(&self.machine, frame);
        let list: Vec<(SpaceId, Va)> = pv.mappings(frame).collect();
        for (space, va) in list {
            let shared = pv.space(space);
            let _tables = shared.tables.lock();
            let leaf = self.leaf(&shared, frame, va);
            let entry = radix::load(&self.machine, &self.kernel.format, leaf.slot);
            if let Some(mut entry) = entry.filter(|e| e.attr.intersects(noted)) {
                self.machine.execute(self.config.paths.remove);
                entry.attr.remove(noted);
                self.rewrite(&mut pv, leaf, Some(entry), noted, &mut flush);
            }
        }
        flush
    }
}
