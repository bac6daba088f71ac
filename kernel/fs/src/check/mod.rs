//! The checker: what is wrong with a volume that is not mounted, and making it whole (`fsck`).
//!
//! * `scan`: superblock, groups, inodes and their blocks. `tree`: directories, names, counts of names.
//! * `fix`: doing what a [`Problem`] asks for.
//!
//! The scan believes nothing: what it reads is tested before it is used, and every walk is bounded by the size of the
//! volume. It needs memory for a copy of the inodes and for a word a block.

mod fix;
mod scan;
mod tree;

pub use fix::repair;

use crate::Ino;
use crate::error::FsError;
use crate::inode::Kind;
use crate::layout::{Geometry, VERSION};
use crate::store::{SECTOR_BYTES, Store};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// How bad a problem is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Weight {
    /// What a power cut may leave: space that is lost, a map or a count to be made anew. No file is hurt.
    Leftover,
    /// What the order of writes prevents.
    Damage,
}

/// What would make a problem go away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fix {
    Superblock(u32),
    Header(u32),
    ClearInode(Ino),
    ClearPointer(u64),
    SetBlocks(Ino, u32),
    SetLinks(Ino, u16),
    /// The entry at a place in the chunk at a place.
    RemoveEntry(u64, usize),
    SetKind(u64, usize, Kind),
    SetParent(u64, usize, Ino),
    ResetChunk(u64, Ino, bool),
    Attach(Ino, Kind),
    Maps,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// How bad it is.
    pub weight: Weight,
    /// What it is, in words.
    pub text: String,
    pub(crate) fix: Fix,
}

/// What a check has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Whether the volume says that it was unmounted.
    pub unmounted: bool,
    /// Files.
    pub files: u32,
    /// Directories.
    pub directories: u32,
    /// Symbolic links.
    pub links: u32,
    /// Blocks of all of them.
    pub blocks: u32,
}

impl Report {
    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Something is wrong that no power cut explains.
    pub fn is_damaged(&self) -> bool {
        self.problems.iter().any(|problem| problem.weight == Weight::Damage)
    }

    pub(crate) fn add(&mut self, weight: Weight, fix: Fix, text: String) {
        self.problems.push(Problem { weight, text, fix });
    }
}

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

/// The geometry that a copy of the superblock tells, where the first one cannot be read.
fn from_a_copy(store: &mut dyn Store) -> Option<Geometry> {
    let mut block_bytes = SECTOR_BYTES as u32;
    while block_bytes <= 65536 {
        let likely = Geometry::new(crate::Format { block_bytes }, u64::MAX >> 32);
        let second = likely.map(|geometry| u64::from(geometry.group_blocks) * u64::from(block_bytes));
        if let Some((geometry, _)) = second.ok().and_then(|at| Geometry::read(store, at).ok()) {
            return Some(geometry);
        }
        block_bytes *= 2;
    }
    None
}

/// Why a volume whose superblock was refused is not to be repaired from a copy.
fn is_of_another_version(error: &FsError) -> bool {
    let this = format!("version {VERSION},");
    matches!(error, FsError::Refused(why) if why.starts_with("version") && !why.starts_with(&this))
}
