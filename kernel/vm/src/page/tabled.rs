//! What a kernel with a hash table of pages looks at in it, and changes; one without does nothing of this.
//!
//! Nothing here fails. The caller has the object locked, and the page queues where a page changes its owner.

use super::frame::{Frames, FramesGuard, Owner};
use crate::object::Object;
use pageferry_hal::{Access, Machine, PAGE_SHIFT, Pfn, StructVa, Va, VaRange};

/// Of a `vm_page`, what says whose it is, with the link to the next of its list.
const IDENTITY_BYTES: usize = 32;

impl<M: Machine> Frames<M> {
    /// A page of an object is looked for: its list is, and as far as it says where the page belongs, the page.
    pub(crate) fn look_up(&self, object: &Object<M>, page: u64, found: Option<Pfn>) {
        let Some(hash) = &self.hash else { return };
        hash.touch(&self.machine, object.struct_va(), page, Access::Read);
        found.into_iter().for_each(|frame| {
            self.machine.touch(self.page_at(frame), IDENTITY_BYTES, Access::Read);
        });
    }

    /// The kernel enters pages of its own at these addresses into the table, or takes them out.
    pub(crate) fn kernel_pages_change(&self, at: VaRange) {
        let Some(hash) = &self.hash else { return };
        at.pages().for_each(|va| {
            hash.touch(&self.machine, StructVa(Va(0)), va.0 >> PAGE_SHIFT, Access::Write);
        });
    }
}

impl<M: Machine> FramesGuard<'_, M> {
    /// A page of an object enters the table, or leaves it.
    pub(super) fn list_changes(&self, frame: Pfn) {
        let Some(hash) = &self.frames.hash else { return };
        let Owner::Object(object, page) = &self.get(frame).owner else { return };
        // One that goes gives up its pages with its last reference.
        let at = object.upgrade().map_or(StructVa(Va(0)), |object| object.struct_va());
        hash.touch(&self.frames.machine, at, *page, Access::Write);
    }
}
