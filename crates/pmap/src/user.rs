//! User mappings, by address: entering, removing, protecting, wiring, looking up.
//!
//! All of them are managed, that is, in the list of their frame; so what changes entries holds the lock of reverse
//! mappings and, inside it, the lock of the address space. Only growing the tables and looking up do with the latter.
//! Growing needs frames, which must be asked for with no lock held: then `enter` starts over.

use crate::change::Change;
use crate::config::{FrameSource, PmapError};
use crate::pmap::{Pmap, PmapId, Pmaps};
use crate::reverse::Reverse;
use crate::table::{Leaves, Tables, Walk, entries, walk, walk_or_grow};
use alloc::vec::Vec;
use pageferry_hal::x86::{PTE_A, PTE_D, PTE_MANAGED, PTE_P, PTE_U, PTE_W, PTE_WIRED};
use pageferry_hal::{Cause, Machine, Pa, Pfn, Prot, SpinLock, Va, VaRange};

/// One leaf entry, and whose it is.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    pub(crate) space: PmapId,
    pub(crate) va: Va,
    pub(crate) slot: Pa,
}

impl<M: Machine> Pmaps<M> {
    /// Maps `frame` at `va`, replacing what was there. The referenced and modified state of a page that stays is kept.
    ///
    /// The change lists the page if it was mapped before in another way, but not when permissions were only added: a CPU
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
    ) -> Result<Change<M>, PmapError> {
        self.assert_user(VaRange::pages_from(va, 1));
        assert!(prot.contains(Prot::READ), "a mapping that permits nothing at {va:?}");
        let _c = self.machine.scope(Cause::PteWork);
        self.machine.execute(self.config.paths.enter);
        let mut spare = Vec::new();
        let entered = loop {
            let missing = {
                let (mut reverse, mut tables) = (self.reverse.lock(), pmap.shared.tables.lock());
                match walk_or_grow(&self.machine, &self.kernel.format, &mut tables, va, &mut spare) {
                    Ok(slot) => {
                        let leaf = Leaf { space: pmap.shared.id, va, slot };
                        break self.enter_at(&mut reverse, &mut tables, leaf, frame, prot, wired);
                    }
                    Err(missing) => missing,
                }
            };
            if !self.add_spare(frames, &mut spare, missing) {
                break Err(PmapError::NoFrame);
            }
        };
        // Somebody else may have added the tables meanwhile.
        spare.into_iter().for_each(|f| frames.give(f));
        entered
    }

    fn add_spare(&self, frames: &dyn FrameSource, spare: &mut Vec<Pfn>, missing: usize) -> bool {
        for _ in 0..missing {
            let Some(frame) = frames.take() else { return false };
            self.machine.pte_clear_frame(frame.pa());
            spare.push(frame);
        }
        true
    }

    #[track_caller]
    fn enter_at(
        &self,
        reverse: &mut Reverse<M>,
        tables: &mut Tables,
        leaf: Leaf,
        frame: Pfn,
        prot: Prot,
        wired: bool,
    ) -> Result<Change<M>, PmapError> {
        let (m, format) = (&self.machine, &self.kernel.format);
        let mut value = frame.pa().0 | PTE_P | PTE_U | PTE_MANAGED;
        value |= if prot.contains(Prot::WRITE) { PTE_W } else { 0 };
        value |= if wired { PTE_WIRED } else { 0 };
        let mut change = Change::new();
        let old = m.pte_load(leaf.slot, format.width);
        if old & PTE_P == 0 {
            reverse.insert(m, frame, leaf.space, leaf.va)?;
            m.pte_fill(leaf.slot, format.width, value);
            tables.resident += 1;
        } else if format.frame(old) == frame {
            value |= old & (PTE_A | PTE_D);
            if value == old {
                change.set_found();
            } else if self.rewrite(reverse, leaf, value, 0, &mut change) & !value == 0 {
                core::mem::take(&mut change).not_cached(self);
            }
        } else {
            // The entry that is freed first is the one that the new mapping gets: this cannot fail.
            reverse.remove(m, format.frame(old), leaf.space, leaf.va);
            reverse.insert(m, frame, leaf.space, leaf.va).expect("an entry was just freed");
            self.rewrite(reverse, leaf, value, 0, &mut change);
        }
        tables.count_wired(old & PTE_P != 0 && old & PTE_WIRED != 0, wired);
        Ok(change)
    }

    /// Removes all mappings in `range`.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings and the space's lock.
    #[track_caller]
    pub fn remove(&self, pmap: &Pmap<M>, range: VaRange) -> Change<M> {
        self.assert_user(range);
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, self.kernel.format);
        let mut change = Change::new();
        let (mut reverse, mut tables) = (self.reverse.lock(), pmap.shared.tables.lock());
        for (first, pages) in Leaves::new(m, format, pmap.shared.root, range) {
            for (slot, va) in entries(format, first, pages) {
                let leaf = Leaf { space: pmap.shared.id, va, slot };
                self.remove_at(&mut reverse, &mut tables, leaf, &mut change);
            }
            if tables.resident == 0 {
                break;
            }
        }
        change
    }

    /// Removes the mapping of one entry, if it is valid.
    #[track_caller]
    pub(crate) fn remove_at(
        &self,
        reverse: &mut Reverse<M>,
        tables: &mut Tables,
        leaf: Leaf,
        change: &mut Change<M>,
    ) {
        let (m, format) = (&self.machine, &self.kernel.format);
        if m.pte_load(leaf.slot, format.width) & PTE_P == 0 {
            return;
        }
        m.execute(self.config.paths.remove);
        let old = self.rewrite(reverse, leaf, 0, 0, change);
        reverse.remove(m, format.frame(old), leaf.space, leaf.va);
        tables.count_wired(old & PTE_WIRED != 0, false);
        tables.resident = tables.resident.checked_sub(1).expect("a page was unmapped that was not counted");
    }

    /// Takes permissions away in `range`; never adds any. The empty set removes the mappings.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings and the space's lock.
    #[track_caller]
    pub fn protect(&self, pmap: &Pmap<M>, range: VaRange, prot: Prot) -> Change<M> {
        if prot.is_empty() {
            return self.remove(pmap, range);
        }
        self.assert_user(range);
        let mut change = Change::new();
        if prot.contains(Prot::WRITE) {
            return change;
        }
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, self.kernel.format);
        let (mut reverse, _tables) = (self.reverse.lock(), pmap.shared.tables.lock());
        for (first, pages) in Leaves::new(m, format, pmap.shared.root, range) {
            for (slot, va) in entries(format, first, pages) {
                let leaf = Leaf { space: pmap.shared.id, va, slot };
                self.write_protect_at(&mut reverse, leaf, &mut change);
            }
        }
        change
    }

    /// Makes one entry read-only, if it is valid and writable.
    #[track_caller]
    pub(crate) fn write_protect_at(&self, reverse: &mut Reverse<M>, leaf: Leaf, change: &mut Change<M>) {
        let old = self.machine.pte_load(leaf.slot, self.kernel.format.width);
        if old & PTE_P != 0 && old & PTE_W != 0 {
            self.machine.execute(self.config.paths.remove);
            self.rewrite(reverse, leaf, old & !PTE_W, 0, change);
        }
    }

    /// Wires or unwires the mapping at `va`. What it translates to stays: nothing need be invalidated.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings and the space's lock.
    ///
    /// # Panics
    /// When nothing is mapped at `va`.
    #[track_caller]
    pub fn set_wired(&self, pmap: &Pmap<M>, va: Va, wired: bool) {
        let va = va.page();
        self.assert_user(VaRange::page(va));
        let _c = self.machine.scope(Cause::PteWork);
        let (m, format) = (&self.machine, &self.kernel.format);
        let mut change = Change::new();
        let (mut reverse, mut tables) = (self.reverse.lock(), pmap.shared.tables.lock());
        let Walk::Leaf(slot) = walk(m, format, pmap.shared.root, va) else {
            panic!("{va:?} is to be wired, but has no page table");
        };
        let old = m.pte_load(slot, format.width);
        assert!(old & PTE_P != 0, "{va:?} is to be wired, but is not mapped");
        let value = if wired { old | PTE_WIRED } else { old & !PTE_WIRED };
        if value != old {
            self.rewrite(&mut reverse, Leaf { space: pmap.shared.id, va, slot }, value, 0, &mut change);
            tables.count_wired(!wired, wired);
        }
        change.not_cached(self);
    }

    /// The frame mapped at the page of `va`, and what the mapping permits. (These formats cannot forbid execution, so
    /// it is never reported.)
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
        let entry = m.pte_load(slot, format.width);
        let prot = if entry & PTE_W != 0 { Prot::RW } else { Prot::READ };
        (entry & PTE_P != 0).then(|| (format.frame(entry), prot))
    }

    /// Replaces a valid entry and lists its page; returns the old one. Its accessed and dirty bits are kept with the
    /// frame unless the new entry has them or they are in `forget`: the walker of another CPU may have set them after
    /// the caller looked.
    #[track_caller]
    pub(crate) fn rewrite(
        &self,
        reverse: &mut Reverse<M>,
        leaf: Leaf,
        value: u64,
        forget: u64,
        change: &mut Change<M>,
    ) -> u64 {
        let (m, format) = (&self.machine, &self.kernel.format);
        let old = m.pte_change(leaf.slot, format.width, value, change.window(m));
        assert!(
            old & PTE_P != 0 && old & PTE_MANAGED != 0,
            "entry {old:#x} of {:?} is no user mapping",
            leaf.va
        );
        change.list(leaf.space, leaf.va, old);
        let same = value & PTE_P != 0 && format.frame(value) == format.frame(old);
        let kept = if same { value } else { 0 };
        reverse.save(format.frame(old), old & !kept & !forget);
        old
    }

    fn assert_user(&self, range: VaRange) {
        let layout = &self.kernel.layout;
        assert!(
            layout.user_start <= range.start() && range.end() <= layout.user_end,
            "{range:?} is not in user space"
        );
    }
}
