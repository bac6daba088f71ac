//! Virtual addresses, physical addresses and page frames.
//!
//! The page size is a constant of a build: all machines described here translate in pages of 4 KB, their larger pages
//! are multiples of it, and a machine whose smallest page is larger is a build of its own with another [`PAGE_SHIFT`].
//! Arithmetic that could wrap is checked: an address that wraps is a caller's error, never a small address.

use core::fmt;
use core::ops::Range;

/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page and in a frame.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;

/// A virtual address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Va(pub u64);

/// A physical address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pa(pub u64);

/// The number of a physical page frame: a physical address divided by the page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pfn(pub u32);

impl Va {
    /// The page that holds this address.
    pub const fn page(self) -> Va {
        Va(self.0 & !(PAGE_SIZE as u64 - 1))
    }
    /// The virtual page number.
    pub const fn vpn(self) -> u64 {
        self.0 >> PAGE_SHIFT
    }
    /// The offset within the page, in bytes.
    pub const fn offset(self) -> usize {
        (self.0 & (PAGE_SIZE as u64 - 1)) as usize
    }
    /// True when this is the first byte of a page.
    pub const fn is_page_aligned(self) -> bool {
        self.offset() == 0
    }
    /// This address moved up by `len_bytes`, or `None` where it would wrap.
    pub const fn checked_add(self, len_bytes: usize) -> Option<Va> {
        match self.0.checked_add(len_bytes as u64) {
            Some(a) => Some(Va(a)),
            None => None,
        }
    }
}

impl core::ops::Add<usize> for Va {
    type Output = Va;
    /// # Panics
    /// When the sum wraps.
    #[inline]
    fn add(self, len_bytes: usize) -> Va {
        self.checked_add(len_bytes).expect("virtual address wraps")
    }
}

impl core::ops::Sub<Va> for Va {
    type Output = usize;
    /// The distance in bytes.
    ///
    /// # Panics
    /// When `other` lies above `self`.
    fn sub(self, other: Va) -> usize {
        self.0.checked_sub(other.0).expect("negative distance of virtual addresses") as usize
    }
}

impl Pa {
    /// The frame that holds this address.
    pub const fn pfn(self) -> Pfn {
        Pfn((self.0 >> PAGE_SHIFT) as u32)
    }
    /// The offset within the frame, in bytes.
    pub const fn offset(self) -> usize {
        (self.0 & (PAGE_SIZE as u64 - 1)) as usize
    }
}

impl core::ops::Add<usize> for Pa {
    type Output = Pa;
    #[inline]
    fn add(self, len_bytes: usize) -> Pa {
        Pa(self.0.checked_add(len_bytes as u64).expect("physical address wraps"))
    }
}

impl Pfn {
    /// The physical address of the frame's first byte.
    pub const fn pa(self) -> Pa {
        Pa((self.0 as u64) << PAGE_SHIFT)
    }
    /// The frame number as an index into a table of all frames.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Rounds a length or address up to a whole page; `None` where that would wrap.
pub const fn page_round(bytes: u64) -> Option<u64> {
    match bytes.checked_add(PAGE_SIZE as u64 - 1) {
        Some(b) => Some(b & !(PAGE_SIZE as u64 - 1)),
        None => None,
    }
}

/// Rounds a length or address down to a whole page.
pub const fn page_trunc(bytes: u64) -> u64 {
    bytes & !(PAGE_SIZE as u64 - 1)
}

/// A page-aligned, half-open range of virtual addresses. It may be empty; it never wraps.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VaRange {
    start: Va,
    end: Va,
}

impl VaRange {
    /// The range from `start` to `end`.
    ///
    /// # Panics
    /// When an end is not page-aligned or `end < start`: callers check what comes from outside first.
    pub fn new(start: Va, end: Va) -> VaRange {
        assert!(
            start.is_page_aligned() && end.is_page_aligned() && start <= end,
            "bad range {start:?}..{end:?}"
        );
        VaRange { start, end }
    }
    /// `len_pages` pages from `start` on.
    pub fn pages_from(start: Va, len_pages: usize) -> VaRange {
        VaRange::new(start, start + len_pages * PAGE_SIZE)
    }
    /// The one page at `va`.
    pub fn page(va: Va) -> VaRange {
        VaRange::pages_from(va.page(), 1)
    }
    /// First address.
    pub const fn start(&self) -> Va {
        self.start
    }
    /// First address behind the range.
    pub const fn end(&self) -> Va {
        self.end
    }
    /// Length in bytes.
    pub const fn len_bytes(&self) -> usize {
        (self.end.0 - self.start.0) as usize
    }
    /// Length in pages.
    pub const fn len_pages(&self) -> usize {
        self.len_bytes() >> PAGE_SHIFT
    }
    /// True when the range holds no page.
    pub const fn is_empty(&self) -> bool {
        self.start.0 == self.end.0
    }
    /// True when `va` lies within.
    pub const fn contains(&self, va: Va) -> bool {
        self.start.0 <= va.0 && va.0 < self.end.0
    }
    /// True when all of `other` lies within.
    pub const fn covers(&self, other: &VaRange) -> bool {
        self.start.0 <= other.start.0 && other.end.0 <= self.end.0
    }
    /// True when the two share a page.
    pub const fn overlaps(&self, other: &VaRange) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }
    /// What the two share.
    pub fn intersect(&self, other: &VaRange) -> Option<VaRange> {
        let (s, e) = (self.start.max(other.start), self.end.min(other.end));
        (s < e).then_some(VaRange { start: s, end: e })
    }
    /// The addresses of the pages, in order.
    pub fn pages(&self) -> impl DoubleEndedIterator<Item = Va> + Clone + use<> {
        let Range { start, end } = self.start.vpn()..self.end.vpn();
        (start..end).map(|vpn| Va(vpn << PAGE_SHIFT))
    }
}

impl fmt::Debug for Va {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va:{:#x}", self.0)
    }
}
impl fmt::Debug for Pa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pa:{:#x}", self.0)
    }
}
impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn:{:#x}", self.0)
    }
}
impl fmt::Debug for VaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.0, self.end.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_range() {
        let r = VaRange::pages_from(Va(0x3000), 2);
        assert_eq!(r.pages().collect::<alloc::vec::Vec<_>>(), [Va(0x3000), Va(0x4000)]);
        assert!(r.contains(Va(0x4fff)) && !r.contains(Va(0x5000)));
        assert_eq!(r.intersect(&VaRange::page(Va(0x4abc))), Some(VaRange::page(Va(0x4000))));
        assert_eq!(r.intersect(&VaRange::page(Va(0x5000))), None);
    }

    #[test]
    fn rounding_does_not_wrap() {
        assert_eq!(page_round(1), Some(4096));
        assert_eq!(page_round(u64::MAX), None);
        assert_eq!(Va(u64::MAX).checked_add(1), None);
    }
}
