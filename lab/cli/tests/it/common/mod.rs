//! Running the command as a user does.
// Each test program uses some of it.
#![allow(dead_code)]

pub mod part;
pub mod server;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The command with these arguments, run in `dir`.
pub fn pageferry<S: AsRef<OsStr>>(dir: &Path, arguments: &[S]) -> Output {
    command(dir, arguments).stdin(Stdio::null()).output().expect("it starts")
}

pub fn command<S: AsRef<OsStr>>(dir: &Path, arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pageferry"));
    command.args(arguments).current_dir(dir);
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// The names in a directory, sorted.
pub fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// An empty directory, which goes with what is given.
pub fn here() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Standard output and standard error of a command that must succeed.
pub fn done(dir: &Path, arguments: &[&str]) -> (String, String) {
    let output = pageferry(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}
