//! The directory that is served: its regular files, by their paths below it, and the links within it. What is served
//! later is what the files held when they were read, and what clients have uploaded since.
//!
//! Links are followed if they stay within, to files and to directories; what they lead to is served by all its names,
//! and is there once. What cannot be served is left out and told: links that lead nowhere or out, what is no file, and
//! what may not be read.
//!
//! In the modelled kernel files have numbers for names: an upload gets one of its own and takes its path over when it
//! is whole, and those that are in the middle of what was there before keep that. A number is given again when nothing
//! has it.

use super::conditional::Validators;
use pageferry_hal::PAGE_SIZE;
use pageferry_lab::LabError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files there can be at the start: as many paths as a site of those years had.
const MAX_FILES: usize = 50_000;

/// A path below the directory: names between slashes, as the host has them.
pub(super) type SitePath = Vec<u8>;

/// A file to be served.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Its name in the modelled kernel.
    pub(super) file: String,
    pub(super) len_bytes: u64,
    /// When it was changed, in whole seconds.
    pub(super) modified: SystemTime,
    /// Its entity tag, in quotes.
    pub(super) tag: String,
}

/// What is at a path.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A file, and the path that it is at.
    Page(SitePath, Page),
    /// A directory, which is asked for without a slash behind it.
    Elsewhere,
    /// A directory without an index: its entries, and of files their bytes.
    Directory(Vec<(Vec<u8>, Option<u64>)>),
}

/// The files, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    pages: BTreeMap<SitePath, Page>,
    /// Where links lead, as paths that go over no link.
    links: BTreeMap<SitePath, SitePath>,
    /// Directories that were there at the start; others are there as long as they have a file.
    directories: BTreeSet<SitePath>,
    /// Where on the host the first files are, by their numbers.
    hosts: Vec<PathBuf>,
    /// What is not served, and why.
    left_out: Vec<String>,
    /// Numbers of files: the next that was never given, those that are free again, and how many there can be.
    next_number: usize,
    free_numbers: Vec<usize>,
    numbers: usize,
    /// Uploads so far: no two have the same tag.
    uploads: u64,
}

impl Page {
    fn new(number: usize, len_bytes: u64, modified: SystemTime, nth_upload: u64) -> Page {
        let now = SystemTime::now();
        let age = modified.min(now).duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let again = if nth_upload > 0 { format!("-{nth_upload:x}") } else { String::new() };
        Page {
            file: number.to_string(),
            len_bytes,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(age.as_secs()),
            tag: format!("\"{:x}-{len_bytes:x}{again}\"", age.as_nanos()),
        }
    }

    pub(super) fn validators(&self) -> Validators<'_> {
        Validators { tag: &self.tag, modified: self.modified }
    }

    fn number(&self) -> usize {
        self.file.parse().expect("a number")
    }
}

impl Site {
    /// Finds the files below `directory`.
    ///
    /// # Errors
    /// When it cannot be read, or has more files than fit.
    pub(super) fn read(directory: &Path) -> Result<Site, LabError> {
        let refuse = |e| LabError::io("read", directory, e);
        let root = directory.canonicalize().map_err(refuse)?;
        if !root.is_dir() {
            return Err(refuse(io::Error::new(io::ErrorKind::NotADirectory, "expected a directory")));
        }
        let mut site = Site::default();
        site.walk(&root, &root).map_err(refuse)?;
        Ok(site)
    }

    /// Adds what is in `directory`; what cannot be read in it is left out.
    ///
    /// # Errors
    /// When the directory itself cannot be read; when there are too many files.
    fn walk(&mut self, root: &Path, directory: &Path) -> io::Result<()> {
        let entries: Result<Vec<PathBuf>, io::Error> =
            fs::read_dir(directory)?.map(|entry| entry.map(|e| e.path())).collect();
        let mut entries = entries?;
        entries.sort();
        self.directories.insert(below(root, directory));
        for path in entries {
            if let Err(why) = self.enter(root, &path) {
                self.leave_out(&path, &why);
            }
            if self.pages.len() > MAX_FILES {
                let why = format!("there are more files than the {MAX_FILES} that are served at most");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
        Ok(())
    }

    /// Adds one entry of a directory.
    ///
    /// # Errors
    /// Why it is not served.
    fn enter(&mut self, root: &Path, path: &Path) -> io::Result<()> {
        let because = |why: &str| io::Error::other(why.to_owned());
        let meta = fs::symlink_metadata(path)?;
        if meta.is_symlink() {
            let real =
                path.canonicalize().map_err(|e| io::Error::other(format!("its link leads nowhere: {e}")))?;
            if !real.starts_with(root) {
                return Err(because("its link leads out of the directory"));
            }
            self.links.insert(below(root, path), below(root, &real));
            return Ok(());
        }
        if meta.is_dir() {
            return self.walk(root, path);
        }
        if !meta.is_file() {
            return Err(because("it is no file"));
        }
        fs::File::open(path)?;
        let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let page = Page::new(self.hosts.len(), meta.len(), modified, 0);
        self.pages.insert(below(root, path), page);
        self.hosts.push(path.to_owned());
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, why: &io::Error) {
        // A name may have in it what a terminal obeys.
        let name = path.to_string_lossy();
        self.left_out.push(format!("{} is left out: {why}", name.escape_debug()));
    }

    /// What is not served, and why.
    pub(super) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Files that there are.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The kernel has room for so many files.
    pub(super) fn has_room_for(&mut self, files: usize) {
        self.numbers = files;
        self.next_number = self.hosts.len();
    }

    /// A name for one more file of the modelled kernel, which is given back if the file goes; `None` when there are too
    /// many.
    pub(super) fn next_file(&mut self) -> Option<String> {
        let number = self.free_numbers.pop().or_else(|| {
            let number = self.next_number;
            self.next_number += usize::from(number < self.numbers);
            (number < self.numbers).then_some(number)
        });
        number.map(|number| number.to_string())
    }

    /// A file of this name is gone.
    pub(super) fn give_back(&mut self, file: &str) {
        self.free_numbers.push(file.parse().expect("a number"));
    }

    /// Tests that each number that was given is that of one file, or free again; while nothing is under way.
    ///
    /// # Errors
    /// What is broken, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let of_pages = self.pages.values().map(Page::number);
        let mut known: Vec<usize> = of_pages.chain(self.free_numbers.iter().copied()).collect();
        known.sort_unstable();
        if known.iter().copied().eq(0..self.next_number) {
            return Ok(());
        }
        Err(format!("{} numbers were given, {} are of files or free", self.next_number, known.len()))
    }

    /// The files of the host, each with the modelled one that is to be as it.
    pub(super) fn installs(&self) -> Vec<(SitePath, PathBuf, Page)> {
        let install = |(path, page): (&SitePath, &Page)| {
            (path.clone(), self.hosts[page.number()].clone(), page.clone())
        };
        self.pages.iter().map(install).collect()
    }

    /// A file of the host could not be read after all: it is not served.
    pub(super) fn lose(&mut self, path: &SitePath, why: &io::Error) {
        if let Some(page) = self.pages.remove(path) {
            let host = self.hosts[page.number()].clone();
            self.leave_out(&host, why);
            self.give_back(&page.file);
        }
    }

    /// A path that goes over no link.
    pub(super) fn resolve(&self, path: &[u8]) -> SitePath {
        let mut path = path.to_owned();
        // Each turn is for names that were not looked at before.
        let mut from = 0;
        loop {
            let mut ends = ends_of_names(&path[from..]).map(|end| from + end);
            let link = ends.find_map(|end| self.links.get(&path[..end]).map(|target| (end, target)));
            drop(ends);
            let Some((end, target)) = link else { return path };
            path = joined(target, path.get(end + 1..).unwrap_or_default());
            from = (target.len() + usize::from(!target.is_empty())).min(path.len());
        }
    }

    /// What is at a path, which has a slash behind it or not.
    pub(super) fn find(&self, path: &[u8], has_slash: bool) -> Option<Place> {
        let path = self.resolve(path);
        if let Some(page) = self.pages.get(&path).filter(|_| !has_slash) {
            return Some(Place::Page(path.clone(), page.clone()));
        }
        if !self.is_directory(&path) {
            return None;
        }
        if !has_slash {
            return Some(Place::Elsewhere);
        }
        let index = self.resolve(&joined(&path, b"index.html"));
        Some(match self.pages.get(&index) {
            Some(page) => Place::Page(index, page.clone()),
            None => Place::Directory(self.entries(&path)),
        })
    }

    /// What is at a path that goes over no link, if that is a file.
    pub(super) fn page(&self, path: &[u8]) -> Option<&Page> {
        self.pages.get(path)
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        self.directories.contains(path) || self.below(path).next().is_some()
    }

    /// Files below a directory, by their paths from there.
    fn below(&self, directory: &[u8]) -> impl Iterator<Item = (&[u8], &Page)> {
        within(&self.pages, directory)
    }

    fn entries(&self, directory: &[u8]) -> Vec<(Vec<u8>, Option<u64>)> {
        let mut entries = BTreeMap::new();
        let mut enter = |rest: &[u8], len: Option<u64>| {
            let name = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
            let len = if name.len() == rest.len() { len } else { None };
            entries.insert(name.to_owned(), len);
        };
        for (rest, page) in self.below(directory) {
            enter(rest, Some(page.len_bytes));
        }
        let directories = self.directories.iter().filter_map(|path| rest_behind(directory, path));
        directories.for_each(|rest| enter(rest, None));
        for (rest, target) in within(&self.links, directory) {
            // What a link leads to may be left out, or be an upload that has gone.
            let target = self.resolve(target);
            let page = self.pages.get(&target);
            if page.is_some() || self.is_directory(&target) {
                enter(rest, page.map(|page| page.len_bytes));
            }
        }
        entries.into_iter().collect()
    }

    /// True when nothing can be put at a path that goes over no link: it is a directory, or one of its directories is a
    /// file.
    pub(super) fn is_in_the_way(&self, path: &[u8]) -> bool {
        let mut above = ends_of_names(path).filter(|&end| end < path.len());
        self.is_directory(path) || above.any(|end| self.pages.contains_key(&path[..end]))
    }

    /// Puts a file at a path that goes over no link; what was there before is the caller's to be removed.
    pub(super) fn put(&mut self, path: &[u8], file: &str, len_bytes: u64) -> (Page, Option<Page>) {
        self.uploads += 1;
        let number = file.parse().expect("a number");
        let page = Page::new(number, len_bytes, SystemTime::now(), self.uploads);
        let before = self.pages.insert(path.to_owned(), page.clone());
        (page, before)
    }

    /// The names of all files in the modelled kernel.
    pub(super) fn files(&self) -> Vec<String> {
        self.pages.values().map(|page| page.file.clone()).collect()
    }

    /// Bytes that all files have.
    pub(super) fn len_bytes(&self) -> u64 {
        self.pages.values().map(|page| page.len_bytes).sum()
    }

    /// Bytes of memory that all files take: whole pages.
    pub(super) fn memory_bytes(&self) -> usize {
        let pages =
            |page: &Page| usize::try_from(page.len_bytes.div_ceil(PAGE_SIZE as u64)).unwrap_or(usize::MAX);
        self.pages
            .values()
            .fold(0, |sum: usize, page| sum.saturating_add(pages(page)))
            .saturating_mul(PAGE_SIZE)
    }
}

/// The path of what is below `root`.
fn below(root: &Path, path: &Path) -> SitePath {
    path.strip_prefix(root).expect("it is below").as_os_str().as_bytes().to_owned()
}

fn joined(directory: &[u8], rest: &[u8]) -> SitePath {
    match (directory, rest) {
        ([], rest) => rest.to_owned(),
        (directory, []) => directory.to_owned(),
        _ => [directory, b"/", rest].concat(),
    }
}

/// Where each name of a path ends.
fn ends_of_names(path: &[u8]) -> impl Iterator<Item = usize> {
    (1..=path.len()).filter(|&at| path.get(at).is_none_or(|&byte| byte == b'/'))
}

/// What is behind `directory` in `path`, if it is below.
fn rest_behind<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = match directory {
        [] => path,
        _ => path.strip_prefix(directory)?.strip_prefix(b"/")?,
    };
    (!rest.is_empty()).then_some(rest)
}

/// What a map has below `directory`, by paths from there.
fn within<'a, V>(
    map: &'a BTreeMap<SitePath, V>,
    directory: &[u8],
) -> impl Iterator<Item = (&'a [u8], &'a V)> {
    let begin = if directory.is_empty() { Vec::new() } else { [directory, b"/"].concat() };
    let directory = directory.to_owned();
    map.range(begin..).map_while(move |(path, value)| Some((rest_behind(&directory, path)?, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::fs::symlink;

    fn made() -> (tempfile::TempDir, Site) {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("real/deep")).expect("made");
        fs::create_dir(at("empty")).expect("made");
        fs::write(at("real/f"), "abc").expect("written");
        fs::write(at("real/deep/g"), "").expect("written");
        fs::write(dir.path().join(OsStr::from_bytes(b"\xff")), "x").expect("written");
        for (target, link) in [
            ("real", "alias"),
            ("real/f", "link"),
            (".", "real/up"),
            ("..", "real/out"),
            ("nowhere", ".#lock"),
            ("loop", "loop"),
            ("/etc/passwd", "etc"),
        ] {
            symlink(target, at(link)).expect("linked");
        }
        // `real/out` leads to the root, which is within.
        let site = Site::read(dir.path()).expect("read");
        (dir, site)
    }

    fn path_of(site: &Site, path: &str) -> Option<String> {
        match site.find(path.as_bytes(), false) {
            Some(Place::Page(path, _)) => Some(String::from_utf8_lossy(&path).into_owned()),
            _ => None,
        }
    }

    #[test]
    fn links_within_are_followed_and_others_left_out() {
        let (_dir, site) = made();
        for path in ["real/f", "link", "alias/f", "real/up/f", "alias/up/up/f", "real/out/alias/out/link"] {
            assert_eq!(path_of(&site, path).as_deref(), Some("real/f"), "{path}");
        }
        assert_eq!(path_of(&site, "alias/deep/g").as_deref(), Some("real/deep/g"));
        assert!(matches!(site.find(b"\xff", false), Some(Place::Page(..))));
        for none in [".#lock", "loop", "etc", "link/f", "alias/none", "real/f/g"] {
            assert!(site.find(none.as_bytes(), false).is_none(), "{none}");
        }
        let left_out = site.left_out().join("\n");
        for (name, why) in [(".#lock", "nowhere"), ("loop", "nowhere"), ("etc", "out of the directory")] {
            let line = left_out.lines().find(|line| line.contains(&format!("/{name} ")));
            assert!(line.is_some_and(|line| line.contains(why)), "{name}: {left_out}");
        }
        assert_eq!(site.left_out().len(), 3, "{left_out}");
    }

    #[test]
    fn directories_have_entries() {
        let (_dir, site) = made();
        let entries = |path: &str| match site.find(path.as_bytes(), true) {
            Some(Place::Directory(entries)) => {
                let name = |(name, len): &(Vec<u8>, Option<u64>)| {
                    let slash = if len.is_none() { "/" } else { "" };
                    format!("{}{slash}", name.escape_ascii())
                };
                entries.iter().map(name).collect::<Vec<_>>().join(" ")
            }
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(entries(""), "alias/ empty/ link real/ \\xff");
        assert_eq!(entries("alias"), "deep/ f out/ up/");
        assert_eq!(entries("empty"), "");
        assert!(matches!(site.find(b"real", false), Some(Place::Elsewhere)));
        assert!(site.find(b"real/f", true).is_none());
    }

    #[test]
    fn uploads_take_paths_over_and_numbers_are_given_again() {
        let (_dir, mut site) = made();
        site.has_room_for(site.len() + 2);
        assert_eq!(site.resolve(b"alias/new"), b"real/new");
        for (path, in_the_way) in [
            ("real/new", false),
            ("real/f", false),
            ("real", true),
            ("real/f/x", true),
            ("", true),
            ("empty", true),
        ] {
            assert_eq!(site.is_in_the_way(path.as_bytes()), in_the_way, "{path}");
        }
        let tag = |site: &Site| site.page(b"real/new").expect("there").tag.clone();
        let mut tags = BTreeSet::new();
        for _ in 0..1000 {
            let file = site.next_file().expect("there is room");
            let (_, before) = site.put(b"real/new", &file, 3);
            tags.insert(tag(&site));
            if let Some(before) = before {
                site.give_back(&before.file);
            }
        }
        assert_eq!(tags.len(), 1000);
        assert_eq!(site.check(), Ok(()));
        assert!(site.next_file().is_some() && site.next_file().is_none());
        assert!(site.check().is_err(), "one was given and is no file's");
    }

    /// What was there at the start and could not be read has no number any more either.
    #[test]
    fn a_file_that_is_lost_gives_its_number_back() {
        let (_dir, mut site) = made();
        let files = site.len();
        site.has_room_for(files + 1);
        site.lose(&b"real/f".to_vec(), &io::Error::other("gone"));
        site.lose(&b"real/f".to_vec(), &io::Error::other("gone"));
        assert!(site.find(b"real/f", false).is_none() && site.find(b"link", false).is_none());
        assert_eq!(
            (site.len(), site.left_out().iter().filter(|line| line.contains("gone")).count()),
            (files - 1, 1)
        );
        let given: BTreeSet<String> = std::iter::from_fn(|| site.next_file()).collect();
        assert_eq!(given.len(), 2);
        given.iter().for_each(|number| site.give_back(number));
        assert_eq!(site.check(), Ok(()));
        assert!(site.files().iter().all(|file| !given.contains(file)));
    }
}
