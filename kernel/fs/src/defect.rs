//! Defects to plant, to prove that the checks find them.

/// A defect of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Defect {
    /// A sound file system.
    #[default]
    None,
    /// A name is written before the inode that it is of.
    NameBeforeInode,
    /// Blocks are free as soon as a file is cut, before its inode on the disk lets go of them.
    FreedBeforeCleared,
    /// A new indirect block keeps what was in the block before.
    IndirectNotCleared,
    /// A new indirect block is written later than the pointer to it.
    IndirectWrittenLater,
    /// A file that a rename replaces keeps its inode.
    ReplacedKept,
    /// A rename takes the old name away first.
    OldNameFirst,
    /// A file that is open goes with its last name.
    OpenFileFreed,
    /// What was behind a cut is there again when the file grows.
    TailNotCleared,
    /// A new name takes the whole room of the entry before it.
    EntryOverlaps,
    /// A directory that moves keeps its parent.
    ParentKept,
    /// `fsync` forgets the blocks behind indirect ones.
    SyncForgetsIndirect,
    /// The free map of blocks is not told of blocks that are given back.
    BlocksNotFreed,
    /// A block that a file gets for a part of its bytes keeps what it had in the rest.
    FreshNotCleared,
    /// The path of a symbolic link is written later than the inode that points to it.
    PathWrittenLater,
}

impl Defect {
    /// All of them.
    pub const ALL: &[Defect] = &[
        Defect::NameBeforeInode,
        Defect::FreedBeforeCleared,
        Defect::IndirectNotCleared,
        Defect::IndirectWrittenLater,
        Defect::ReplacedKept,
        Defect::OldNameFirst,
        Defect::OpenFileFreed,
        Defect::TailNotCleared,
        Defect::EntryOverlaps,
        Defect::ParentKept,
        Defect::SyncForgetsIndirect,
        Defect::BlocksNotFreed,
        Defect::FreshNotCleared,
        Defect::PathWrittenLater,
    ];
}
