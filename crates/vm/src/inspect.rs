//! What lies behind an address, for checks from outside: nothing is faulted in, charged or changed.

use crate::space::Space;
use pageferry_hal::{Machine, Pfn, Va};

impl<M: Machine> Space<M> {
    /// The frame with the data of the page at `va` as the layers have it, mapped or not; none where nothing is mapped, the
    /// page was never touched, or the data is not in memory. For checks while nobody is at work in the space.
    pub fn frame_behind(&self, va: Va) -> Option<Pfn> {
        let map = self.locked_map().peek()?;
        let entry = map.entry_at(va)?;
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
