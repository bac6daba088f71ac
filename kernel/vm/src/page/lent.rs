//! Loans of frames: to the kernel, and from an object to the one anon that borrows.
//!
//! Nothing here fails; what is asked for of a frame that is not so is a broken invariant. The caller holds the page
//! queues, and for a first loan the owner.

use super::frame::{FramesGuard, Owner};
use crate::anon::Anon;
use crate::object::Object;
use crate::probe::VmDefect;
use alloc::sync::Arc;
use pageferry_hal::{Flow, FlowStep, Level, Machine, Pfn};

/// Who has lent an anon the frame that its page is in.
pub(crate) enum Lender<M: Machine> {
    /// This object, which lives as long as the page queues are locked.
    Object(Option<Arc<Object<M>>>),
    /// An object that has let it go.
    Gone,
    /// Nobody: it is the anon's own, or its anon has another by now.
    Nobody,
}

impl<M: Machine> FramesGuard<'_, M> {
    /// Lends a frame to the kernel. If this is its first loan, nothing may map it writable any more.
    pub(crate) fn lend_to_kernel(&mut self, frame: Pfn) {
        let f = self.get_mut(frame);
        assert!(!matches!(f.owner, Owner::Kernel(_)), "the kernel's own {frame:?} is not lent to it");
        f.loan_count = f.loan_count.checked_add(1).expect("loan count overflows");
        self.frames.machine.trace_level(Level::Loans, 1);
        self.wire(frame);
    }

    /// Ends a loan to the kernel; an orphan is freed with the last one.
    pub(crate) fn end_kernel_loan(&mut self, frame: Pfn) {
        let f = self.get_mut(frame);
        assert!(f.kernel_loans() > 0, "{frame:?} is given back but not on loan to the kernel");
        f.loan_count -= 1;
        self.frames.machine.trace_level(Level::Loans, -1);
        self.frames.machine.trace_flow(Flow::Page(frame), FlowStep::Done);
        let early = self.frames.probes.planted.is(VmDefect::OrphanFreedEarly);
        let f = self.get_mut(frame);
        if early && matches!(f.owner, Owner::Orphan) && f.loan_count > 0 {
            (f.loan_count, f.wire_count) = (0, 1);
        }
        if self.drop_wire(frame) && !self.frames.probes.planted.is(VmDefect::UnloanInTwoSteps) {
            self.push_free(frame);
        }
    }

    /// What [`VmDefect::UnloanInTwoSteps`] does when it has the lock again: it looks, and believes what it sees.
    pub(crate) fn is_unused_orphan(&self, frame: Pfn) -> bool {
        let f = self.get(frame);
        matches!(f.owner, Owner::Orphan) && !f.is_held()
    }

    /// See [`FramesGuard::is_unused_orphan`].
    pub(crate) fn free_orphan(&mut self, frame: Pfn) {
        self.push_free(frame);
    }

    /// Lends an object's frame to its one anon. If this is its first loan, nothing may map it writable any more.
    pub(crate) fn lend_to_anon(&mut self, frame: Pfn, anon: &Arc<Anon<M>>) {
        let f = self.get_mut(frame);
        assert!(matches!(f.owner, Owner::Object(..)) && f.borrower.is_none(), "{frame:?} has its borrower");
        f.borrower = Some(Arc::downgrade(anon));
        f.loan_count = f.loan_count.checked_add(1).expect("loan count overflows");
        self.frames.machine.trace_level(Level::Loans, 1);
        self.touch(frame);
    }

    /// What a frame that an anon has is to it.
    pub(crate) fn lender_of(&self, frame: Pfn, anon: &Anon<M>) -> Lender<M> {
        let f = self.get(frame);
        let borrows = f.borrower.as_ref().is_some_and(|borrower| core::ptr::eq(borrower.as_ptr(), anon));
        match &f.owner {
            Owner::Object(object, _) if borrows => Lender::Object(object.upgrade()),
            Owner::Orphan if borrows => Lender::Gone,
            _ => Lender::Nobody,
        }
    }

    /// Makes the borrower of a frame that its object has let go its owner (UVM paper, 4.1.2).
    pub(crate) fn adopt_borrowed(&mut self, frame: Pfn) {
        let still_lent = self.frames.probes.planted.is(VmDefect::AdoptedStillLent);
        let f = self.get_mut(frame);
        assert!(f.awaits_adoption(), "{frame:?} waits for no borrower to adopt it");
        f.owner = Owner::Anon(f.borrower.take().expect("just seen"));
        if !still_lent {
            f.loan_count -= 1;
        }
        self.frames.machine.trace_level(Level::Loans, -1);
        self.touch(frame);
        self.place(frame);
    }
}
