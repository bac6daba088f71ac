//! The checker: what is wrong with a volume that is not mounted, and making it whole (`fsck`).
//!
//! * `report`: what a check finds.
//! * `scan`: superblock, groups, inodes and their blocks. `tree`: directories, names, counts of names.
//! * `fix`: doing what a [`Problem`] asks for.
//!
//! The scan believes nothing: what it reads is tested before it is used, and every walk is bounded by the size of the
//! volume. It needs memory for a copy of the inodes and for a word a block.

mod fix;
mod report;
mod scan;
mod tree;

pub use fix::repair;
pub use report::{Problem, Report, Weight};

use crate::error::FsError;
use crate::layout::Geometry;
use crate::store::Store;

/// Finds what is wrong with a volume that is not mounted. Changes nothing.
///
/// # Errors
/// [`FsError::Refused`]: it has no superblock to begin with. The disk.
pub fn check(store: &mut dyn Store) -> Result<Report, FsError> {
    let (geometry, unmounted) = Geometry::read(store, 0)?;
    let mut scan = scan::Scan::new(geometry);
    scan.report.unmounted = unmounted;
    scan.run(store)?;
    Ok(scan.report)
}
