//! Running a program and recording it, under QEMU with a plugin or under valgrind.
//!
//! [`record`] runs the command to its end and writes the trace as it runs; the full trace is never stored. The
//! command's standard input and outputs are those of this process. Its environment holds only what is asked for, so
//! that its stack is the same everywhere.
//!
//! A trace is of one thread of one process. Under valgrind each thread has a trace of its own, in the order in which
//! they begin; QEMU's plugin knows one thread, and a second is an error. What processes that the command starts refer
//! to is in no trace: the report names them. What can fail: see [`CaptureError`].

mod lackey;
mod qemu;
mod watched;

pub use watched::{Capture, CaptureError, CaptureReport};

use crate::architecture::Architecture;
use std::fs::File;
use std::io::{self, Read, Write};

/// Runs the command and writes the trace of each of its threads to what `open` gives for it: 1 for the first thread, 2
/// for the next one that begins, and so on. `progress` is told the references of all so far, now and then.
pub fn record<W: Write>(
    capture: &Capture,
    mut open: impl FnMut(usize) -> io::Result<W>,
    progress: impl FnMut(u64),
) -> Result<CaptureReport, CaptureError> {
    let program = capture.command.first().ok_or(CaptureError::NoCommand)?;
    let path = watched::find(program)?;
    let mut begin = Vec::new();
    let head = File::open(&path).and_then(|file| file.take(64).read_to_end(&mut begin));
    head.map_err(CaptureError::io(format!("read {}", path.display())))?;
    let Some(architecture) = Architecture::of_elf(&begin) else {
        return Err(CaptureError::NotAProgram(path));
    };
    if let Some(expected) = capture.architecture.filter(|expected| expected.name != architecture.name) {
        return Err(CaptureError::Architecture { path, found: architecture.name, expected: expected.name });
    }
    if Architecture::host().is_some_and(|host| host.name == architecture.name) {
        lackey::record(capture, architecture, &path, open, progress)
    } else {
        let out = open(1).map_err(CaptureError::io("write the trace"))?;
        qemu::record(capture, architecture, &path, out, progress)
    }
}
