//! The directory that is served: its regular files, by their paths below it. Links are followed only if they stay
//! within. What is served later is what the files held when they were read, and what clients have uploaded since.
//!
//! In the modelled kernel files have numbers for names: an upload gets one of its own and takes its path over when it
//! is whole, and those that are in the middle of what was there before keep that.

use pageferry_hal::PAGE_SIZE;
use pageferry_lab::LabError;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files there can be at a time: as many paths as a site of those years had.
const MAX_FILES: usize = 50_000;
/// Uploads that can add a path, and have a file of their own until they are whole.
const MAX_UPLOADS: usize = 1000;

/// A file to be served.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Its name in the modelled kernel.
    pub(super) file: String,
    pub(super) len_bytes: u64,
}

/// The files, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    pages: BTreeMap<String, Page>,
    /// Where on the host the first ones are, by their numbers.
    hosts: Vec<PathBuf>,
    numbers: usize,
}

impl Site {
    /// Finds the files below `directory`.
    ///
    /// # Errors
    /// When it cannot be read, or has more files or longer names than fit.
    pub(super) fn read(directory: &Path) -> Result<Site, LabError> {
        let refuse = |e| LabError::io("read", directory, e);
        let root = directory.canonicalize().map_err(refuse)?;
        if !root.is_dir() {
            return Err(refuse(io::Error::new(io::ErrorKind::NotADirectory, "expected a directory")));
        }
        let mut site = Site::default();
        site.walk(&root, &root)?;
        Ok(site)
    }

    fn walk(&mut self, root: &Path, directory: &Path) -> Result<(), LabError> {
        let refuse = |e| LabError::io("read", directory, e);
        let mut entries: Vec<PathBuf> = fs::read_dir(directory)
            .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect())
            .map_err(refuse)?;
        entries.sort();
        for path in entries {
            let real = path.canonicalize().map_err(|e| LabError::io("read", &path, e))?;
            let meta = fs::metadata(&real).map_err(|e| LabError::io("read", &path, e))?;
            if !real.starts_with(root) {
                continue;
            }
            if meta.is_dir() && !fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink()) {
                self.walk(root, &path)?;
            } else if meta.is_file() {
                self.add(root, path, meta.len())?;
            }
        }
        Ok(())
    }

    fn add(&mut self, root: &Path, host: PathBuf, len_bytes: u64) -> Result<(), LabError> {
        let refuse = |problem: String| {
            LabError::io("serve", &host, io::Error::new(io::ErrorKind::InvalidInput, problem))
        };
        let below = host.strip_prefix(root).expect("it is below");
        let name = below.to_str().ok_or_else(|| refuse("its name is no text".into()))?.to_owned();
        if self.pages.len() == MAX_FILES {
            return Err(refuse(format!("there are more files than the {MAX_FILES} that are served at most")));
        }
        fs::File::open(&host).map_err(|e| LabError::io("read", &host, e))?;
        let file = self.next_file().expect("uploads come later");
        self.pages.insert(name, Page { file, len_bytes });
        self.hosts.push(host);
        Ok(())
    }

    /// A name for one more file of the modelled kernel; `None` when there have been too many uploads.
    pub(super) fn next_file(&mut self) -> Option<String> {
        let number = self.numbers;
        self.numbers += 1;
        (number < self.hosts.len() + MAX_UPLOADS).then(|| number.to_string())
    }

    /// Files that the kernel is to have room for.
    pub(super) fn max_files(&self) -> usize {
        self.pages.len() + MAX_UPLOADS
    }

    /// The files of the host, each with the modelled one that is to be as it.
    pub(super) fn installs(&self) -> Vec<(PathBuf, Page)> {
        let host = |page: &Page| self.hosts[page.file.parse::<usize>().expect("a number")].clone();
        self.pages.values().map(|page| (host(page), page.clone())).collect()
    }

    /// What is at a path, or at its `index.html`; with the path that it is at.
    pub(super) fn find(&self, path: &str) -> Option<(String, Page)> {
        let index = if path.is_empty() { "index.html".to_owned() } else { format!("{path}/index.html") };
        let page = |path: String| Some((path.clone(), self.pages.get(&path)?.clone()));
        page(path.to_owned()).or_else(|| page(index))
    }

    /// True when nothing can be put at a path: it is a directory, or one of its directories is a file.
    pub(super) fn is_in_the_way(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let is_directory =
            self.pages.range(below.clone()..).next().is_some_and(|(at, _)| at.starts_with(&below));
        let under_a_file = path.match_indices('/').any(|(end, _)| self.pages.contains_key(&path[..end]));
        path.is_empty() || is_directory || under_a_file
    }

    /// Puts a file at a path; what was there before is the caller's to be removed.
    pub(super) fn put(&mut self, path: &str, page: Page) -> Option<Page> {
        self.pages.insert(path.to_owned(), page)
    }

    /// The names of all files in the modelled kernel.
    pub(super) fn files(&self) -> Vec<String> {
        self.pages.values().map(|page| page.file.clone()).collect()
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

/// What kind of thing a file is, by its name.
pub(super) fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or("") {
        "html" | "htm" => "text/html; charset=utf-8",
        "txt" | "md" | "toml" | "rs" => "text/plain; charset=utf-8",
        "css" => "text/css",
        "js" => "text/javascript",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}
