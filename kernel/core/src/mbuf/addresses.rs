//! Addresses by which the kernel reaches frames, where a direct map does not.
//!
//! # Locks
//! Those of the kernel's addresses, for a moment.
//!
//! # What can fail
//! Mapping, for want of addresses.

use alloc::sync::Arc;
use pageferry_ephemeral::{FlushAt, KernelAddresses};
use pageferry_hal::{Machine, Pfn, Prot, Va, VaRange};
use pageferry_pmap::Reach;
use pageferry_vm::{Vm, VmError};

/// See the [module](self).
pub(super) struct Addresses<M: Machine> {
    vm: Arc<Vm<M>>,
    /// Where those flush that use addresses for a moment.
    flush_at: FlushAt,
}

impl<M: Machine> Addresses<M> {
    pub(super) fn new(vm: Arc<Vm<M>>, flush_at: FlushAt) -> Addresses<M> {
        Addresses { vm, flush_at }
    }

    /// Lets the kernel reach `frames` in a row; by the direct map, where there is one. The addresses were not in use
    /// since they were last flushed, so no TLB knows them; unless others leave that to whoever maps next.
    pub(super) fn map(&self, frames: &[Pfn], prot: Prot) -> Result<Option<VaRange>, VmError> {
        if frames.iter().all(|&frame| self.vm.pmaps().direct_va(frame).is_some()) {
            return Ok(None);
        }
        let range = KernelAddresses::alloc(&*self.vm, frames.len()).ok_or(VmError::NoMemory)?;
        self.vm.kernel_pages_change(range);
        let mapped = self.vm.pmaps().kenter(range.start(), frames, prot);
        if self.flush_at.unmaps() {
            mapped.not_cached(self.vm.pmaps());
        } else {
            mapped.flush(self.vm.pmaps());
        }
        Ok(Some(range))
    }

    pub(super) fn unmap(&self, mapped: Option<VaRange>) {
        if let Some(range) = mapped {
            self.vm.pmaps().kremove(range).flush(self.vm.pmaps());
            self.vm.kernel_pages_change(range);
            KernelAddresses::free(&*self.vm, range);
        }
    }

    /// The address of a frame that is mapped by the direct map only.
    pub(super) fn direct(&self, frame: Pfn, reach: Reach) -> Va {
        self.vm.pmaps().direct(frame, reach).expect("what is not mapped is in the direct map")
    }
}
