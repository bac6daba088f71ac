//! What a check finds: problems, how bad each is, and what would make it go away.

use crate::Ino;
use crate::inode::Kind;
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
    SetFragments(Ino, u32),
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
    /// Fragments of all of them.
    pub fragments: u32,
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
