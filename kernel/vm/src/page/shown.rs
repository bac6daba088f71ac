//! Frames that a window shows: the kernel's data before and after, and an object's meanwhile. The wire that the kernel
//! has on its own frames stays on them, and counts as held while they are shown.
//!
//! Nothing here fails; what is asked for of a frame that is not so is a broken invariant. The caller holds the page
//! queues.

use super::frame::{FramesGuard, KernelUse, Owner};
use crate::counter::VmCounter;
use crate::object::Object;
use alloc::sync::Arc;
use pageferry_hal::{Machine, Pfn};

impl<M: Machine> FramesGuard<'_, M> {
    /// Makes a frame of the kernel's data page `page` of a window. The wire that the kernel had stays.
    pub(crate) fn show(&mut self, frame: Pfn, window: &Arc<Object<M>>, page: u64) {
        let f = self.get_mut(frame);
        assert!(matches!(f.owner, Owner::Kernel(KernelUse::Data)), "{frame:?} is not the kernel's to show");
        assert!(f.wire_count == 1 && f.loan_count == 0, "{frame:?} is wired twice, or lent");
        f.owner = Owner::Object(Arc::downgrade(window), page);
        self.table.held_wires += 1;
        self.frames.machine.count(VmCounter::FramesWired, 1);
        self.touch(frame);
        self.list_changes(frame);
        self.place(frame);
    }

    /// Takes a frame of a window, of which nothing is mapped any more, back: true if it is the kernel's for data again.
    /// One that somebody has wired meanwhile is his, and freed with the last wire.
    pub(crate) fn take_back(&mut self, frame: Pfn) -> bool {
        let f = self.get_mut(frame);
        assert!(matches!(f.owner, Owner::Object(..)) && f.wire_count > 0, "{frame:?} is not shown");
        if f.wire_count > 1 || f.loan_count > 0 {
            let unused = self.drop_wire(frame);
            assert!(!unused, "{frame:?} has an owner still");
            self.disown(frame);
            return false;
        }
        self.list_changes(frame);
        self.get_mut(frame).owner = Owner::Kernel(KernelUse::Data);
        self.table.held_wires -= 1;
        self.frames.machine.count(VmCounter::FramesUnwired, 1);
        self.touch(frame);
        self.place(frame);
        true
    }
}
