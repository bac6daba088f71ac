//! What a CPU translates by: the context that it has activated, the tags and spaces of addresses.

use crate::hw::Hw;
use crate::mmu::access::Exception;
use pageferry_hal::{Access, Asid, Context, CpuId, Mode, SpaceId, Trap, TrapKind, Va};

impl Hw {
    pub(crate) fn core(&self, cpu: usize) -> usize {
        if self.params.tlb_shared { self.cpus[cpu].package } else { cpu }
    }

    pub(super) fn trap(va: Va, access: Access, mode: Mode, kind: TrapKind) -> Exception {
        Exception::Trap(Trap { va, access, mode, kind })
    }

    /// The tag of the CPU's entries for `va`.
    #[inline(always)]
    pub(crate) fn asid_for(&self, cpu: usize, va: Va) -> Asid {
        if self.params.asids == 0 || va >= self.params.layout.user_end {
            Asid::KERNEL
        } else {
            self.context(cpu).asid
        }
    }

    /// Whose mapping the CPU's translation of `va` is.
    pub(crate) fn space_for(&self, cpu: usize, va: Va) -> SpaceId {
        if va >= self.params.layout.user_end { SpaceId::KERNEL } else { self.context(cpu).space }
    }

    pub(crate) fn context(&self, cpu: usize) -> Context {
        self.cpus[cpu].translates_by.unwrap_or_else(|| {
            panic!("{:?} translates an address, but has activated no context (`activate`)", CpuId(cpu as u8))
        })
    }
}
