//! What a program is told of this floor's errors.

use crate::{FsError, IoError};
use pageferry_abi::Errno;

impl From<IoError> for Errno {
    fn from(_: IoError) -> Errno {
        Errno::Io
    }
}

impl From<FsError> for Errno {
    fn from(e: FsError) -> Errno {
        match e {
            FsError::NotFound => Errno::NoFile,
            FsError::Exists => Errno::Exists,
            FsError::NotDirectory => Errno::NotDirectory,
            FsError::IsDirectory => Errno::IsDirectory,
            FsError::NotEmpty => Errno::NotEmpty,
            FsError::NameTooLong => Errno::NameTooLong,
            FsError::Invalid | FsError::TooManyLinks | FsError::Refused(_) => Errno::Invalid,
            FsError::Busy => Errno::Busy,
            FsError::NoSpace => Errno::NoSpace,
            FsError::TooLarge => Errno::TooLarge,
            FsError::Io(_) | FsError::Damaged(_) => Errno::Io,
        }
    }
}
