//! Files and folders that appear whole or not at all.
//!
//! A [`PendingFile`] is written under a temporary name beside its target, a [`PendingDir`] in a folder beside its
//! target; one rename makes either appear. Both belong to the process that began them, by a lock that ends with it, so
//! what a process that was killed has left is found and removed by the next.
//!
//! # Locks
//! All that is half-written is in one list. The list is locked while anything is begun, moved to its place or taken
//! back, and for good when the process [ends](end): an interruption finds the old result or the new one, and nothing is
//! begun behind it.

mod file;
mod folder;

pub use file::PendingFile;
pub use folder::{About, PendingDir};

use crate::error::LabError;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something half-written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Pending {
    File(PathBuf),
    Folder(folder::Place),
}

static PENDING: Mutex<BTreeSet<Pending>> = Mutex::new(BTreeSet::new());

/// The list of what is half-written; as long as it is held no interruption takes effect.
fn pending() -> MutexGuard<'static, BTreeSet<Pending>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes back all that is in `list`. Returns the folders in which finished runs are kept.
fn take_back(list: &mut BTreeSet<Pending>) -> Vec<PathBuf> {
    let one = |pending| match pending {
        Pending::File(path) => {
            let _ = std::fs::remove_file(path);
            None
        }
        Pending::Folder(place) => place.take_back().then_some(place.target),
    };
    std::mem::take(list).into_iter().filter_map(one).collect()
}

/// Takes back what is half-written, for a process that is about to end by itself.
pub fn remove_pending() {
    take_back(&mut pending());
}

/// Ends the process with `code`, for the handler of an interruption. A step that is under way is finished first, what
/// is half-written is taken back, and `tell` gets the folders beside which finished runs are kept.
pub fn end(code: i32, tell: impl FnOnce(&[PathBuf])) -> ! {
    // Held until the end: what else is to be begun waits for ever.
    let mut list = pending();
    tell(&take_back(&mut list));
    std::process::exit(code)
}

fn refused(target: &Path, kind: io::ErrorKind, problem: &str) -> LabError {
    LabError::io("write", target, io::Error::new(kind, problem.to_owned()))
}

/// Takes the lock of a file for this process; false if another one has it. Where files have no locks there is nothing
/// to take.
fn lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(true),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// Gives `path` the permissions and the owner that `like` has.
fn make_like(path: &Path, like: &std::fs::Metadata) -> io::Result<()> {
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
