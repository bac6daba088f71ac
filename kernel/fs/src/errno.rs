//! What a program is told of this floor's errors.

use crate::{FsError, IoError, IoFault};
use pageferry_abi::Errno;

impl From<IoError> for Errno {
    fn from(e: IoError) -> Errno {
        match e.why {
            IoFault::Disk => Errno::Io,
            IoFault::NoMemory => Errno::NoMemory,
            IoFault::Interrupted => Errno::Interrupted,
        }
    }
}

/// What a file system is told of its buffers' errors.
impl From<Errno> for IoFault {
    fn from(e: Errno) -> IoFault {
        match e {
            Errno::NoMemory => IoFault::NoMemory,
            Errno::Interrupted => IoFault::Interrupted,
            _ => IoFault::Disk,
        }
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
            FsError::Io(e) => e.into(),
            FsError::Damaged(_) => Errno::Io,
        }
    }
}
