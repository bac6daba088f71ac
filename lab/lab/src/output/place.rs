//! Where a folder of results is being made, and how that is taken back.

use std::fs;
use std::path::PathBuf;

/// The journal, in the folder of unfinished work.
pub(super) const JOURNAL: &str = "runs.jsonl";
/// The journal that is about to take its place.
pub(super) const NEW_JOURNAL: &str = "runs.jsonl.new";
/// In it: the new folder, the old one, and the lock of the process that works there.
pub(super) const NEW: &str = "new";
pub(super) const OLD: &str = "old";
pub(super) const LOCK: &str = "lock";

/// Where a folder of results is being made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    /// Where it is to appear.
    pub(super) target: PathBuf,
    /// The folder of unfinished work.
    pub(super) work: PathBuf,
    /// Folders above that did not exist, the innermost first.
    pub(super) made: Vec<PathBuf>,
}

impl Place {
    /// Takes back what was begun; true if finished runs are kept.
    pub(super) fn take_back(&self) -> bool {
        self.restore();
        let kept = fs::read(self.work.join(JOURNAL)).is_ok_and(|journal| journal.contains(&b'\n'));
        if kept {
            let _ = fs::remove_dir_all(self.work.join(NEW));
            let _ = fs::remove_file(self.work.join(LOCK));
        } else {
            let _ = fs::remove_dir_all(&self.work);
            for made in &self.made {
                // Only where it is empty.
                let _ = fs::remove_dir(made);
            }
        }
        kept
    }

    /// Puts the old folder back where a process was killed between the two renames; true if it was.
    pub(super) fn restore(&self) -> bool {
        let old = self.work.join(OLD);
        old.exists() && !self.target.exists() && fs::rename(old, &self.target).is_ok()
    }
}
