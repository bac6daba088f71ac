//! User mappings, by address: entering, removing, protecting, wiring, looking up.
//!
//! All of them but those of devices (`device`) are managed, that is, in the list of their frame; so what
//! changes entries holds the lock of reverse mappings and, inside it, the lock of the address space. Only growing the
//! tables and looking up do with the latter. Growing needs frames, which must be asked for with no lock held: then
//! `enter` starts over.

use crate::config::FrameSource;
use crate::counter::PmapCounter;
use crate::defect::PmapDefect;
use crate::error::PmapError;
use crate::flush::TlbFlush;
use crate::map::entry::{Hashed, Leaf};
use crate::pmap::{Pmap, Pmaps};
use crate::tables::cached::Reach;
use crate::tables::pv::PvTable;
use crate::tables::radix::{self, Leaves, Tables, Walk, entries, walk, walk_or_grow};
use crate::tables::space::Shared;
use pageferry_hal::{Attr, Cause, Machine, Pfn, Prot, SpinLock, Tte, Va, VaRange};

impl<M: Machine> Pmaps<M> {
    /// Maps `frame` at `va`, replacing what was there. The referenced and modified state of a page that stays is kept.
    ///
    /// The flush lists the page if it was mapped before in another way, but not when permissions were only added: a CPU
    /// whose TLB knows the old ones faults for nothing, once, and has forgotten them then. (FreeBSD 5 invalidates
    /// everywhere here; NetBSD stopped doing so.)
    ///
    /// # Errors
    /// [`PmapError::NoFrame`], [`PmapError::NoReverseEntry`]; then nothing is mapped otherwise than before.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings and the space's lock; `frames` is called with neither.
    ///
    /// # Panics
    /// When `va` is no page of user space, or `prot` does not permit reading.
    #[track_caller]
    pub fn enter(
        &self,
        frames: &dyn FrameSource,
        pmap: &Pmap<M>,
        va: Va,
        frame: Pfn,
        prot: Prot,
        wired: bool,
    ) -> Result<TlbFlush<M>, PmapError> {
        self.assert_user(VaRange::pages_from(va, 1));
        assert!(prot.contains(Prot::READ), "a mapping that permits nothing at {va:?}");
        let _c = self.machine.scope(Cause::PteWork);
        self.machine.execute(self.config.paths.enter);
        self.with_tables(frames, |spare| {
            let mut pv = self.pv.lock();
            let reach = if prot.contains(Prot::WRITE) { Reach::Write } else { Reach::Read };
            self.claim_in(&mut pv, frame, va, reach);
            let mut tables = pmap.shared.tables.lock();
            let slot = walk_or_grow(&self.machine, &self.kernel.format, &mut tables, va, spare)?;
            let leaf = Leaf { shared: &pmap.shared, va, slot, hashed: Hashed::Reachable };
            Ok(self.enter_at(&mut pv, &mut tables, leaf, frame, prot, wired))
        })?
    }

    #[track_caller]
    fn enter_at(
        &self,
        pv: &mut PvTable<M>,
        tables: &mut Tables,
        leaf: Leaf<'_, M>,
        frame: Pfn,
        prot: Prot,
        wired: bool,
    ) -> Result<TlbFlush<M>, PmapError> {
        let (m, format) = (&self.machine, &self.kernel.format);
        let mut new = Tte::page(frame, Attr::USER | Attr::MANAGED);
        new.attr.set(Attr::WRITE, prot.contains(Prot::WRITE));
        new.attr.set(Attr::WIRED, wired);
        new.attr.set(Attr::NO_EXECUTE, format.no_execute && !prot.contains(Prot::EXECUTE));
        let mut flush = TlbFlush::new();
        let space = leaf.shared.id;
        let old = radix::load(m, format, leaf.slot);
        match old {
            None => {
                pv.insert(m, frame, space, leaf.va)?;
                radix::store(m, format, leaf.slot, new);
                m.mapping_changed(space, leaf.va, None, Some(new), None);
                tables.resident += 1;
            }
            Some(old) if old.frame == frame => {
                new.attr |= old.attr & (Attr::REFERENCED | Attr::MODIFIED);
                if new == old {
                    flush.set_found();
                } else if self
                    .rewrite(pv, leaf, Some(new), Attr::empty(), &mut flush)
                    .attr
                    .difference(new.attr)
                    .is_empty()
                {
                    core::mem::take(&mut flush).not_cached(self);
                }
            }
            Some(old) => {
                // The entry that is freed first is the one that the new mapping gets: this cannot fail.
                pv.remove(m, old.frame, space, leaf.va);
                pv.insert(m, frame, space, leaf.va).expect("an entry was just freed");
                self.rewrite(pv, leaf, Some(new), Attr::empty(), &mut flush);
            }
        }
        tables.count_wired(old.is_some_and(|old| old.attr.contains(Attr::WIRED)), wired);
        Ok(flush)
    }

    /// Removes all mappings in `range`.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings and the space's lock.
    #[track_caller]
    pub fn remove(&self, pmap: &Pmap<M>, range: VaRange) -> TlbFlush<M> {
        self.assert_user(range);
        let _c = self.machine.scope(Cause::PteWork);
        self.drop_block(pmap, range);
        let (m, format) = (&self.machine, self.kernel.format);
        let mut flush = TlbFlush::new();
        let (mut pv, mut tables) = (self.pv.lock(), pmap.shared.tables.lock());
        let renewed = self.renew(&mut pv, &tables, &pmap.shared, range);
        let hashed = if renewed { Hashed::OutOfReach } else { Hashed::Reachable };
        for (first, pages) in Leaves::new(m, format, pmap.shared.root, range) {
            for (slot, va) in entries(format, first, pages) {
                let leaf = Leaf { shared: &pmap.shared, va, slot, hashed };
                self.remove_at(&mut pv, &mut tables, leaf, &mut flush);
            }
            if tables.resident == 0 {
                break;
            }
        }
        drop((tables, pv));
        self.discharged_if(renewed, flush)
    }

    /// Gives the space another tag if so much of it is about to change that this costs less than invalidating page by
    /// page. What the old tag leads to is out of reach from then on, in TLB and hash table.
    fn renew(&self, pv: &mut PvTable<M>, tables: &Tables, shared: &Shared<M>, range: VaRange) -> bool {
        let m = &self.machine;
        let many = |pages: usize| self.config.renew_pages.is_some_and(|max_pages| pages > max_pages);
        if self.active.len() > 1 || !many(range.len_pages()) || !many(tables.resident) {
            return false;
        }
        let Some(tags) = shared.tags.as_ref() else { return false };
        if tags.shared().is_some() {
            let Some(new) = pv.numbers.take() else { return false };
            pv.numbers.give(tags.renew(new).expect("a shared tag"));
        } else {
            tags.revoke(m.cpu());
        }
        m.count(PmapCounter::ContextsRenewed, 1);
        if !self.config.defect.is(PmapDefect::OldTagStays) {
            self.reload_tag(shared);
        }
        true
    }

    /// Ends the obligation of a change whose old translations are out of reach.
    fn discharged_if(&self, out_of_reach: bool, flush: TlbFlush<M>) -> TlbFlush<M> {
        if !out_of_reach {
            return flush;
        }
        flush.not_cached(self);
        TlbFlush::new()
    }

    /// Takes permissions away in `range`; never adds any. The empty set removes the mappings.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings and the space's lock.
    #[track_caller]
    pub fn protect(&self, pmap: &Pmap<M>, range: VaRange, prot: Prot) -> TlbFlush<M> {
        if prot.is_empty() {
            return self.remove(pmap, range);
        }
        self.assert_user(range);
        let mut flush = TlbFlush::new();
        if prot.contains(Prot::WRITE) {
            return flush;
        }
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, self.kernel.format);
        let (mut pv, tables) = (self.pv.lock(), pmap.shared.tables.lock());
        let renewed = self.renew(&mut pv, &tables, &pmap.shared, range);
        let hashed = if renewed { Hashed::OutOfReach } else { Hashed::Reachable };
        for (first, pages) in Leaves::new(m, format, pmap.shared.root, range) {
            for (slot, va) in entries(format, first, pages) {
                let leaf = Leaf { shared: &pmap.shared, va, slot, hashed };
                self.write_protect_at(&mut pv, leaf, &mut flush);
            }
        }
        drop((tables, pv));
        self.discharged_if(renewed, flush)
    }

    /// Wires or unwires the mapping at `va`. What it translates to stays: nothing need be invalidated.
    ///
    /// # Locks
    /// Takes the space's lock.
    ///
    /// # Panics
    /// When nothing is mapped at `va`.
    #[track_caller]
    pub fn set_wired(&self, pmap: &Pmap<M>, va: Va, wired: bool) {
        let va = va.page();
        self.assert_user(VaRange::page(va));
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, &self.kernel.format);
        let mut tables = pmap.shared.tables.lock();
        let Walk::Leaf(slot) = walk(m, format, pmap.shared.root, va) else {
            panic!("{va:?} is to be wired, but has no page table");
        };
        loop {
            let old = radix::load(m, format, slot);
            let Some(old) = old else {
                // A claim by another colour has removed it: the frame is wired as before, and the mapping comes back by
                // a fault.
                assert!(self.colours > 1, "{va:?} is to be wired, but is not mapped");
                return;
            };
            if old.attr.contains(Attr::WIRED) == wired {
                return;
            }
            let mut new = old;
            new.attr.set(Attr::WIRED, wired);
            // Again when another CPU has noted something in the entry since: that must stay there.
            if radix::replace(m, format, slot, old, new) {
                m.mapping_changed(pmap.id(), va, Some(old), Some(new), None);
                tables.count_wired(!wired, wired);
                return;
            }
        }
    }

    /// The frame mapped at the page of `va`, and what the mapping permits. (No format here forbids execution, so it
    /// is never reported.)
    ///
    /// # Locks
    /// Takes the space's lock.
    pub fn extract(&self, pmap: &Pmap<M>, va: Va) -> Option<(Pfn, Prot)> {
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, &self.kernel.format);
        if !(self.kernel.layout.user_start..self.kernel.layout.user_end).contains(&va) {
            return None;
        }
        let _tables = pmap.shared.tables.lock();
        let Walk::Leaf(slot) = walk(m, format, pmap.shared.root, va) else { return None };
        radix::load(m, format, slot).map(|entry| (entry.frame, entry.prot()))
    }
}
