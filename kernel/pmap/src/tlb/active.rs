//! What one CPU has loaded as its page table, and the tags that it gives out: the state behind `active`.

use crate::tlb::asid::Numbers;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use pageferry_hal::{Asid, Pa, SpaceId};

/// One CPU's page table. Alone in its cache line on real hardware.
#[repr(align(64))]
pub(crate) struct Active {
    /// True between `init_cpu` and `retire_cpu`.
    pub(crate) started: AtomicBool,
    /// A kernel thread runs on the address space of the last process.
    pub(crate) lazy: AtomicBool,
    /// A switch to a process is under way: it will load a root, unless the right one is loaded.
    pub(crate) switching: AtomicBool,
    /// The address space whose root is loaded, or about to be.
    pub(crate) loading: AtomicU32,
    /// The address space whose root was loaded last.
    pub(crate) loaded: AtomicU32,
    /// The root that goes with `loading`.
    pub(crate) root: AtomicU64,
    /// The tag that goes with `loading`; [`Active::NO_TAG`] while it is not known.
    pub(crate) asid: AtomicU32,
    /// The block of the process, packed, that is in its register.
    pub(crate) block: AtomicU64,
    /// The tags that this CPU gives out, where each gives its own.
    pub(crate) numbers: Numbers,
}

impl Active {
    /// No tag of any space: there are fewer.
    pub(crate) const NO_TAG: Asid = Asid(u32::MAX);

    pub(crate) fn new(kernel_root: Pa) -> Active {
        Active {
            started: AtomicBool::new(false),
            lazy: AtomicBool::new(true),
            switching: AtomicBool::new(false),
            loading: AtomicU32::new(SpaceId::KERNEL.0),
            loaded: AtomicU32::new(SpaceId::KERNEL.0),
            root: AtomicU64::new(kernel_root.0),
            asid: AtomicU32::new(Asid::KERNEL.0),
            block: AtomicU64::new(0),
            numbers: Numbers::default(),
        }
    }
    /// True when the CPU translates by `space`, or is on its way to it or from it.
    pub(crate) fn holds(&self, space: SpaceId) -> bool {
        self.loading.load(SeqCst) == space.0 || self.loaded.load(SeqCst) == space.0
    }
    /// True when the CPU translates by `space`, and is not on its way to or from another.
    pub(crate) fn is_on(&self, space: SpaceId) -> bool {
        self.loading.load(SeqCst) == space.0 && self.loaded.load(SeqCst) == space.0
    }
    /// What the CPU translates by, as long as it does not switch.
    pub(crate) fn context(&self) -> (SpaceId, Pa, Asid) {
        (SpaceId(self.loading.load(SeqCst)), Pa(self.root.load(SeqCst)), Asid(self.asid.load(SeqCst)))
    }
}
