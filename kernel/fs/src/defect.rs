//! Defects to plant, to prove that the checks find them.

use pageferry_defects::defects;

defects! {
    /// What can be wrong with a volume.
    pub enum FsDefect {
        NameBeforeInode: "A name is written before the inode that it is of.",
        FreedBeforeCleared: "Blocks are free as soon as a file is cut, before its inode on the disk lets go of them.",
        IndirectNotCleared: "A new indirect block keeps what was in the block before.",
        IndirectWrittenLater: "A new indirect block is written later than the pointer to it.",
        ReplacedKept: "A file that a rename replaces keeps its inode.",
        OldNameFirst: "A rename takes the old name away first.",
        OpenFileFreed: "A file that is open goes with its last name.",
        TailNotCleared: "What was behind a cut is there again when the file grows.",
        EntryOverlaps: "A new name takes the whole room of the entry before it.",
        ParentKept: "A directory that moves keeps its parent.",
        SyncForgetsIndirect: "`fsync` forgets the blocks behind indirect ones.",
        BlocksNotFreed: "The free map of blocks is not told of blocks that are given back.",
        FreshNotCleared: "A block that a file gets for a part of its bytes keeps what it had in the rest.",
        PathWrittenLater: "The path of a symbolic link is written later than the inode that points to it.",
        VacatedReused: "What a growing file has moved from is free while its inode on the disk still points there.",
        WidenedNotCleared: "The fragments that a file's last block gets where it is keep what they had.",
        MovedWithoutBytes: "The last block of a file that grows moves without its bytes.",
        TailKeepsFragments: "A file that is cut within a block keeps the fragments behind its end.",
        NameBeforeItsInode: "Soft updates: a name does not wait for the inode that it is of.",
        ContentsForgotten: "Soft updates: pointers do not wait for the contents of a new block.",
        ReusedEarly: "Soft updates: blocks and inodes are free before what points to them is gone on the disk.",
        NameGoneFirst: "Soft updates: the old name of a rename goes without waiting for the new one.",
        CountBeforeName: "Soft updates: a count of names does not wait for the names.",
        FullDirectoryGone: "Soft updates: a directory goes without waiting for what is moved out of it.",
        NameTwice: "Soft updates: a name does not wait for the end of the same name before it.",
        MovesCross: "Soft updates: a directory that moves does not wait for the one that moved before.",
        UndoForgotten: "Soft updates: what must wait is not rolled back when its sector is written.",
        RedoForgotten: "Soft updates: what was rolled back for a write is not done again.",
        SyncForgetsName: "Soft updates: `fsync` leaves the names of the file to wait.",
    }
    /// It shows only with soft updates.
    needs_soft_updates: [
        NameBeforeItsInode, ContentsForgotten, ReusedEarly, NameGoneFirst, CountBeforeName, FullDirectoryGone,
        NameTwice, MovesCross, UndoForgotten, RedoForgotten, SyncForgetsName,
    ];
}
