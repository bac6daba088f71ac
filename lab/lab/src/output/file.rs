//! One file that appears whole or not at all.
//!
//! A file that is there keeps its permissions and its owner; a link is followed to what it leads to; a device or a
//! named pipe is written as it is, since there is nothing to be replaced.

use super::host::{lock, make_like, refused};
use super::pending::{Pending, pending};
use crate::error::LabError;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Temporary names begin and end so. They are short: a target's own name may be as long as names can be.
const PREFIX: &str = ".pageferry-";
const SUFFIX: &str = ".partial";

/// A file on its way to its target.
#[derive(Debug)]
pub struct PendingFile {
    /// As it was named, for errors.
    named: PathBuf,
    /// Where it goes and the temporary name, unless it is written in place.
    way: Option<(PathBuf, PathBuf)>,
    file: Option<BufWriter<File>>,
}

impl PendingFile {
    /// Begins a file that will replace `target`.
    ///
    /// # Errors
    /// When `target` is a directory, read-only or a link that leads nowhere, or its directory cannot be written.
    pub fn create(target: &Path) -> Result<PendingFile, LabError> {
        let refuse = |e| LabError::io("write", target, e);
        let (place, like) = match fs::metadata(target) {
            Ok(meta) if meta.is_dir() => {
                return Err(refused(target, io::ErrorKind::IsADirectory, "it is a directory"));
            }
            Ok(meta) if !meta.is_file() => {
                let file = OpenOptions::new().write(true).open(target).map_err(refuse)?;
                return Ok(PendingFile {
                    named: target.to_owned(),
                    way: None,
                    file: Some(BufWriter::new(file)),
                });
            }
            Ok(meta) => {
                // Asked apart: a file that is read-only is so for the superuser, too.
                if meta.permissions().readonly() {
                    return Err(refused(target, io::ErrorKind::PermissionDenied, "it is read-only"));
                }
                OpenOptions::new().write(true).open(target).map_err(refuse)?;
                (fs::canonicalize(target).map_err(refuse)?, Some(meta))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(target).is_ok() => {
                let problem = "it is a symbolic link that leads nowhere; remove it, or name another file";
                return Err(refused(target, io::ErrorKind::NotFound, problem));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => (target.to_owned(), None),
            Err(e) => return Err(refuse(e)),
        };
        if place.file_name().is_none() {
            return Err(refused(target, io::ErrorKind::InvalidInput, "it names no file"));
        }
        let mut list = pending();
        let (temporary, file) = begin(&place).map_err(refuse)?;
        list.insert(Pending::File(temporary.clone()));
        drop(list);
        let pending = PendingFile {
            named: target.to_owned(),
            way: Some((place, temporary.clone())),
            file: Some(BufWriter::new(file)),
        };
        like.map_or(Ok(()), |like| make_like(&temporary, &like)).map_err(refuse)?;
        Ok(pending)
    }

    /// Says before the work whether `target` can be written; nothing is left there.
    ///
    /// # Errors
    /// As [`PendingFile::create`].
    pub fn check(target: &Path) -> Result<(), LabError> {
        PendingFile::create(target).map(drop)
    }

    /// Makes the file appear under its own name.
    ///
    /// # Errors
    /// When the rest cannot be written; then nothing appears.
    pub fn commit(mut self) -> Result<(), LabError> {
        let mut file = self.file.take().expect("it is taken only here");
        let flushed = file.flush();
        let mut list = pending();
        let renamed = flushed.and_then(|()| match &self.way {
            Some((place, temporary)) => {
                fs::rename(temporary, place)?;
                list.remove(&Pending::File(temporary.clone()));
                Ok(())
            }
            None => Ok(()),
        });
        drop(list);
        renamed.map_err(|e| LabError::io("write", &self.named, e))
    }
}

/// Opens a file of this process beside `place`; removes those of processes that are gone.
fn begin(place: &Path) -> io::Result<(PathBuf, File)> {
    let folder = place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if is_temporary(&name) && File::open(entry.path()).is_ok_and(|f| f.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    for n in 0.. {
        let temporary = folder.join(format!("{PREFIX}{}-{n}{SUFFIX}", std::process::id()));
        let file = match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            file => file?,
        };
        // Another process may just have taken it for a file without owner.
        if lock(&file)? && temporary.exists() {
            return Ok((temporary, file));
        }
    }
    unreachable!("there are numbers enough")
}

fn is_temporary(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
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
        let Some((_, temporary)) = &self.way else { return };
        let mut list = pending();
        if list.remove(&Pending::File(temporary.clone())) {
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::tests::entries;
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    fn write(target: &Path, text: &str) -> Result<(), LabError> {
        let mut file = PendingFile::create(target)?;
        file.write_all(text.as_bytes()).expect("written");
        file.commit()
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
        write(&target, "new").expect("committed");
        assert_eq!(fs::read_to_string(&target).expect("there"), "new");
        assert_eq!(entries(dir.path()), ["x"]);
    }

    #[test]
    fn impossible_targets_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        fs::write(&file, "x").expect("written");
        assert!(PendingFile::create(dir.path()).is_err());
        assert!(PendingFile::create(&file.join("below")).is_err());
        assert!(PendingFile::check(&dir.path().join("x".repeat(256))).is_err());
        assert_eq!(entries(dir.path()), ["file"]);
    }

    #[test]
    fn a_file_keeps_its_mode_and_its_owner() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("x");
        fs::write(&target, "old").expect("written");
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("mine");
        // Only the superuser can give files away.
        let given = std::os::unix::fs::chown(&target, Some(12), Some(34)).is_ok();
        write(&target, "new").expect("committed");
        let meta = fs::metadata(&target).expect("there");
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert!(!given || (meta.uid(), meta.gid()) == (12, 34));
        fs::set_permissions(&target, fs::Permissions::from_mode(0o440)).expect("mine");
        let e = write(&target, "newer").expect_err("refused").to_string();
        assert!(e.ends_with("x: it is read-only"), "{e}");
        assert_eq!(fs::read_to_string(&target).expect("there"), "new");
        assert_eq!(entries(dir.path()), ["x"]);
    }

    #[test]
    fn links_are_followed_or_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        std::os::unix::fs::symlink("target", &link).expect("made");
        let e = write(&link, "new").expect_err("refused").to_string();
        assert!(e.contains("a symbolic link that leads nowhere"), "{e}");
        assert_eq!(entries(dir.path()), ["link"]);
        fs::write(&target, "old").expect("written");
        write(&link, "new").expect("committed");
        assert_eq!(fs::read_to_string(&target).expect("there"), "new");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    }

    #[test]
    fn names_may_be_long_and_what_is_left_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let long = "x".repeat(255);
        fs::write(dir.path().join(format!("{PREFIX}1-0{SUFFIX}")), "of a process that is gone")
            .expect("written");
        write(&dir.path().join(&long), "new").expect("committed");
        write(&dir.path().join(&long), "newer").expect("committed");
        assert_eq!(entries(dir.path()), [long]);
    }
}
