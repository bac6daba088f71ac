//! What all user mappings of a frame say and permit: for copy-on-write, loans and the page daemon.
//!
//! Everything here holds the lock of reverse mappings while it goes through a frame's list, and takes the lock of each
//! address space in turn.
//!
//! Referenced and modified are not stored while a frame is mapped: they are the accessed and dirty bits of its entries,
//! and what removed entries left behind. Kernel mappings do not count; the kernel says by itself what it writes.

use crate::change::Change;
use crate::pmap::{PmapId, Pmaps, Shared};
use crate::reverse::Reverse;
use crate::table::{Walk, walk};
use crate::user::Leaf;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::x86::{PTE_A, PTE_D};
use pageferry_hal::{Cause, Machine, Pfn, Prot, SpinLock, Va};

impl<M: Machine> Pmaps<M> {
    /// Reduces every user mapping of `frame` to `prot`; the empty set removes them all.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings, and inside it each space's lock in turn.
    #[track_caller]
    pub fn page_protect(&self, frame: Pfn, prot: Prot) -> Change<M> {
        let mut change = Change::new();
        if prot.contains(Prot::WRITE) {
            return change;
        }
        let _c = self.machine.scope(Cause::PteWork);
        let mut reverse = self.reverse.lock();
        reverse.touch_list(&self.machine, frame);
        let list: Vec<(PmapId, Va)> = reverse.mappings(frame).collect();
        for (space, va) in list {
            let shared = space_of(&reverse, space);
            let mut tables = shared.tables.lock();
            let leaf = self.leaf(&shared, frame, va);
            if prot.is_empty() {
                self.remove_at(&mut reverse, &mut tables, leaf, &mut change);
            } else {
                self.write_protect_at(&mut reverse, leaf, &mut change);
            }
        }
        assert!(!prot.is_empty() || reverse.mappings(frame).next().is_none(), "{frame:?} is still mapped");
        change
    }

    /// Number of user mappings of `frame`.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings.
    pub fn mappings(&self, frame: Pfn) -> usize {
        self.reverse.lock().mappings(frame).count()
    }

    /// The frames that have user mappings, in order, and how many each.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings.
    pub fn all_mapped(&self) -> Vec<(Pfn, usize)> {
        self.reverse.lock().mapped().collect()
    }

    /// The user mappings of `frame`, oldest first.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings.
    pub fn mapped_at(&self, frame: Pfn) -> Vec<(PmapId, Va)> {
        self.reverse.lock().mappings(frame).collect()
    }

    /// True when a mapping of `frame` was used since [`Pmaps::clear_referenced`].
    ///
    /// # Locks
    /// As [`Pmaps::page_protect`].
    pub fn is_referenced(&self, frame: Pfn) -> bool {
        self.any_has(frame, PTE_A)
    }

    /// True when a mapping of `frame` was written through since [`Pmaps::clear_modified`].
    ///
    /// # Locks
    /// As [`Pmaps::page_protect`].
    pub fn is_modified(&self, frame: Pfn) -> bool {
        self.any_has(frame, PTE_D)
    }

    /// Makes `frame` unreferenced. Until the change is flushed, uses through TLBs go unseen. To be called, as
    /// [`Pmaps::clear_modified`], also when a frame is given to a new owner.
    ///
    /// # Locks
    /// As [`Pmaps::page_protect`].
    #[track_caller]
    pub fn clear_referenced(&self, frame: Pfn) -> Change<M> {
        self.clear(frame, PTE_A)
    }

    /// Makes `frame` unmodified. Until the change is flushed, stores through TLBs go unseen.
    ///
    /// # Locks
    /// As [`Pmaps::page_protect`].
    #[track_caller]
    pub fn clear_modified(&self, frame: Pfn) -> Change<M> {
        self.clear(frame, PTE_D)
    }

    fn any_has(&self, frame: Pfn, bit: u64) -> bool {
        let _c = self.machine.scope(Cause::PteWork);
        let reverse = self.reverse.lock();
        if reverse.saved(frame) & bit != 0 {
            return true;
        }
        reverse.touch_list(&self.machine, frame);
        let width = self.kernel.format.width;
        reverse.mappings(frame).any(|(space, va)| {
            let shared = space_of(&reverse, space);
            let _tables = shared.tables.lock();
            self.machine.pte_load(self.leaf(&shared, frame, va).slot, width) & bit != 0
        })
    }

    #[track_caller]
    fn clear(&self, frame: Pfn, bit: u64) -> Change<M> {
        let _c = self.machine.scope(Cause::PteWork);
        let mut change = Change::new();
        let mut reverse = self.reverse.lock();
        reverse.forget(frame, bit);
        reverse.touch_list(&self.machine, frame);
        let list: Vec<(PmapId, Va)> = reverse.mappings(frame).collect();
        for (space, va) in list {
            let shared = space_of(&reverse, space);
            let _tables = shared.tables.lock();
            let leaf = self.leaf(&shared, frame, va);
            let entry = self.machine.pte_load(leaf.slot, self.kernel.format.width);
            if entry & bit != 0 {
                self.machine.execute(self.config.paths.remove);
                self.rewrite(&mut reverse, leaf, entry & !bit, bit, &mut change);
            }
        }
        change
    }

    /// The entry that maps `frame` at `va` of a space whose lock the caller holds.
    fn leaf(&self, shared: &Shared<M>, frame: Pfn, va: Va) -> Leaf {
        let Walk::Leaf(slot) = walk(&self.machine, &self.kernel.format, shared.root, va) else {
            panic!("{frame:?} is listed at {va:?} of {:?}, where no page table is", shared.id);
        };
        Leaf { space: shared.id, va, slot }
    }
}

fn space_of<M: Machine>(reverse: &Reverse<M>, space: PmapId) -> Arc<Shared<M>> {
    reverse.spaces.get(&space).expect("a listed mapping belongs to a registered address space").clone()
}
