//! The list of what is half-written.

use super::place::Place;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something half-written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Pending {
    File(PathBuf),
    Folder(Place),
}

static PENDING: Mutex<BTreeSet<Pending>> = Mutex::new(BTreeSet::new());

/// The list of what is half-written; as long as it is held no interruption takes effect.
pub(super) fn pending() -> MutexGuard<'static, BTreeSet<Pending>> {
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
