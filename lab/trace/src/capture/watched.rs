//! A program that is watched while it runs: what is to be recorded, the pipe by which its references come, and what can
//! go wrong. Both ways of recording stand on this.

use crate::architecture::Architecture;
use crate::record::{Header, Rules, Totals};
use crate::recorder::Recorder;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use thiserror::Error;

/// What to record.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What the program's architecture must be, if that is known. A program of another one than the host's is emulated.
    pub architecture: Option<&'static Architecture>,
    /// The environment that the program gets.
    pub environment: Vec<(OsString, OsString)>,
    /// Which references to keep.
    pub rules: Rules,
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct CaptureReport {
    /// What was counted of each thread, in the order in which they began.
    pub threads: Vec<Totals>,
    /// Processes that the command started, as far as that is known: their references are in no trace.
    pub children: Vec<u32>,
    /// The command made its process another program, whose references are in no trace, as far as that is known.
    pub became_another: bool,
    /// How the command ended.
    pub status: ExitStatus,
}

/// Why a command cannot be recorded.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// There is nothing to run.
    #[error("expected a command")]
    NoCommand,
    /// The program is in no folder of `PATH`.
    #[error("there is no program `{0}` in the folders of PATH")]
    NotFound(String),
    /// The program is no ELF file of a known architecture.
    #[error("{}: not an ELF program of a known architecture; record the program that runs it", .0.display())]
    NotAProgram(PathBuf),
    /// The program is of another architecture than was said.
    #[error("{}: a program of {found}, expected one of {expected}", .path.display())]
    Architecture {
        /// The program's file.
        path: PathBuf,
        /// Its architecture.
        found: &'static str,
        /// What was said.
        expected: &'static str,
    },
    /// A tool that is needed is not installed.
    #[error("cannot run `{tool}`: {error}; expected {package} to be installed")]
    Tool {
        /// What was to run.
        tool: String,
        /// What it is part of.
        package: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// The compiler refuses the plugin.
    #[error("`{compiler}` cannot compile the plugin: {said}")]
    Plugin {
        /// The compiler.
        compiler: String,
        /// Its words.
        said: String,
    },
    /// A file, a pipe or the trace's sink fails.
    #[error("cannot {action}: {error}")]
    Io {
        /// What was tried.
        action: String,
        /// What the system says.
        error: io::Error,
    },
    /// What watches the program does not report as it should.
    #[error("{tool} {problem}, after {references} references; the command {status}")]
    Watch {
        /// The tool.
        tool: String,
        /// What is wrong, and what was expected.
        problem: String,
        /// How many references came before.
        references: u64,
        /// How the command ended.
        status: String,
    },
}

impl CaptureError {
    pub(super) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> CaptureError {
        let action = action.into();
        move |error| CaptureError::Io { action, error }
    }
}

pub(super) fn header(capture: &Capture, architecture: &Architecture, recorder: String) -> Header {
    Header {
        architecture: architecture.name.to_owned(),
        rules: capture.rules,
        recorder,
        command: capture.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}

/// The program's file, by `PATH` if it is a bare name.
pub(super) fn find(program: &OsStr) -> Result<PathBuf, CaptureError> {
    if Path::new(program).components().count() > 1 || program.to_string_lossy().contains('/') {
        return Ok(program.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|p| p.is_file());
    found.ok_or_else(|| CaptureError::NotFound(program.to_string_lossy().into_owned()))
}

/// A program being watched, and the pipe that its references come through.
pub(super) struct WatchedProgram {
    tool: &'static str,
    child: Child,
    pub(super) references: BufReader<io::PipeReader>,
}

impl WatchedProgram {
    /// Starts `tool`; `arguments` is given the number of the descriptor to report to.
    pub(super) fn start(
        tool: &'static str,
        package: &'static str,
        capture: &Capture,
        arguments: impl FnOnce(&mut Command, i32),
    ) -> Result<WatchedProgram, CaptureError> {
        let (reader, writer) = io::pipe().map_err(CaptureError::io("make a pipe"))?;
        // Unlike `writer`, a duplicate outlives the start of a program.
        let inherited: OwnedFd = rustix::io::dup(&writer)
            .map_err(|error| CaptureError::Io { action: "make a pipe".to_owned(), error: error.into() })?;
        // By this process's PATH: the program's environment need not have one.
        let path = find(OsStr::new(tool)).unwrap_or_else(|_| tool.into());
        let mut command = Command::new(path);
        command.env_clear().envs(capture.environment.iter().map(|(name, value)| (name, value)));
        arguments(&mut command, inherited.as_raw_fd());
        let child = command.spawn();
        let child = child.map_err(|error| CaptureError::Tool { tool: tool.to_owned(), package, error })?;
        // With the last writing end here gone, the pipe ends when the program does.
        Ok(WatchedProgram { tool, child, references: BufReader::with_capacity(1 << 16, reader) })
    }

    /// The program has reported its end, or closed the pipe.
    pub(super) fn end<W: Write>(
        mut self,
        recorders: Vec<Recorder<W>>,
    ) -> Result<CaptureReport, CaptureError> {
        drop(self.references);
        let status = self.child.wait().map_err(CaptureError::io(format!("wait for {}", self.tool)))?;
        let threads = recorders.into_iter().map(Recorder::finish).collect::<io::Result<_>>();
        let threads = threads.map_err(CaptureError::io("write the trace"))?;
        Ok(CaptureReport { threads, children: Vec::new(), became_another: false, status })
    }

    /// The trace cannot be written: the program is ended.
    pub(super) fn give_up(mut self, error: io::Error) -> CaptureError {
        let _ = self.child.kill();
        let _ = self.child.wait();
        CaptureError::io("write the trace")(error)
    }

    /// The program does not report as it should; it is ended.
    pub(super) fn fail(mut self, problem: String, references: u64) -> CaptureError {
        drop(self.references);
        // It may be about to end by itself.
        let mut ended = None;
        for _ in 0..100 {
            ended = self.child.try_wait().ok().flatten();
            if ended.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let status = ended.or_else(|| self.child.wait().ok());
        let status = status.map_or_else(|| "was ended".to_owned(), |status| format!("ended with {status}"));
        CaptureError::Watch { tool: self.tool.to_owned(), problem, references, status }
    }
}

/// Calls `progress` every so many references.
pub(super) struct ProgressMeter<P> {
    progress: P,
    next: u64,
}

impl<P: FnMut(u64)> ProgressMeter<P> {
    const EVERY: u64 = 1 << 18;

    pub(super) fn new(progress: P) -> ProgressMeter<P> {
        ProgressMeter { progress, next: 0 }
    }

    pub(super) fn tell(&mut self, references: u64) {
        if references >= self.next {
            (self.progress)(references);
            self.next = references + Self::EVERY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ProgressMeter;

    /// References come in lumps: after a large one it is as long as ever to the next call.
    #[test]
    fn progress_is_told_every_so_many_references() {
        let mut told = Vec::new();
        let mut meter = ProgressMeter::new(|references| told.push(references));
        let every = ProgressMeter::<fn(u64)>::EVERY;
        for references in
            [0, 1, every - 1, every, every + 1, 9 * every + 5, 9 * every + 6, 10 * every, 10 * every + 5]
        {
            meter.tell(references);
        }
        assert_eq!(told, [0, every, 9 * every + 5, 10 * every + 5]);
    }
}
