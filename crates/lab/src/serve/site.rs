//! The directory that is served: its regular files, by their paths below it. Links are followed only if they stay within. What is
//! served later is what the files held when they were read.

use crate::error::LabError;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files that the modelled kernel can have at a time, with some to spare.
const MOST_FILES: usize = 250;
/// The longest path below the directory (`NAME_MAX` of the modelled file system).
const MOST_NAME_BYTES: usize = 255;

/// A file to be served.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) host: PathBuf,
    pub(super) len_bytes: u64,
}

/// The files, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    pub(super) pages: BTreeMap<String, Page>,
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
        if name.len() > MOST_NAME_BYTES {
            return Err(refuse(format!(
                "its path has {} bytes, expected at most {MOST_NAME_BYTES}",
                name.len()
            )));
        }
        if self.pages.len() == MOST_FILES {
            return Err(refuse(format!(
                "there are more files than the {MOST_FILES} that the machine can have"
            )));
        }
        fs::File::open(&host).map_err(|e| LabError::io("read", &host, e))?;
        self.pages.insert(name, Page { host, len_bytes });
        Ok(())
    }

    /// Bytes of all files.
    pub(super) fn len_bytes(&self) -> u64 {
        self.pages.values().map(|page| page.len_bytes).sum()
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
