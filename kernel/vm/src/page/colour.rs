//! The colours of pages: which one a page is to have.
//!
//! A board whose caches are looked up by addresses gives pages colours by them: two addresses of a frame must agree in
//! theirs. On any other board a kernel may give them colours for a cache that is looked up by physical addresses
//! ([`FreeLists::colours`](crate::FreeLists)): the pages of an object, or of an area of anonymous memory, have them one
//! after the other, from that of its first page on. Where pages have none, all of this says so.

use super::frame::Frames;
use core::sync::atomic::Ordering;
use pageferry_hal::{Machine, PAGE_SHIFT, Pfn, Va};

impl<M: Machine> Frames<M> {
    /// The colour of the first page of an object, or of an area of anonymous memory, of so many pages that is made now.
    pub(crate) fn next_first_colour(&self, len_pages: u64) -> u32 {
        if self.by_address || self.colours == 1 {
            return 0;
        }
        let step = len_pages.min(u64::from(self.lists.max_colour_step)) as u32;
        self.first_colour.fetch_add(step, Ordering::Relaxed) & (self.colours - 1)
    }

    /// The colour of the page `page` of an object whose first page has this one.
    pub(crate) fn colour_of_page(&self, first_colour: u32, page: u64) -> Option<u32> {
        (self.colours > 1).then(|| first_colour.wrapping_add(page as u32) & (self.colours - 1))
    }

    /// The colour of a page of a mapping: by its address, or by its place in what is mapped.
    pub(crate) fn colour_of_mapped(&self, at: Va, first_colour: u32, page: u64) -> Option<u32> {
        if self.by_address {
            return self.colour_of_page(0, at.0 >> PAGE_SHIFT);
        }
        self.colour_of_page(first_colour, page)
    }

    /// The colour of a frame that comes in the place of another, which the kernel maps by this colour of its addresses.
    pub(crate) fn colour_in_place_of(&self, frame: Pfn, best_colour: u32) -> Option<u32> {
        let colour = if self.by_address { best_colour } else { frame.0 };
        self.colour_of_page(0, u64::from(colour))
    }
}
