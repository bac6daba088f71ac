//! A hash table of translations, as a cache of the page tables: hardware looks into it, or the refill handler does.
//!
//! # What it holds
//! Copies of entries of the page tables, of all address spaces, each put there by the refill handler when it was
//! missed. An entry goes when its page's mapping changes, or when its place is needed. What the table says is never
//! more than the page tables say: an entry is made used and, if it can be stored through, modified, and both are noted
//! in the page tables first (as Linux/PPC does it: a clean page is closed to stores). So nothing need be read back from
//! here when an entry goes: there is no moment in which a referenced or changed bit is known to the table alone.
//!
//! Entries of numbers that address spaces do not have any more stay until their place is needed, until a CPU with
//! nothing to do looks for them ([`crate::Pmaps::reclaim`]), or until the number is to be given again.
//!
//! # Locks
//! One, of class `HashTable`, with interrupts off: the refill handler takes it, whatever it interrupts. A caller that
//! changes a mapping changes the page table first and takes the entry out then; the refill handler reads the page table
//! with the lock held. So no entry is put there that is out of date, and stays.

use crate::counter::PmapCounter;
use crate::defect::PmapDefect;
use pageferry_defects::Planted;
use pageferry_hal::isa::hash::{
    ENTRY_BYTES, GROUP_BYTES, GROUP_ENTRIES, HPTE_C, HPTE_PP, HPTE_R, HPTE_V, TAG_MASK, asid_of, frame,
    group, tag, vsid_of,
};
use pageferry_hal::{Asid, Attr, HashTable, LockClass, Machine, Pa, SpinLock, Tte, Va, Width};

/// Of the entries that the table has no room for: the place that the next one takes; and how far reclaiming has come.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    /// The entry of its group that goes next when both groups of a page are full.
    pub(crate) victim: usize,
    /// The group to be looked through next.
    pub(crate) reclaim: usize,
}

/// The table. See the [module](self).
pub(crate) struct Second<M: Machine> {
    pub(crate) table: HashTable,
    pub(crate) cursors: M::Lock<Cursors>,
    defect: Planted<PmapDefect>,
}

/// What a look through the groups of a page found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Searched {
    /// The page's entry: where it is, and what it says.
    pub(crate) found: Option<(Pa, u64)>,
    /// The first free place, and whether that is in the secondary group.
    free: Option<(Pa, bool)>,
    /// Entries that were looked at.
    pub(crate) probes: u32,
    /// The secondary group was looked at.
    pub(crate) secondary: bool,
}

impl Searched {
    /// As much of the look as it takes to come to the page's entry, or else to a free place, in the group that has it:
    /// how long an insertion takes by its count of instructions. Where there is no place, one group and the step to the
    /// other.
    pub(crate) fn to_its_place(self) -> Searched {
        let place = self.found.map(|(slot, _)| (slot, self.secondary)).or(self.free);
        let index = |slot: Pa| slot.0 as usize / ENTRY_BYTES % GROUP_ENTRIES;
        let (probes, secondary) = place.map_or((GROUP_ENTRIES, true), |(slot, s)| (index(slot) + 1, s));
        Searched { probes: probes as u32, secondary, ..self }
    }
}

/// The entries of a group.
fn slots(group: Pa) -> impl Iterator<Item = Pa> {
    (0..GROUP_ENTRIES).map(move |i| group + i * ENTRY_BYTES)
}

impl<M: Machine> Second<M> {
    pub(crate) fn new(machine: &M, table: HashTable, defect: Planted<PmapDefect>) -> Second<M> {
        Second { table, cursors: machine.new_lock(LockClass::HASH_TABLE, Cursors::default()), defect }
    }

    /// Looks for the entry of the page at `va`.
    pub(crate) fn search(&self, m: &M, asid: Asid, va: Va) -> Searched {
        let mut searched = Searched { found: None, free: None, probes: 0, secondary: false };
        let mask = if self.defect.is(PmapDefect::TagHalfCompared) { HPTE_V | 0x3f << 32 } else { TAG_MASK };
        for secondary in [false, true] {
            searched.secondary = secondary;
            let wanted = tag(self.table, asid, va, secondary);
            for slot in slots(group(self.table, asid, va, secondary)) {
                let entry = m.pt_load(slot, Width::Eight);
                searched.probes += 1;
                if entry & mask == wanted & mask {
                    searched.found = Some((slot, entry));
                    return searched;
                }
                if entry & HPTE_V == 0 && searched.free.is_none() {
                    searched.free = Some((slot, secondary));
                }
            }
        }
        searched
    }

    /// Puts a copy of `tte` where `searched` found its page, or a place for it; answers true when another entry had to
    /// go. The caller holds the lock.
    pub(crate) fn insert(
        &self,
        m: &M,
        cursors: &mut Cursors,
        searched: Searched,
        (asid, va): (Asid, Va),
        tte: Tte,
    ) -> bool {
        // Which of its groups an entry is in, it says itself.
        let found =
            searched.found.map(|(slot, entry)| (slot, entry & TAG_MASK == tag(self.table, asid, va, true)));
        let (slot, secondary) = found.or(searched.free).unwrap_or_else(|| {
            m.count(PmapCounter::HashEvictions, 1);
            cursors.victim = (cursors.victim + 1) % GROUP_ENTRIES;
            (group(self.table, asid, va, false) + cursors.victim * ENTRY_BYTES, false)
        });
        // What was not stored through yet may not be: the first store is to be noted in the page table.
        let modified = tte.attr.contains(Attr::MODIFIED) || self.defect.is(PmapDefect::ModifiedLost);
        let writable = tte.attr.contains(Attr::WRITE) && modified || self.defect.is(PmapDefect::WriteAlways);
        let permits = match (tte.attr.contains(Attr::USER), writable) {
            (true, true) => 2,
            (false, true) => 0,
            (_, false) => HPTE_PP,
        };
        let changed = if writable { HPTE_C } else { 0 };
        let mark = secondary && !self.defect.is(PmapDefect::SecondaryUnmarked);
        let entry = tag(self.table, asid, va, mark) | tte.frame.pa().0 | HPTE_R | changed | permits;
        let taken = found.is_some() || searched.free.is_none();
        if taken && self.defect.is(PmapDefect::HalfWritten) {
            let old = m.pt_load(slot, Width::Eight);
            m.pt_store(slot, Width::Eight, entry & TAG_MASK | old & !TAG_MASK);
        } else if taken {
            // First it is free: a walker must not find the tag of one page with the frame of another.
            let old = m.pt_swap(slot, Width::Eight, 0);
            if found.is_none() {
                self.count_displaced(m, asid_of(self.table.scatter, vsid_of(old)), asid);
            }
        }
        m.pt_store(slot, Width::Eight, entry);
        found.is_none() && taken
    }

    /// Counts an entry of `old` that went for one of `new`.
    fn count_displaced(&self, m: &M, old: Asid, new: Asid) {
        match (old == Asid::KERNEL, new == Asid::KERNEL) {
            (false, true) => m.count(PmapCounter::HashUsersDisplaced, 1),
            (true, false) => m.count(PmapCounter::HashKernelDisplaced, 1),
            _ => {}
        }
    }

    /// Takes the entry of a page whose mapping has changed out, if there is one.
    ///
    /// # Locks
    /// Takes `HashTable`.
    pub(crate) fn forget(&self, m: &M, asid: Asid, va: Va) {
        if self.defect.is(PmapDefect::StaleHashEntry) {
            return;
        }
        let _cursors = self.cursors.lock();
        if let Some((slot, _)) = self.search(m, asid, va).found {
            m.pt_swap(slot, Width::Eight, 0);
        }
    }

    /// Clears a group of entries whose number `goes`; how many those were.
    pub(crate) fn clear_group(&self, m: &M, group: usize, goes: impl Fn(Asid) -> bool) -> usize {
        let mut cleared = 0;
        for slot in slots(self.table.at + group * GROUP_BYTES) {
            let entry = m.pt_load(slot, Width::Eight);
            let asid = asid_of(self.table.scatter, vsid_of(entry));
            if entry & HPTE_V != 0 && asid != Asid::KERNEL && goes(asid) {
                m.pt_swap(slot, Width::Eight, 0);
                cleared += 1;
            }
        }
        cleared
    }

    /// Clears the whole table of entries of these numbers, which are in order.
    ///
    /// # Locks
    /// Takes `HashTable`, group by group.
    pub(crate) fn purge(&self, m: &M, numbers: &[Asid]) {
        for group in 0..self.table.groups {
            let _cursors = self.cursors.lock();
            self.clear_group(m, group, |asid| numbers.binary_search(&asid).is_ok());
        }
    }
}

/// What an entry of the table permits: the mapping that it was made from, as far as it shows.
pub(crate) fn decode(entry: u64, user: bool) -> Tte {
    let mut attr = Attr::REFERENCED;
    attr.set(Attr::USER, user);
    attr.set(Attr::GLOBAL, !user);
    // Open to stores only when the page is known to be modified.
    attr.set(Attr::WRITE | Attr::MODIFIED, entry & HPTE_C != 0);
    Tte::page(frame(entry), attr)
}
