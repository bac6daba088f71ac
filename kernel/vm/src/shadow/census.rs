//! How long chains are, and what is held that nobody can reach.
//!
//! Read for measurements and checks, while no thread is at work in the VM system; nothing is charged or changed. What
//! an entry reaches is, for each of its pages, the first object of its chain that has it. All else that internal
//! objects have, in frames or in the swap area, is lost until they go: the UVM paper's swap leak (2.1).

use super::chains::Chains;
use crate::map::Entry;
use crate::vm::Vm;
use alloc::collections::BTreeSet;
use pageferry_hal::Machine;

/// Shadow objects and what they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShadowCensus {
    /// Internal objects.
    pub objects: usize,
    /// Objects of the longest chain behind an entry, the one at its end counted.
    pub longest_chain: usize,
    /// Pages that internal objects have in frames.
    pub resident: usize,
    /// Those of them that no entry reaches.
    pub resident_lost: usize,
    /// Slots of the swap area that internal objects have.
    pub slots: usize,
    /// Those of them whose contents no entry would read again.
    pub slots_lost: usize,
    /// Pages that no entry reaches, in frames or in the swap area, each once.
    pub lost: usize,
    /// Objects that were made one with the object before them, so far.
    pub collapses: u64,
    /// Objects that the object before them has gone past, so far.
    pub bypasses: u64,
}

/// Objects, and the pages of each, by the address of its structure.
pub(crate) type Reached = (BTreeSet<u64>, BTreeSet<(u64, u64)>);

/// Adds what `entry` reaches; returns the length of its chain.
pub(crate) fn reach<M: Machine>(chains: &Chains<M>, entry: &Entry<M>, reached: &mut Reached) -> usize {
    let Some(top) = &entry.object else { return 0 };
    let mut len = 0;
    for (object, _) in chains.walk(&top.object, top.page) {
        reached.0.insert(object.struct_va().0.0);
        len += 1;
    }
    for page in top.page..top.page + entry.len_pages() {
        let has = chains.holder(&top.object, page);
        reached.1.extend(has.map(|(_, object, page)| (object.struct_va().0.0, page)));
    }
    len
}

#[cfg(feature = "verify")]
impl<M: Machine> Vm<M> {
    /// Counts shadow objects and what they hold; all zero where memory is made of amaps. Before: no thread is at work
    /// in the VM system.
    ///
    /// # Locks
    /// Takes all of them, one after the other: no spin lock may be held.
    pub fn shadow_census(&self) -> ShadowCensus {
        let mut reached = Reached::default();
        let mut census = ShadowCensus::default();
        for space in self.structures().spaces() {
            let Some(map) = space.locked_map().peek() else { continue };
            let chains = self.chains();
            for entry in map.entries() {
                census.longest_chain = census.longest_chain.max(reach(&chains, entry, &mut reached));
            }
        }
        for object in self.structures().objects().iter().filter(|object| object.is_internal()) {
            let state = object.lock();
            let reaches = |page: &u64| reached.1.contains(&(object.struct_va().0.0, *page));
            census.resident += state.pages().len();
            census.resident_lost += state.pages().keys().filter(|page| !reaches(page)).count();
            census.slots += state.swap.len();
            census.slots_lost += state.swap.keys().filter(|page| !reaches(page)).count();
            let all: BTreeSet<u64> = state.pages().keys().chain(state.swap.keys()).copied().collect();
            census.lost += all.iter().filter(|page| !reaches(page)).count();
        }
        let chains = self.chains();
        census.objects = chains.len();
        (census.collapses, census.bypasses) = (chains.collapses, chains.bypasses);
        census
    }
}

#[cfg(not(feature = "verify"))]
impl<M: Machine> Vm<M> {
    /// Counts nothing: this VM system was built without verification.
    pub fn shadow_census(&self) -> ShadowCensus {
        ShadowCensus::default()
    }
}
