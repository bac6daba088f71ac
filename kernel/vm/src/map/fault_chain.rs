//! Page faults where memory is made of shadow objects (4.4BSD-Lite, `vm_fault`).
//!
//! The chain is searched from its first object on, with all chains held and each object locked while it is looked at.
//! What the first has is mapped with the entry's protection, less writing while the entry needs a copy. What another
//! has is mapped for reading, or copied into the first; then every mapping of it is revoked, since others may see the
//! first, too. What none has is clear, and becomes the first's. So the cost of a fault grows with the length of the
//! chain, up to where the page is found.
//!
//! A copy lets the chain be made shorter. A fault that runs out of memory leaves everything as it was.

use super::fault::{PageFault, Step};
use crate::counter::VmCounter;
use crate::error::VmError;
use crate::object::ObjectPageError;
use crate::page::{Owner, WantedFrame};
use crate::probe::VmDefect;
use crate::shadow::collapse;
use alloc::sync::Arc;
use pageferry_hal::{Machine, Pfn, Prot};
use pageferry_pmap::TlbFlush;

impl<M: Machine> PageFault<'_, M> {
    pub(super) fn chain(&self) -> Result<Step<M>, VmError> {
        let (vm, attributes) = (self.vm, self.entry.attributes);
        let path = vm.shadows().expect("memory is made of shadow objects").paths.search;
        let Some(top) = &self.entry.object else { return Ok(Step::NeedsOwn) };
        if !attributes.copy_on_write {
            return self.object(None);
        }
        if self.writes() && attributes.needs_copy {
            return Ok(Step::NeedsOwn);
        }
        let (first, page) = (&top.object, self.entry.object_page(top, self.va));
        let mut chains = vm.chains();
        let (mut new, mut copied) = (None, false);
        for (depth, (object, page)) in chains.walk(first, page).enumerate() {
            vm.machine().execute(path);
            let mut state = object.lock();
            let frame = match object.page_in_chain(vm, &mut state, page) {
                Ok(Some(frame)) => frame,
                Ok(None) => continue,
                Err(ObjectPageError::NotResident) => {
                    // What comes from the swap area comes alone.
                    let read_ahead = if object.is_internal() { 0 } else { self.read_ahead() };
                    return Ok(Step::Fetch(object.clone(), page, read_ahead));
                }
                Err(ObjectPageError::NoMemory) => return Err(VmError::NoMemory),
                Err(ObjectPageError::Pager(_)) => return Err(VmError::Fault(self.va)),
                Err(ObjectPageError::BehindEnd) => return Err(VmError::Bus(self.va)),
            };
            let mut prot = attributes.prot;
            if depth == 0 || !self.writes() {
                if depth > 0 || attributes.needs_copy {
                    prot.remove(Prot::WRITE);
                }
                self.enter(frame, prot, TlbFlush::new())?;
                return Ok(Step::Done);
            }
            let own = self.alloc_first(WantedFrame::of)?;
            vm.copy(frame, own);
            let mut revoked = TlbFlush::new();
            if !vm.has(VmDefect::PromoteWithoutRevoke) {
                revoked.merge(vm.pmaps().page_protect(frame, Prot::empty()));
            }
            if let Err(e) = self.enter(own, prot, revoked) {
                vm.frames().free_busy(own);
                return Err(e);
            }
            (new, copied) = (Some(own), true);
            break;
        }
        let frame = match new {
            Some(frame) => frame,
            None => {
                let frame = self.alloc_first(WantedFrame::clear)?;
                vm.machine().count(VmCounter::ZeroFills, 1);
                vm.zero(frame);
                let mut prot = attributes.prot;
                if attributes.needs_copy {
                    prot.remove(Prot::WRITE);
                }
                if let Err(e) = self.enter(frame, prot, TlbFlush::new()) {
                    vm.frames().free_busy(frame);
                    return Err(e);
                }
                frame
            }
        };
        let old = first.lock().pages_mut().insert(page, frame);
        assert!(old.is_none(), "a page came into the first object while all chains were held");
        vm.frames().publish(frame);
        if copied {
            let _freed = collapse(vm, &mut chains, first);
        }
        Ok(Step::Done)
    }

    /// A frame for the page in the first object of the chain.
    fn alloc_first(&self, wanted: fn(Option<u32>) -> WantedFrame) -> Result<Pfn, VmError> {
        let top = self.entry.object.as_ref().expect("the caller has seen it");
        let page = self.entry.object_page(top, self.va);
        let colour = self.vm.frames().colour_of_mapped(self.va, top.object.first_colour, page);
        self.vm.frames().alloc(Owner::Object(Arc::downgrade(&top.object), page), wanted(colour))
    }
}
