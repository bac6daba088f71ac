//! One entry of a user's page table: found, rewritten, removed, and the tables that it is in.
//!
//! # Locks
//! The caller has that of reverse mappings, and that of the entry's space inside it.

use crate::flush::TlbFlush;
use crate::pmap::Pmaps;
use crate::tables::pv::PvTable;
use crate::tables::radix::{self, Tables, Walk, walk};
use crate::tables::space::Shared;
use pageferry_hal::{Attr, Machine, Pa, Pfn, Tte, Va, VaRange};

/// One leaf entry, and whose it is.
pub(crate) struct Leaf<'a, M: Machine> {
    pub(crate) shared: &'a Shared<M>,
    pub(crate) va: Va,
    pub(crate) slot: Pa,
    pub(crate) hashed: Hashed,
}

/// Whether the hash table may have an entry of a page under a tag that the space still has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hashed {
    Reachable,
    OutOfReach,
}

impl<M: Machine> Pmaps<M> {
    /// The entry that maps `frame` at `va` of a space whose lock the caller holds.
    pub(crate) fn leaf<'a>(&self, shared: &'a Shared<M>, frame: Pfn, va: Va) -> Leaf<'a, M> {
        let Walk::Leaf(slot) = walk(&self.machine, &self.kernel.format, shared.root, va) else {
            panic!("{frame:?} is listed at {va:?} of {:?}, where no page table is", shared.id);
        };
        Leaf { shared, va, slot, hashed: Hashed::Reachable }
    }

    /// Removes the mapping of one entry, if it is valid.
    #[track_caller]
    pub(crate) fn remove_at(
        &self,
        pv: &mut PvTable<M>,
        tables: &mut Tables,
        leaf: Leaf<'_, M>,
        flush: &mut TlbFlush<M>,
    ) {
        let m = &self.machine;
        if radix::load(m, &self.kernel.format, leaf.slot).is_none() {
            return;
        }
        m.execute(self.config.paths.remove);
        let (space, va) = (leaf.shared.id, leaf.va);
        let old = self.rewrite(pv, leaf, None, Attr::empty(), flush);
        if old.attr.contains(Attr::MANAGED) {
            pv.remove(m, old.frame, space, va);
        }
        tables.count_wired(old.attr.contains(Attr::WIRED), false);
        tables.resident = tables.resident.checked_sub(1).expect("a page was unmapped that was not counted");
    }

    /// Makes one entry read-only, if it is valid and writable.
    #[track_caller]
    pub(crate) fn write_protect_at(&self, pv: &mut PvTable<M>, leaf: Leaf<'_, M>, flush: &mut TlbFlush<M>) {
        let old = radix::load(&self.machine, &self.kernel.format, leaf.slot);
        if let Some(mut entry) = old.filter(|e| e.attr.contains(Attr::WRITE)) {
            self.machine.execute(self.config.paths.remove);
            entry.attr.remove(Attr::WRITE);
            self.rewrite(pv, leaf, Some(entry), Attr::empty(), flush);
        }
    }

    /// Replaces a valid entry and lists its page; returns the old one. What it has noted is kept with the frame unless
    /// the new entry notes it too or it is in `forget`: another CPU may have noted it after the caller looked.
    #[track_caller]
    pub(crate) fn rewrite(
        &self,
        pv: &mut PvTable<M>,
        leaf: Leaf<'_, M>,
        new: Option<Tte>,
        forget: Attr,
        flush: &mut TlbFlush<M>,
    ) -> Tte {
        let m = &self.machine;
        let Leaf { shared, va, slot, hashed } = leaf;
        let old = radix::swap(m, &self.kernel.format, slot, new);
        m.mapping_changed(shared.id, va, old, new, Some(flush.window(m)));
        let old = old.filter(|old| old.attr.contains(Attr::USER));
        let old = old.unwrap_or_else(|| panic!("what is mapped at {va:?} is no user mapping"));
        if hashed == Hashed::Reachable {
            self.forget_hashed(shared.hash_tag(), va);
        }
        flush.list(shared.id, shared.tags.as_ref(), va, Some(old));
        let kept = new.filter(|new| new.frame == old.frame).map_or(Attr::empty(), |new| new.attr);
        if old.attr.contains(Attr::MANAGED) {
            pv.save(old.frame, old.attr.difference(kept).difference(forget));
        }
        old
    }

    pub(crate) fn assert_user(&self, range: VaRange) {
        let layout = &self.kernel.layout;
        assert!(
            layout.user_start <= range.start() && range.end() <= layout.user_end,
            "{range:?} is not in user space"
        );
    }
}
