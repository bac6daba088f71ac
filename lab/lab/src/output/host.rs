//! What files and folders on the way to their targets ask of the host.

use crate::error::LabError;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// An error of writing to `target`, with what is wrong there.
pub(super) fn refused(target: &Path, kind: io::ErrorKind, problem: &str) -> LabError {
    LabError::io("write", target, io::Error::new(kind, problem.to_owned()))
}

/// Takes the lock of a file for this process; false if another one has it. Where files have no locks there is nothing
/// to take.
pub(super) fn lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(true),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// Gives `path` the permissions and the owner that `like` has.
pub(super) fn make_like(path: &Path, like: &std::fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let own = std::fs::metadata(path)?;
        let differs = |a: u32, b: u32| (a != b).then_some(b);
        let (user, group) = (differs(own.uid(), like.uid()), differs(own.gid(), like.gid()));
        if user.is_some() || group.is_some() {
            std::os::unix::fs::chown(path, user, group)
                .map_err(|e| io::Error::new(e.kind(), format!("its owner cannot be kept: {e}")))?;
        }
    }
    // Last, since a change of owner takes some of them away.
    std::fs::set_permissions(path, like.permissions())
}
