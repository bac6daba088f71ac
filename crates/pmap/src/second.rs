//! The hash table that some hardware looks into, as a cache of the page tables.
//!
//! # What it holds
//! Copies of entries of the page tables, of all address spaces, each put there by the refill handler when it was missed. An
//! entry goes when its page's mapping changes, or when its place is needed. What the table says is never more than the page
//! tables say: an entry is made used and, if it can be stored through, modified, and both are noted in the page tables
//! first. So nothing need be read back from here when an entry goes.
//!
//! # Locks
//! One, of class `HashTable`, with interrupts off: the refill handler takes it, whatever it interrupts. A caller
//! that changes a mapping changes the page table first and takes the entry out then; the refill handler reads the page table
//! with the lock held. So no entry is put there that is out of date, and stays.

use pageferry_hal::isa::hash::{
    ENTRY_BYTES, GROUP_ENTRIES, HPTE_C, HPTE_PP, HPTE_R, HPTE_V, TAG_MASK, group, tag,
};
use pageferry_hal::{Asid, Attr, HashTable, LockClass, Machine, Pa, SpinLock, Tte, Va, Width};

/// The table. See the [module](self).
pub(crate) struct Second<M: Machine> {
    pub(crate) table: HashTable,
    /// The entry of its group that goes next when both groups of a page are full.
    pub(crate) victim: M::Lock<usize>,
}

/// The entries of a group.
fn slots(group: Pa) -> impl Iterator<Item = Pa> {
    (0..GROUP_ENTRIES).map(move |i| group + i * ENTRY_BYTES)
}

impl<M: Machine> Second<M> {
    pub(crate) fn new(machine: &M, table: HashTable) -> Second<M> {
        Second { table, victim: machine.new_lock(LockClass::HASH_TABLE, 0) }
    }

    /// The entry of the page at `va`, and in which of its groups it is.
    fn find(&self, m: &M, asid: Asid, va: Va) -> Option<(Pa, bool)> {
        [false, true].into_iter().find_map(|secondary| {
            let wanted = tag(asid, va, secondary);
            slots(group(self.table, asid, va, secondary))
                .find(|&slot| m.pt_load(slot, Width::Eight) & TAG_MASK == wanted)
                .map(|slot| (slot, secondary))
        })
    }

    /// Puts a copy of `tte` there. The caller holds the lock, whose value is `victim`.
    pub(crate) fn insert(&self, m: &M, victim: &mut usize, asid: Asid, va: Va, tte: Tte) {
        let free = |secondary| {
            let is_free = |slot: &Pa| m.pt_load(*slot, Width::Eight) & HPTE_V == 0;
            slots(group(self.table, asid, va, secondary)).find(is_free).map(|slot| (slot, secondary))
        };
        let place = self.find(m, asid, va).or_else(|| free(false)).or_else(|| free(true));
        let (slot, secondary) = place.unwrap_or_else(|| {
            *victim = (*victim + 1) % GROUP_ENTRIES;
            (group(self.table, asid, va, false) + *victim * ENTRY_BYTES, false)
        });
        // What was not stored through yet may not be: the first store is to be noted in the page table.
        let writable = tte.attr.contains(Attr::WRITE | Attr::MODIFIED);
        let permits = match (tte.attr.contains(Attr::USER), writable) {
            (true, true) => 2,
            (false, true) => 0,
            (_, false) => HPTE_PP,
        };
        let changed = if writable { HPTE_C } else { 0 };
        let entry = tag(asid, va, secondary) | tte.frame.pa().0 | HPTE_R | changed | permits;
        if m.pt_load(slot, Width::Eight) & HPTE_V != 0 {
            // First it is free: a walker must not find the tag of one page with the frame of another.
            m.pt_swap(slot, Width::Eight, 0);
        }
        m.pt_store(slot, Width::Eight, entry);
    }

    /// Takes the entry of a page whose mapping has changed out, if there is one.
    ///
    /// # Locks
    /// Takes `HashTable`.
    pub(crate) fn forget(&self, m: &M, asid: Asid, va: Va) {
        let _victim = self.victim.lock();
        if let Some((slot, _)) = self.find(m, asid, va) {
            m.pt_swap(slot, Width::Eight, 0);
        }
    }
}
