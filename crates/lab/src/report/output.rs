//! Files that are written whole or not at all.
//!
//! Everything goes to a temporary name in the same directory first and is renamed when it is complete. What is not
//! renamed is removed: when dropped, and, through [`remove_pending`], when the program is interrupted.

use crate::error::LabError;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Temporary files and directories that exist now.
static PENDING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn pending<R>(change: impl FnOnce(&mut BTreeSet<PathBuf>) -> R) -> R {
    change(&mut PENDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Removes what is half-written. For the handler of an interruption; the program ends after it.
pub fn remove_pending() {
    for path in pending(std::mem::take) {
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

/// A name beside `target` that is this process's own.
fn temporary(target: &Path) -> Result<PathBuf, LabError> {
    let name = target.file_name().ok_or_else(|| {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "it names no file or directory");
        LabError::io("write", target, error)
    })?;
    let name = format!(".{}.{}.partial", name.to_string_lossy(), std::process::id());
    Ok(target.with_file_name(name))
}

/// A file on its way to `target`.
#[derive(Debug)]
pub struct PendingFile {
    target: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
}

impl PendingFile {
    /// Begins a file that will replace `target`.
    ///
    /// # Errors
    /// When `target` is a directory, or its directory cannot be written.
    pub fn create(target: &Path) -> Result<PendingFile, LabError> {
        if target.is_dir() {
            let error = io::Error::new(io::ErrorKind::IsADirectory, "it is a directory");
            return Err(LabError::io("write", target, error));
        }
        // A link is followed, and a device or a named pipe written as it is: replacing it would not be what was meant.
        let target = &fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let special = target.exists() && !target.is_file();
        let temporary = if special { target.to_owned() } else { temporary(target)? };
        let file = File::create(&temporary).map_err(|e| LabError::io("write", target, e))?;
        if special {
            return Ok(PendingFile {
                target: target.to_owned(),
                temporary,
                file: Some(BufWriter::new(file)),
            });
        }
        pending(|set| set.insert(temporary.clone()));
        Ok(PendingFile { target: target.to_owned(), temporary, file: Some(BufWriter::new(file)) })
    }

    fn is_special(&self) -> bool {
        self.temporary == self.target
    }

    /// Makes the file appear under its own name.
    ///
    /// # Errors
    /// When the rest cannot be written; then nothing appears.
    pub fn commit(mut self) -> Result<(), LabError> {
        let mut file = self.file.take().expect("it is taken only here");
        let renamed = |()| if self.is_special() { Ok(()) } else { fs::rename(&self.temporary, &self.target) };
        let done = file.flush().and_then(renamed);
        drop(file);
        done.map_err(|e| LabError::io("write", &self.target, e))
    }
}

impl Write for PendingFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.as_mut().expect("not committed").write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().expect("not committed").flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if self.is_special() {
            return;
        }
        // After a commit there is nothing under this name any more.
        let _ = fs::remove_file(&self.temporary);
        pending(|set| set.remove(&self.temporary));
    }
}

/// A directory on its way to `target`.
#[derive(Debug)]
pub struct PendingDir {
    target: PathBuf,
    temporary: PathBuf,
}

impl PendingDir {
    /// Begins a set of files that will appear in `target`, which need not exist.
    ///
    /// # Errors
    /// When `target` is a file, or its parent cannot be written.
    pub fn create(target: &Path) -> Result<PendingDir, LabError> {
        if target.exists() && !target.is_dir() {
            let error = io::Error::new(io::ErrorKind::NotADirectory, "it is a file, expected a directory");
            return Err(LabError::io("write", target, error));
        }
        let refuse = |e| LabError::io("write", target, e);
        // Inside `target` where it exists: then only its own permissions matter.
        let temporary = if target.is_dir() { temporary(&target.join("report"))? } else { temporary(target)? };
        fs::create_dir(&temporary).map_err(refuse)?;
        pending(|set| set.insert(temporary.clone()));
        Ok(PendingDir { target: target.to_owned(), temporary })
    }

    /// Writes one file; `name` may lie in a subdirectory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), LabError> {
        let path = self.temporary.join(name);
        let parent = path.parent().expect("the name lies in the directory");
        let done = fs::create_dir_all(parent).and_then(|()| fs::write(&path, contents));
        done.map_err(|e| LabError::io("write", self.target.join(name), e))
    }

    /// Makes the files appear in the directory, replacing those of the same names and leaving others alone.
    ///
    /// # Errors
    /// When one cannot be moved there.
    pub fn commit(self) -> Result<(), LabError> {
        let refuse = |e| LabError::io("write", &self.target, e);
        if !self.target.exists() {
            return fs::rename(&self.temporary, &self.target).map_err(refuse);
        }
        merge(&self.temporary, &self.target).map_err(refuse)
    }
}

/// Moves everything in `from` to `to`.
fn merge(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            merge(&entry.path(), &target)?;
        } else {
            fs::rename(entry.path(), &target)?;
        }
    }
    Ok(())
}

impl Drop for PendingDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.temporary);
        pending(|set| set.remove(&self.temporary));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .expect("readable")
            .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("x");
        fs::write(&target, "old").expect("written");
        let mut file = PendingFile::create(&target).expect("begun");
        file.write_all(b"new").expect("written");
        drop(file);
        assert_eq!(fs::read_to_string(&target).expect("there"), "old");
        let mut file = PendingFile::create(&target).expect("begun");
        file.write_all(b"new").expect("written");
        file.commit().expect("committed");
        assert_eq!(fs::read_to_string(&target).expect("there"), "new");
        assert_eq!(entries(dir.path()), ["x"]);
    }

    #[test]
    fn a_directory_keeps_what_it_does_not_replace() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("out");
        for round in ["first", "second"] {
            let out = PendingDir::create(&target).expect("begun");
            out.write("a", round.as_bytes()).expect("written");
            out.write(&format!("sub/{round}"), b"x").expect("written");
            out.commit().expect("committed");
        }
        assert_eq!(entries(&target), ["a", "sub"]);
        assert_eq!(entries(&target.join("sub")), ["first", "second"]);
        assert_eq!(fs::read_to_string(target.join("a")).expect("there"), "second");
        drop(PendingDir::create(&target).expect("begun"));
        assert_eq!(entries(&target), ["a", "sub"]);
        assert_eq!(entries(dir.path()), ["out"]);
    }

    #[test]
    fn impossible_targets_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        fs::write(&file, "x").expect("written");
        assert!(PendingFile::create(dir.path()).is_err());
        assert!(PendingFile::create(&file.join("below")).is_err());
        assert!(PendingDir::create(&file).is_err());
        assert!(PendingDir::create(&dir.path().join("no/such")).is_err());
        assert_eq!(entries(dir.path()), ["file"]);
    }
}
