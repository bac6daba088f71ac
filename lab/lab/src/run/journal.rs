//! The journal of finished runs: what an interrupted reproduction goes on with.
//!
//! A line of JSON for each run, written as it is finished, with a key that stands for all that the run depends on: its
//! whole configuration, and the program. So a run is found again only where it would give the same once more. A journal
//! is only added to; the last line counts where a key has two, and a line that was cut off is left out.
//!
//! # Locks
//! The file, for the time of one line. Two processes must not have one journal.

use super::plan::RunSpec;
use crate::error::LabError;
use crate::record::RunResult;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

/// A journal, open for more.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    /// What was in it when it was opened, by key.
    before: BTreeMap<String, RunResult>,
    program: String,
}

#[derive(Serialize, Deserialize)]
struct Line<R> {
    key: String,
    run: R,
}

impl Journal {
    /// Opens the journal at `path`, or begins it.
    ///
    /// # Errors
    /// When it cannot be read and written.
    pub fn open(path: &Path) -> Result<Journal, LabError> {
        let refuse = |e| LabError::io("write", path, e);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(refuse)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(refuse)?;
        // A line that was cut off goes, so that the next one begins a line.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(io::SeekFrom::End(0))).map_err(refuse)?;
        let lines = bytes[..whole].split(|&byte| byte == b'\n');
        let before = lines.filter_map(|line| serde_json::from_slice(line).ok());
        let before = before.map(|line: Line<RunResult>| (line.key, line.run)).collect();
        Ok(Journal { path: path.to_owned(), file: Mutex::new(file), before, program: program() })
    }

    /// What `spec` gave, if the journal had it when it was opened.
    pub fn find(&self, spec: &RunSpec) -> Option<&RunResult> {
        self.before.get(&self.key(spec))
    }

    /// The runs that were in it when it was opened and that `plan` has not: how many, and the journal of those alone.
    pub fn rest(&self, plan: &[RunSpec]) -> (usize, Vec<u8>) {
        let planned: BTreeSet<String> = plan.iter().map(|spec| self.key(spec)).collect();
        let rest: Vec<_> = self.before.iter().filter(|(key, _)| !planned.contains(*key)).collect();
        let mut text = Vec::new();
        for (key, run) in &rest {
            let line = Line { key: (*key).clone(), run };
            serde_json::to_writer(&mut text, &line).expect("plain data can be written as JSON");
            text.push(b'\n');
        }
        (rest.len(), text)
    }

    /// Adds a run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&self, spec: &RunSpec, run: &RunResult) -> Result<(), LabError> {
        let line = Line { key: self.key(spec), run };
        let mut text = serde_json::to_string(&line).expect("plain data can be written as JSON");
        text.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes()).map_err(|e| LabError::io("write", &self.path, e))
    }

    /// A hash of all that a run depends on.
    fn key(&self, spec: &RunSpec) -> String {
        let hash = Sha256::digest(format!("{} {}", self.program, spec.configuration()));
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The program's version; its file tells builds of one version apart.
fn program() -> String {
    let file = std::env::current_exe().and_then(std::fs::metadata);
    let built = file.and_then(|meta| Ok((meta.len(), meta.modified()?))).ok();
    let built = built.and_then(|(len, time)| Some((len, time.duration_since(UNIX_EPOCH).ok()?.as_nanos())));
    format!("{} {built:?}", env!("CARGO_PKG_VERSION"))
}
