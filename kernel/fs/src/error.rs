//! What can go wrong: with the disk, with a call, with a volume.

use alloc::string::String;

/// Bytes of the disk could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at} of the disk cannot be read or written: {why}")]
pub struct IoError {
    /// The first byte of the transfer.
    pub at: u64,
    /// Who is to blame.
    pub why: IoFault,
}

impl IoError {
    /// The disk cannot, at this byte.
    pub const fn of_disk(at: u64) -> IoError {
        IoError { at, why: IoFault::Disk }
    }
}

/// What kept bytes from the disk, or kept them there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IoFault {
    /// The disk, which cannot, or ends before it.
    #[error("the disk fails")]
    Disk,
    /// There is no memory for a buffer. The disk has not been asked: the same may be done later.
    #[error("there is no memory for a buffer")]
    NoMemory,
    /// A signal, while it waited. The disk has not been asked.
    #[error("a signal came")]
    Interrupted,
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
