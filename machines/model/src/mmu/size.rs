//! The sizes of pages that a machine translates.

use pageferry_hal::{PAGE_SHIFT, Pa, Pfn, Va};

/// A size of pages, in the order in which a TLB looks for them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum PageSize {
    /// The smallest: 4 KB.
    Base,
    /// What an entry one level above the leaves maps: 2 or 4 MB.
    Super,
    /// What an entry two levels above the leaves maps: 1 GB.
    Huge,
    /// A part of a frame: 1 KB, of which no page table has any.
    Part,
}

impl PageSize {
    /// From small to large, and what is smaller than a frame at the end: few machines look for it.
    pub(crate) const ALL: [PageSize; 4] = [PageSize::Base, PageSize::Super, PageSize::Huge, PageSize::Part];
}

/// log2 of the bytes of pages, by their size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageShifts {
    pub(crate) superpage: u32,
    /// `None` where there are no huge pages.
    pub(crate) huge: Option<u32>,
    /// `None` where none is smaller than a frame.
    pub(crate) part: Option<u32>,
}

impl PageShifts {
    /// Of entries that are free.
    pub(crate) const NONE: PageShifts = PageShifts { superpage: PAGE_SHIFT, huge: None, part: None };

    /// log2 of the bytes of such a page.
    #[inline]
    pub(crate) fn of(self, size: PageSize) -> u32 {
        match size {
            PageSize::Base => PAGE_SHIFT,
            PageSize::Super => self.superpage,
            PageSize::Huge => self.huge.expect("this machine has huge pages"),
            PageSize::Part => self.part.expect("this machine has pages smaller than a frame"),
        }
    }

    /// The sizes that there are, as in [`PageSize::ALL`].
    #[inline]
    pub(crate) fn sizes(self) -> impl Iterator<Item = PageSize> {
        PageSize::ALL.into_iter().filter(move |size| match size {
            PageSize::Base | PageSize::Super => true,
            PageSize::Huge => self.huge.is_some(),
            PageSize::Part => self.part.is_some(),
        })
    }

    /// Where the page of this size at `va` begins, that a mapping has in `frame`.
    pub(crate) fn base(self, frame: Pfn, va: Va, size: PageSize) -> Pa {
        match size {
            PageSize::Part => frame.pa() + (va.offset() - self.offset(va, size)),
            PageSize::Base | PageSize::Super | PageSize::Huge => frame.pa(),
        }
    }

    /// The size of pages of so many bytes (as log2), if there are any.
    pub(crate) fn size(self, shift: u32) -> Option<PageSize> {
        self.sizes().find(|&size| self.of(size) == shift)
    }

    /// The number of the page of this size at `va`.
    #[inline]
    pub(crate) fn number(self, va: Va, size: PageSize) -> u64 {
        va.0 >> self.of(size)
    }

    /// The bytes between the start of its page of this size and `va`.
    #[inline]
    pub(crate) fn offset(self, va: Va, size: PageSize) -> usize {
        (va.0 & ((1 << self.of(size)) - 1)) as usize
    }
}
