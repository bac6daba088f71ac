//! The pages of kernel addresses that each CPU owns where there is no direct map, or where pages have colours: see
//! `copy_page`.

use pageferry_hal::{LockClass, Machine, PAGE_SHIFT, PAGE_SIZE, Va, VaRange};

/// The pages of one CPU: two, of each colour.
pub(crate) struct Sysmap<M: Machine> {
    /// Class `Pmap`: callers hold locks up to the page queues, and nothing is taken inside.
    pub(crate) lock: M::Lock<()>,
    range: VaRange,
    colours: u32,
}

impl<M: Machine> Sysmap<M> {
    /// Frames that can be mapped at once.
    pub(crate) const FRAMES: usize = 2;

    /// Pages of addresses that one takes.
    pub(crate) const fn pages(colours: u32) -> usize {
        Self::FRAMES * colours as usize
    }

    pub(crate) fn new(machine: &M, range: VaRange, colours: u32) -> Sysmap<M> {
        assert_eq!(range.len_pages(), Self::pages(colours), "a CPU has two temporary pages of each colour");
        Sysmap { lock: machine.new_lock(LockClass::PMAP, ()), range, colours }
    }

    /// The page of a colour for the first or the second frame.
    pub(crate) fn page(&self, nth: usize, colour: u32) -> Va {
        // As many pages in a row as there are colours have one of each.
        let first = self.range.start() + nth * self.colours as usize * PAGE_SIZE;
        let ahead = colour.wrapping_sub((first.0 >> PAGE_SHIFT) as u32) & (self.colours - 1);
        first + ahead as usize * PAGE_SIZE
    }
}
