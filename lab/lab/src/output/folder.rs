//! A folder of results that appears whole or not at all.
//!
//! Beside the target `out` lies `out.unfinished` while the work goes on: it belongs to one process, and holds the
//! journal of finished runs and the new folder, which takes the place of the old one by one rename. When the process
//! ends early, the journal stays if there is a run in it; all else goes. Of a process that ends well, the runs in the
//! journal stay that it had no use for.
//!
//! Results go only into a folder that is new, empty, or has a *marker*, the file `.pageferry.json`: it says what the
//! results are of and which files are ours. Other files in the folder are the user's and come along.

use super::host::{lock, make_like, refused};
use super::pending::{Pending, pending};
use super::place::{JOURNAL, LOCK, NEW, NEW_JOURNAL, OLD, Place};
use crate::error::LabError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const MARKER: &str = ".pageferry.json";
/// The longest name of a file (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// What a folder of results says of itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// All runs of all experiments, in full.
    pub full: bool,
    /// Of quick runs.
    pub quick: bool,
    /// What each run took on this host in milliseconds, by its title: the next time is estimated by it.
    #[serde(default)]
    pub wall_ms: BTreeMap<String, f64>,
}

/// The marker's contents.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    about: About,
    /// The files that are ours, by their paths in the folder.
    files: BTreeSet<PathBuf>,
}

/// A folder on its way to its target.
#[derive(Debug)]
pub struct PendingDir {
    place: Place,
    /// What the results are of. Complete by the time of [`PendingDir::commit`].
    pub about: About,
    /// The journal of the runs that are kept behind [`PendingDir::commit`], if there are any.
    pub rest: Vec<u8>,
    /// The marker of the folder that is there.
    old: Option<Marker>,
    /// Held until this is dropped.
    _lock: File,
}

impl PendingDir {
    /// Begins a set of files that will appear in `target`, which need not exist.
    ///
    /// # Errors
    /// As [`PendingDir::begin`].
    pub fn create(target: &Path) -> Result<PendingDir, LabError> {
        PendingDir::begin(target, About::default(), false)
    }

    /// As [`PendingDir::create`], with what the results are of. Those of a full run are replaced by others only if
    /// `force` says so.
    ///
    /// # Errors
    /// When `target` is a file, a folder that is not ours, the results of a full run, or being written by another
    /// process; or its parent cannot be written.
    pub fn begin(target: &Path, about: About, force: bool) -> Result<PendingDir, LabError> {
        let refuse = |e| LabError::io("write", target, e);
        let target_path = resolve(target)?;
        let may_replace = |old: Option<Marker>| {
            if !force && !about.full && old.as_ref().is_some_and(|old| old.about.full) {
                let problem = "it holds the results of a full run, and these are of less; name another folder with \
                               --out, or replace them with --force";
                return Err(refused(target, io::ErrorKind::AlreadyExists, problem));
            }
            Ok(old)
        };
        let old = look(target, &target_path).and_then(may_replace)?;
        let mut list = pending();
        let made = make_parents(&target_path).map_err(refuse)?;
        let place = Place { work: beside(&target_path), target: target_path, made };
        let lock = match own(&place.work) {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                let problem = "another process writes its results there";
                return Err(refused(target, io::ErrorKind::ResourceBusy, problem));
            }
            Err(e) => {
                place.take_back();
                return Err(LabError::io("write", &place.work, e));
            }
        };
        list.insert(Pending::Folder(place.clone()));
        let restored = place.restore();
        // Still under the lock: a signal that took all of this back in between would leave what is made after it.
        let new = place.work.join(NEW);
        let cleared = if new.exists() { fs::remove_dir_all(&new) } else { Ok(()) };
        let begun = cleared.and_then(|()| fs::create_dir(&new));
        drop(list);
        let mut dir = PendingDir { place, about: about.clone(), rest: Vec::new(), old, _lock: lock };
        begun.map_err(refuse)?;
        if restored {
            dir.old = look(target, &dir.place.target).and_then(may_replace)?;
        }
        Ok(dir)
    }

    /// Where the journal of finished runs is kept until the results appear.
    pub fn journal(&self) -> PathBuf {
        self.place.work.join(JOURNAL)
    }

    /// What is in the folder now, if results are.
    pub fn before(&self) -> Option<&About> {
        self.old.as_ref().map(|old| &old.about)
    }

    /// Writes one file; `name` may lie in a subdirectory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), LabError> {
        let path = self.place.work.join(NEW).join(name);
        let parent = path.parent().expect("the name lies in the directory");
        let _held = pending();
        let done = fs::create_dir_all(parent).and_then(|()| fs::write(&path, contents));
        done.map_err(|e| LabError::io("write", self.place.target.join(name), e))
    }

    /// Makes the folder appear in place of the one that is there, whose other files come along.
    ///
    /// # Errors
    /// When it cannot; then the old one stays.
    pub fn commit(self) -> Result<(), LabError> {
        let Place { target, work, .. } = &self.place;
        let mut list = pending();
        let done = self.finish(&work.join(NEW)).and_then(|()| appear(work, target));
        if done.is_ok() {
            list.remove(&Pending::Folder(self.place.clone()));
            if self.rest.is_empty() {
                // First what would be gone on with.
                let _ = fs::remove_file(work.join(JOURNAL));
                let _ = fs::remove_dir_all(work);
            } else {
                // Where that fails there are more than need be.
                let rest = work.join(NEW_JOURNAL);
                let _ = fs::write(&rest, &self.rest).and_then(|()| fs::rename(&rest, work.join(JOURNAL)));
                let _ = fs::remove_file(rest);
                for folder in [NEW, OLD] {
                    let _ = fs::remove_dir_all(work.join(folder));
                }
                let _ = fs::remove_file(work.join(LOCK));
            }
        }
        drop(list);
        done.map_err(|e| LabError::io("write", target, e))
    }

    /// Adds the marker, and what is the user's.
    fn finish(&self, new: &Path) -> io::Result<()> {
        let mut files = BTreeSet::new();
        each_file(new, Path::new(""), &mut |path| {
            files.insert(path.to_owned());
            Ok(())
        })?;
        let marker = Marker { about: self.about.clone(), files };
        let mut text = serde_json::to_string_pretty(&marker)?;
        text.push('\n');
        fs::write(new.join(MARKER), text)?;
        let target = &self.place.target;
        let Ok(meta) = fs::metadata(target) else { return Ok(()) };
        let ours = |path: &Path| {
            path == Path::new(MARKER)
                || marker.files.contains(path)
                || self.old.as_ref().is_some_and(|old| old.files.contains(path))
        };
        each_file(target, Path::new(""), &mut |path| {
            if ours(path) {
                return Ok(());
            }
            let (from, to) = (target.join(path), new.join(path));
            fs::create_dir_all(to.parent().expect("it lies in the folder"))?;
            if from.is_dir() && !from.is_symlink() { fs::create_dir_all(to) } else { fs::hard_link(from, to) }
        })?;
        make_like(new, &meta)
    }
}

impl Drop for PendingDir {
    fn drop(&mut self) {
        let mut list = pending();
        if list.remove(&Pending::Folder(self.place.clone())) {
            self.place.take_back();
        }
    }
}

/// The path that `target` leads to, with the folders above it.
fn resolve(target: &Path) -> Result<PathBuf, LabError> {
    let refuse = |e| LabError::io("write", target, e);
    match fs::metadata(target) {
        Ok(meta) if !meta.is_dir() => {
            Err(refused(target, io::ErrorKind::NotADirectory, "it is a file, expected a directory"))
        }
        Ok(_) => fs::canonicalize(target).map_err(refuse),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(refuse(e)),
        Err(_) if fs::symlink_metadata(target).is_ok() => {
            Err(refused(target, io::ErrorKind::NotFound, "it is a symbolic link that leads nowhere"))
        }
        Err(_) if target.file_name().is_none() => {
            Err(refused(target, io::ErrorKind::InvalidInput, "it names no directory"))
        }
        Err(_) => std::path::absolute(target).map_err(refuse),
    }
}

/// The marker of `path`, called `target`, if it is a folder of results; nothing if it is new or empty.
fn look(target: &Path, path: &Path) -> Result<Option<Marker>, LabError> {
    let refuse = |e| LabError::io("write", target, e);
    let Ok(meta) = fs::metadata(path) else { return Ok(None) };
    let marker = match fs::read(path.join(MARKER)) {
        Ok(text) => Some(serde_json::from_slice(&text).map_err(|e| {
            let problem = format!("its {MARKER} is not one of pageferry: {e}");
            refused(target, io::ErrorKind::InvalidData, &problem)
        })?),
        Err(_) => None,
    };
    if marker.is_none() && fs::read_dir(path).map_err(refuse)?.next().is_some() {
        let problem = "it is not empty, and its files are not results of pageferry; name a folder that is new or empty \
                       with --out";
        return Err(refused(target, io::ErrorKind::DirectoryNotEmpty, problem));
    }
    if std::env::current_dir().is_ok_and(|here| here.starts_with(path)) {
        let problem = "it is the current directory, which cannot be replaced; name a folder in it";
        return Err(refused(target, io::ErrorKind::ResourceBusy, problem));
    }
    if !same_device(&meta, path) {
        let problem = "it is a mount point, which cannot be replaced; name a folder in it";
        return Err(refused(target, io::ErrorKind::ResourceBusy, problem));
    }
    Ok(marker)
}

/// True when `path`, a folder with `meta`, lies on the device that its parent lies on.
fn same_device(meta: &fs::Metadata, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let parent = path.parent().map(fs::metadata);
    parent.is_some_and(|parent| parent.is_ok_and(|parent| parent.dev() == meta.dev()))
}

/// Makes the folders above `target`; returns those that were not there, the innermost first.
fn make_parents(target: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<PathBuf> =
        target.ancestors().skip(1).take_while(|path| !path.exists()).map(Path::to_owned).collect();
    let made = target.parent().map_or(Ok(()), fs::create_dir_all);
    made.map(|()| missing.clone()).inspect_err(|_| {
        for path in &missing {
            let _ = fs::remove_dir(path);
        }
    })
}

/// The folder of unfinished work beside `target`.
fn beside(target: &Path) -> PathBuf {
    let mut name = target.file_name().expect("it was resolved").to_owned();
    if name.len() + ".unfinished".len() > MAX_NAME_BYTES {
        let hash = Sha256::digest(name.as_encoded_bytes());
        name = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
    }
    name.push(".unfinished");
    target.with_file_name(name)
}

/// Makes `work` this process's own, or answers nothing where it is another's.
fn own(work: &Path) -> io::Result<Option<File>> {
    loop {
        fs::create_dir_all(work)?;
        let path = work.join(LOCK);
        let file = match File::options().create(true).truncate(false).write(true).open(&path) {
            // The process that owned it has just ended.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        if !lock(&file)? {
            return Ok(None);
        }
        if path.exists() {
            return Ok(Some(file));
        }
    }
}

/// Puts the new folder in the place of the old one.
fn appear(work: &Path, target: &Path) -> io::Result<()> {
    let new = work.join(NEW);
    if !target.exists() {
        return fs::rename(new, target);
    }
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, &new, CWD, target, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            done => return Ok(done?),
        }
    }
    // Where file systems do not exchange names: an interruption waits, and what a kill leaves is put back the next
    // time.
    let old = work.join(OLD);
    fs::rename(target, &old)?;
    fs::rename(new, target).inspect_err(|_| {
        let _ = fs::rename(&old, target);
    })
}

/// Calls `each` with the path of every file and every empty folder in `folder`, relative to it.
fn each_file(folder: &Path, below: &Path, each: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() && fs::read_dir(entry.path())?.next().is_some() {
            each_file(folder, &path, each)?;
        } else {
            each(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn entries(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .expect("readable")
            .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn refusal(target: &Path) -> String {
        PendingDir::create(target).expect_err("refused").to_string()
    }

    #[test]
    fn a_folder_is_replaced_whole_and_keeps_what_is_the_users() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("out");
        for round in ["first", "second"] {
            let out = PendingDir::create(&target).expect("begun");
            out.write("a", round.as_bytes()).expect("written");
            out.write(&format!("sub/{round}"), b"x").expect("written");
            out.commit().expect("committed");
            fs::create_dir_all(target.join("mine/empty")).expect("made");
            fs::write(target.join("sub/notes"), "mine").expect("written");
        }
        PendingDir::create(&target).and_then(PendingDir::commit).expect("committed");
        assert_eq!(entries(&target), [MARKER, "mine", "sub"]);
        assert_eq!(entries(&target.join("mine")), ["empty"]);
        assert_eq!(entries(&target.join("sub")), ["notes"]);
        assert_eq!(entries(dir.path()), ["out"]);
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("a/b/out");
        let out = PendingDir::create(&target).expect("begun");
        out.write("x", b"x").expect("written");
        assert!(refusal(&target).ends_with("another process writes its results there"));
        drop(out);
        assert_eq!(entries(dir.path()), Vec::<String>::new());
        let out = PendingDir::create(&target).expect("begun");
        fs::write(out.journal(), "a run\n").expect("written");
        drop(out);
        assert_eq!(entries(&dir.path().join("a/b")), ["out.unfinished"]);
        assert_eq!(entries(&dir.path().join("a/b/out.unfinished")), [JOURNAL]);
        PendingDir::create(&target).and_then(PendingDir::commit).expect("committed");
        assert_eq!(entries(&dir.path().join("a/b")), ["out"]);
    }

    #[test]
    fn only_what_is_new_empty_or_ours_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        fs::write(&file, "x").expect("written");
        assert!(refusal(&file).ends_with("it is a file, expected a directory"));
        assert!(refusal(&file.join("below")).contains("Not a directory"));
        assert!(refusal(dir.path()).contains("it is not empty"));
        assert!(refusal(Path::new("/")).contains("it is not empty"));
        assert_eq!(entries(dir.path()), ["file"]);
        let empty = dir.path().join("x".repeat(255));
        fs::create_dir(&empty).expect("made");
        PendingDir::create(&empty).and_then(PendingDir::commit).expect("committed");
        assert_eq!(entries(&empty), [MARKER]);
    }

    #[test]
    fn a_full_run_is_replaced_by_another_or_by_force() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("out");
        let full = About { full: true, ..About::default() };
        let begin = |about: &About, force| PendingDir::begin(&target, about.clone(), force);
        begin(&About::default(), false).and_then(PendingDir::commit).expect("committed");
        begin(&full, false).and_then(PendingDir::commit).expect("committed");
        begin(&full, false).and_then(PendingDir::commit).expect("committed");
        let e = begin(&About::default(), false).expect_err("refused").to_string();
        assert!(e.contains("the results of a full run") && e.contains("--force"), "{e}");
        begin(&About::default(), true).and_then(PendingDir::commit).expect("committed");
    }

    #[test]
    fn a_kill_between_two_renames_loses_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("out");
        PendingDir::create(&target).and_then(PendingDir::commit).expect("committed");
        let work = beside(&target);
        fs::create_dir(&work).expect("made");
        fs::rename(&target, work.join(OLD)).expect("moved");
        drop(PendingDir::create(&target).expect("begun"));
        assert_eq!(entries(&target), [MARKER]);
        assert_eq!(entries(dir.path()), ["out"]);
    }
}
