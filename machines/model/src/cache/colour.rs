//! Colours: where the first level is indexed by virtual addresses, and a way of it is larger than a page.
//!
//! Bits of the page's number then say which set a line is in, and these bits of a virtual address are its *colour*. A
//! line of memory that is accessed by addresses of several colours is in several sets: as often as it has colours, each
//! copy for itself (SH7751 manual, 3.5.5 and 4.2; sf_buf paper, 4.4). The model knows each copy by a number of its own,
//! in which the colour stands below the number of the frame, where the index takes it from. So the level itself needs
//! to know nothing of this.
//!
//! An instruction cache has colours likewise, by the size of its own ways.
//!
//! What makes a physical address the kernel's own, as P1 of SH-4 or a direct map does, has the colour of the frame.

use crate::config::MachineConfig;
use pageferry_hal::PAGE_SHIFT;

/// How a cache's numbers of lines are made.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Colours {
    /// Bits of a colour; 0 where there are none.
    bits: u32,
    /// Bits of a line's number within a page.
    line_bits: u32,
}

impl Colours {
    /// Those of the first level for data.
    pub(super) fn of(machine: &MachineConfig) -> Colours {
        Colours::new(machine.colours(), machine.cache[0].line_bytes.value)
    }

    pub(super) fn new(count: u32, line_bytes: u64) -> Colours {
        let line_shift = line_bytes.trailing_zeros();
        Colours { bits: count.trailing_zeros(), line_bits: PAGE_SHIFT.saturating_sub(line_shift) }
    }

    /// How many there are.
    pub(super) fn count(self) -> u32 {
        1 << self.bits
    }

    /// The colour of what physical addresses are made from without translation.
    #[inline(always)]
    pub(super) fn own(self, pa: u64) -> u32 {
        self.of_address(pa)
    }

    /// The colour of an address.
    #[inline(always)]
    pub(super) fn of_address(self, at: u64) -> u32 {
        (at >> PAGE_SHIFT) as u32 & (self.count() - 1)
    }

    /// What makes the cache's numbers from those of the lines of a page, accessed by addresses of a colour.
    #[inline(always)]
    pub(super) fn skew(self, pa: u64, colour: u32) -> u64 {
        let page = pa >> PAGE_SHIFT;
        let known = (page << self.bits) | u64::from(colour);
        if self.bits == 0 { 0 } else { (known - page) << self.line_bits }
    }

    /// As [`Colours::skew`], for a line by the colour of its frame.
    pub(super) fn own_skew(self, line: u64) -> u64 {
        let pa = line >> self.line_bits << PAGE_SHIFT;
        self.skew(pa, self.own(pa))
    }

    /// The skews of the colours that the frame of `pa` does not have itself.
    pub(super) fn others(self, pa: u64) -> impl Iterator<Item = u64> {
        let own = self.own(pa);
        (0..self.count()).filter(move |&colour| colour != own).map(move |colour| self.skew(pa, colour))
    }

    /// The line of memory that level `at` knows by a number.
    #[inline(always)]
    pub(super) fn real(self, known: u64, at: usize) -> u64 {
        if self.bits == 0 || at > 0 {
            return known;
        }
        let within = known & ((1 << self.line_bits) - 1);
        (known >> (self.line_bits + self.bits) << self.line_bits) | within
    }
}
