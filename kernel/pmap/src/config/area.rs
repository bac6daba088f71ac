//! The communication area, for a kernel that has one.

use crate::defect::AreaDefect;
use pageferry_defects::Planted;
use pageferry_hal::paths;

paths! {
    /// Path lengths of attaching and detaching. Accesses to page tables are accounted by themselves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AreaPaths {
        /// Writing one reserved entry: its number, address, frame and rights into registers.
        pub wire: CodePath,
        /// Clearing one reserved entry, besides the access to the TLB's array.
        pub unwire: CodePath,
        /// Writing or clearing one page-table entry of the area.
        pub table: CodePath,
        /// In a refill, where entries are reserved: testing whether the address lies in the area.
        pub bounds: CodePath,
    }
}

/// The communication area of a kernel that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaConfig {
    /// Its size, in whole pages.
    pub len_bytes: usize,
    /// Entries of the TLB that are reserved for it: the first ones. (Those of the area's have the low numbers in
    /// Yamauchi et al., 2.3. An SH-4's counter starts anew at MMUCR.URB, so that its hardware reserves the high ones:
    /// where an entry lies changes nothing.)
    pub reserved: usize,
    /// A page-table entry's detachment looks through the TLB by software, at all entries one after the other, where
    /// software can read it.
    pub searches: bool,
    /// Path lengths.
    pub paths: AreaPaths,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<AreaDefect>,
}

impl AreaConfig {
    /// The area is aligned as the largest page is that may map it.
    pub const LARGEST_PAGE: usize = 1 << 20;
}

/// What a reserved entry maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaPage {
    /// Where in the area it begins.
    pub offset_bytes: usize,
    /// log2 of the bytes that it maps.
    pub shift: u8,
}
