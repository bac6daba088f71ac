//! What tests could not look at on this host, and for want of what.
//!
//! # What it holds
//! Nothing. A test that lacks a tool, or something of the kernel's, passes; here it says that it has looked at nothing.
//! That goes to standard error, past what the test harness keeps for tests that fail, and as a line to the file that
//! `PAGEFERRY_UNTESTED` names, if it does. `.ci/run` counts and names those lines at its end; its scripts write there,
//! too.
//!
//! # What can fail
//! Writing to that file, which is then said in place of the line: a test does not fail for it.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{Write as _, stderr};
use std::sync::Mutex;

/// The variable that names the file.
pub const VARIABLE: &str = "PAGEFERRY_UNTESTED";

/// What this process has said: each thing is said once.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Says that `what` is not tested here, for want of `why`.
pub fn untested(what: impl Display, why: impl Display) {
    let line = format!("{what}: {why}");
    let mut said = SAID.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if said.contains(&line) {
        return;
    }
    let _ = writeln!(stderr(), "not tested: {line}");
    if let Some(path) = std::env::var_os(VARIABLE) {
        // One write to the end of the file: those of other processes stay whole.
        let file = OpenOptions::new().append(true).create(true).open(&path);
        if let Err(error) = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
            let _ = writeln!(stderr(), "{}: {error}", path.display());
        }
    }
    said.push(line);
}
