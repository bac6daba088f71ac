//! What lies behind an address, and which structures there are, for checks from outside: nothing is faulted in, charged
//! or changed.

use crate::config::Kind;
use crate::vm::{Space, Vm};
use pageferry_hal::{Machine, Pfn, Va};

/// Structures that exist, of all address spaces together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StructureCensus {
    /// Address spaces.
    pub spaces: usize,
    /// Map entries.
    pub entries: usize,
    /// Amaps.
    pub amaps: usize,
    /// Anons, those on loan among them.
    pub anons: usize,
    /// Objects.
    pub objects: usize,
}

impl<M: Machine> Vm<M> {
    /// Counts the structures.
    ///
    /// # Locks
    /// Takes a leaf lock.
    pub fn structure_census(&self) -> StructureCensus {
        let live = self.structures().all_live();
        let of = |kind: Kind| live[kind as usize];
        StructureCensus {
            spaces: of(Kind::Space),
            entries: of(Kind::Entry),
            amaps: of(Kind::Amap),
            anons: of(Kind::Anon),
            objects: of(Kind::Object),
        }
    }
}

#[cfg(not(feature = "verify"))]
impl<M: Machine> Vm<M> {
    /// Checks nothing: this VM system was built without verification.
    ///
    /// # Errors
    /// None.
    pub fn check(&self) -> Result<(), alloc::string::String> {
        Ok(())
    }
}

impl<M: Machine> Space<M> {
    /// The frame with the data of the page at `va` as the layers have it, mapped or not; none where nothing is mapped,
    /// the page was never touched, or the data is not in memory. For checks while no thread is at work in the space.
    pub fn frame_behind(&self, va: Va) -> Option<Pfn> {
        let map = self.locked_map().peek()?;
        let entry = map.entry_at(va)?;
        if self.vm.shadows().is_some() {
            return entry.chain_at(&self.vm, va).map(|(frame, _)| frame);
        }
        if let Some(a) = &entry.amap {
            let slot = entry.slot(a, va);
            let amap = a.amap.lock();
            if let Some((_, anon)) = amap.anons(slot..slot + 1).next() {
                return anon.lock().frame;
            }
        }
        let o = entry.object.as_ref()?;
        o.object.lock().pages().get(&entry.object_page(o, va)).copied()
    }
}
