//! Uploads that are kept on the host: each is written to a temporary file, which gets its name when it is whole.
//!
//! Directories on the way to it are made; those that an upload was made for that came to nothing go again.
//!
//! # What can fail
//! Writing; a link that leads out of the directory; another upload that is in the way.

use pageferry_lab::LabError;
use pageferry_lab::output::PendingFile;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where uploads are kept.
#[derive(Clone, Debug)]
pub(super) struct Keeper {
    root: PathBuf,
    /// Directories that were made for uploads.
    made: Rc<RefCell<BTreeSet<PathBuf>>>,
}

/// An upload on its way to the host.
pub(super) struct HostFile {
    pending: Option<PendingFile>,
    target: PathBuf,
    keeper: Keeper,
}

/// Why an upload is not kept.
#[derive(Debug)]
pub(super) enum KeepError {
    /// Another one is on its way to a path of which its own is a directory.
    InTheWay,
    Failed(LabError),
}

impl From<LabError> for KeepError {
    fn from(error: LabError) -> KeepError {
        KeepError::Failed(error)
    }
}

impl Keeper {
    /// Keeps uploads in `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// When nothing can be written to it.
    pub(super) fn new(directory: &Path) -> Result<Keeper, LabError> {
        let refuse = |e| LabError::io("write", directory, e);
        fs::create_dir_all(directory).map_err(refuse)?;
        let root = directory.canonicalize().map_err(refuse)?;
        PendingFile::check(&root.join("an upload")).map_err(|error| match error {
            LabError::Io { error, .. } => refuse(error),
            other => other,
        })?;
        Ok(Keeper { root, made: Rc::default() })
    }

    /// Begins the file for what is uploaded to `path`.
    ///
    /// # Errors
    /// [`KeepError`].
    pub(super) fn begin(&self, path: &[u8]) -> Result<HostFile, KeepError> {
        let target = self.root.join(OsStr::from_bytes(path));
        let refuse = |e| KeepError::Failed(LabError::io("write", &target, e));
        let parent = target.parent().unwrap_or(&self.root);
        let there = parent.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(&self.root);
        if !there.canonicalize().map_err(refuse)?.starts_with(&self.root) || target.is_symlink() {
            let outside = "a link leads out of the directory";
            return Err(refuse(io::Error::new(io::ErrorKind::PermissionDenied, outside)));
        }
        if self.made.borrow().contains(&target) {
            return Err(KeepError::InTheWay);
        }
        if target.exists() && !target.is_file() {
            return Err(refuse(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")));
        }
        let missing = parent.ancestors().take_while(|ancestor| !ancestor.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        let mut kept = HostFile { pending: None, target: target.clone(), keeper: self.clone() };
        for directory in missing.into_iter().rev() {
            fs::create_dir(&directory).map_err(refuse)?;
            self.made.borrow_mut().insert(directory);
        }
        kept.pending = Some(PendingFile::create(&target)?);
        Ok(kept)
    }
}

impl HostFile {
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), LabError> {
        let pending = self.pending.as_mut().expect("it was begun");
        pending.write_all(bytes).map_err(|e| LabError::io("write", &self.target, e))
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn commit(mut self) -> Result<(), LabError> {
        self.pending.take().expect("it was begun").commit()
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        // The temporary file first.
        self.pending = None;
        let mut made = self.keeper.made.borrow_mut();
        for directory in self.target.ancestors().skip(1) {
            if !made.contains(directory) || fs::remove_dir(directory).is_err() {
                return;
            }
            made.remove(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_that_comes_to_nothing_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let keeper = Keeper::new(&dir.path().join("new/kept")).expect("made");
        let kept = |path: &str| keeper.root.join(path);
        let mut one = keeper.begin(b"a/b/one").expect("begun");
        one.write(b"x").expect("written");
        let two = keeper.begin(b"a/two").expect("begun");
        assert!(matches!(keeper.begin(b"a"), Err(KeepError::InTheWay)));
        drop(one);
        assert!(!kept("a/b").exists() && kept("a").exists());
        drop(two);
        assert!(!kept("a").exists());
        let mut three = keeper.begin(b"a").expect("begun");
        three.write(b"three").and_then(|()| three.commit()).expect("written");
        assert_eq!(fs::read(kept("a")).expect("there"), b"three");
        assert!(matches!(keeper.begin(b"a/four"), Err(KeepError::Failed(_))));
        let mut five = keeper.begin(b"c/d/\xff").expect("begun");
        five.write(b"five").and_then(|()| five.commit()).expect("written");
        assert_eq!(fs::read_dir(kept("c/d")).expect("there").count(), 1);
    }
}
