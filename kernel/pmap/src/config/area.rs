//! The communication area, for a kernel that has one.

use crate::defect::AreaDefect;
use pageferry_defects::Planted;
use pageferry_hal::paths;

paths! {
    /// Path lengths of attaching and detaching. Accesses to page tables are accounted by themselves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AreaPaths {
        /// Writing one reserved entry: its number, address, frame and rights into registers.
        pub wire: Path,
        /// Clearing one reserved entry, besides the access to the TLB's array.
        pub unwire: Path,
        /// Writing or clearing one page-table entry of the area.
        pub table: Path,
    }
}

/// The communication area of a kernel that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaConfig {
    /// Its size, in whole pages.
    pub len_bytes: usize,
    /// Entries of the TLB that are reserved for it: the first ones.
    pub reserved: usize,
    /// A page-table entry's detachment looks through the TLB by software, one entry after the other, where software can
    /// read it.
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
