//! The pages of kernel addresses that each CPU owns where there is no direct map: see `copy_page`.

use pageferry_hal::{LockClass, Machine, Va, VaRange};

/// The two pages of one CPU.
pub(crate) struct Sysmap<M: Machine> {
    /// Class `Pmap`: callers hold locks up to the page queues, and nothing is taken inside.
    pub(crate) lock: M::Lock<()>,
    pub(crate) pages: [Va; 2],
}

impl<M: Machine> Sysmap<M> {
    pub(crate) const PAGES: usize = 2;

    pub(crate) fn new(machine: &M, range: VaRange) -> Sysmap<M> {
        let mut pages = range.pages();
        let mut page = || pages.next().expect("a CPU has two temporary pages");
        Sysmap { lock: machine.new_lock(LockClass::PMAP, ()), pages: [page(), page()] }
    }
}
