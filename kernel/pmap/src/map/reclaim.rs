//! The hash table looked through for what nobody needs: by CPUs that have nothing else to do, and by measurements.

use crate::counter::PmapCounter;
use crate::pmap::Pmaps;
use alloc::vec::Vec;
use pageferry_hal::isa::hash::{ENTRY_BYTES, GROUP_ENTRIES, HPTE_V, asid_of, vsid_of};
use pageferry_hal::{Asid, Machine, Pa, SpinLock};

impl<M: Machine> Pmaps<M> {
    /// For a CPU that has nothing to do: looks through up to `groups` groups of the hash table for entries of numbers
    /// that no address space has any more, and clears them (Linux/PPC does so in its idle loop). Answers how many
    /// groups it has looked through: none when there is nothing to find, or this kernel does not look.
    ///
    /// # Locks
    /// Takes that of reverse mappings, and inside it `HashTable`, group by group.
    pub fn reclaim(&self, groups: usize) -> usize {
        let Some(second) = self.second.as_ref().filter(|_| self.config.idle_reclaim) else { return 0 };
        let m = &self.machine;
        for done in 0..groups {
            let mut pv = self.pv.lock();
            if !pv.numbers.some_to_reclaim() {
                return done;
            }
            let mut cursors = second.cursors.lock();
            let group = cursors.reclaim;
            cursors.reclaim = (group + 1) % second.table.groups;
            let cleared = second.clear_group(m, group, |asid| pv.numbers.rests(asid));
            let round = cursors.reclaim == 0;
            drop(cursors);
            m.count(PmapCounter::HashReclaimed, cleared as u64);
            if round {
                pv.numbers.round_over();
            }
        }
        groups
    }

    /// What is in the hash table: entries in use, those of the kernel, and those of numbers that no address space has.
    /// For measurements; reads the table without cost or lock, by `word`.
    pub fn hash_census(&self, word: &dyn Fn(Pa) -> u64) -> Option<HashCensus> {
        let second = self.second.as_ref()?;
        let pv = self.pv.lock();
        let mut census = HashCensus { slots: second.table.groups * GROUP_ENTRIES, ..HashCensus::default() };
        let entries: Vec<u64> = (0..census.slots)
            .map(|i| word(second.table.at + i * ENTRY_BYTES))
            .filter(|e| e & HPTE_V != 0)
            .collect();
        census.valid = entries.len();
        let whose = |entry: &&u64| asid_of(second.table.scatter, vsid_of(**entry));
        census.kernels = entries.iter().filter(|e| whose(e) == Asid::KERNEL).count();
        census.left_behind = entries.iter().filter(|e| pv.numbers.rests(whose(e))).count();
        Some(census)
    }
}

/// See [`Pmaps::hash_census`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashCensus {
    /// Places of the table.
    pub slots: usize,
    /// Those that are taken.
    pub valid: usize,
    /// Of these, by the kernel's pages.
    pub kernels: usize,
    /// Of these, by pages of numbers that no address space has any more.
    pub left_behind: usize,
}
