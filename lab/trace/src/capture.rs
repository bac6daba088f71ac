//! Running a program and recording it, under QEMU with a plugin or under valgrind.
//!
//! [`record`] runs the command to its end and writes the trace as it runs; the full trace is never stored. The
//! command's standard input and outputs are those of this process. Its environment holds only what is asked for, so
//! that its stack is the same everywhere.
//!
//! A trace is of one thread of one process. Processes that the command starts are not in it; a second thread is an
//! error. What can fail: see [`CaptureError`].

mod lackey;
mod qemu;
mod watched;

pub use watched::{Capture, CaptureError, CaptureReport};

use crate::architecture::Architecture;
use std::fs::File;
use std::io::{Read, Write};

/// Runs the command and writes its trace to `out`. `progress` is told the references so far, now and then.
pub fn record(
    capture: &Capture,
    out: impl Write,
    progress: impl FnMut(u64),
) -> Result<CaptureReport, CaptureError> {
    let program = capture.command.first().ok_or(CaptureError::NoCommand)?;
    let path = watched::find(program)?;
    let mut begin = Vec::new();
    let open = File::open(&path).and_then(|file| file.take(64).read_to_end(&mut begin));
    open.map_err(CaptureError::io(format!("read {}", path.display())))?;
    let Some(architecture) = Architecture::of_elf(&begin) else {
        return Err(CaptureError::NotAProgram(path));
    };
    if let Some(expected) = capture.architecture.filter(|expected| expected.name != architecture.name) {
        return Err(CaptureError::Architecture { path, found: architecture.name, expected: expected.name });
    }
    if Architecture::host().is_some_and(|host| host.name == architecture.name) {
        lackey::record(capture, architecture, &path, out, progress)
    } else {
        qemu::record(capture, architecture, &path, out, progress)
    }
}
