//! The files of the repository as text: what the checks look at.
//!
//! `git ls-files` says which they are, so that what git ignores stays out; where there is no git, the folders are
//! walked. A file that is no UTF-8 (a trace, a picture) has no lines and is in no check. A file that vanishes
//! meanwhile is left out. Nothing fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files by their path from the root of the repository, with `/` between folders.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// The repository that this crate was built in.
    pub fn of_this_repository() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self::read(here.parent().expect("a crate of the workspace is in a folder of it"))
    }

    /// What is below a folder, from the disk.
    pub fn read(root: &Path) -> Self {
        let paths = listed(root).unwrap_or_else(|| walked(root));
        let files = paths.into_iter().filter_map(|path| {
            let bytes = fs::read(root.join(&path)).ok()?;
            Some((path, String::from_utf8(bytes).ok()))
        });
        Self { files: files.collect() }
    }

    /// A tree made up of files and their texts.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())));
        Self { files: files.collect() }
    }

    /// The same with another file, or with another text in its place.
    #[must_use]
    pub fn with(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.to_owned(), Some(text.to_owned()));
        self
    }

    /// Paths of all files, those that are no text among them.
    pub fn files(&self) -> Vec<&str> {
        self.files.keys().map(String::as_str).collect()
    }

    /// The text of a file, if it is there and is one.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether there is such a file, or a folder with files.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.keys().any(|file| file.starts_with(&folder))
    }

    /// Files that are texts and whose names end so, with their texts.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(move |(path, _)| path.ends_with(end))
    }

    /// All files that are texts.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }
}

/// What git knows, or would add.
fn listed(root: &Path) -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walked(root: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let path = folder.join(&name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && name != "target" && name != ".git" => folders.push(path),
                Ok(kind) if kind.is_file() => paths.extend(path.to_str().map(str::to_owned)),
                _ => {}
            }
        }
    }
    paths
}
