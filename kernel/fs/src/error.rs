//! What can go wrong: with the disk, with a call, with a volume.

use alloc::string::String;

/// The disk could not read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at} of the disk cannot be read or written")]
pub struct IoError {
    /// The first byte of the transfer.
    pub at: u64,
}

/// Why a call on a volume failed. Nothing of what it was to do is done, but for a write that found the volume full.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FsError {
    /// The disk.
    #[error("{0}")]
    Io(#[from] IoError),
    /// There is no such name.
    #[error("no such file or directory")]
    NotFound,
    /// The name is there.
    #[error("the file exists")]
    Exists,
    /// What should be a directory is none.
    #[error("not a directory")]
    NotDirectory,
    /// What should be a file is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// A directory that has entries cannot go.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name is longer than 255 bytes.
    #[error("the name is too long")]
    NameTooLong,
    /// An argument makes no sense.
    #[error("invalid argument")]
    Invalid,
    /// It is in use, or the root.
    #[error("busy")]
    Busy,
    /// No blocks or no inodes are left.
    #[error("no space is left on the volume")]
    NoSpace,
    /// A file cannot be so long.
    #[error("the file would be too large")]
    TooLarge,
    /// An inode cannot have more names.
    #[error("too many links")]
    TooManyLinks,
    /// This is no volume, or none of this version, or it ends early.
    #[error("not a volume that can be used: {0}")]
    Refused(String),
    /// Something on the disk is not what it must be.
    #[error("the volume is damaged: {0}")]
    Damaged(String),
}
