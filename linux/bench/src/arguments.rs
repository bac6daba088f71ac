//! The command line, and what is done with it.

use crate::cell::{Carrier, Method, Pattern, Wait};
use crate::compare::{Peers, compare};
use crate::error::{BenchError, Calls as _, Result};
use crate::run::{Options, Step, bench};
use crate::series::size;
use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `host bench` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// About a minute instead of several
    #[arg(long)]
    quick: bool,
    /// Compare, in about a minute, with what Python has: mp.Queue, pickle 5, SharedMemory, Arrow, torch, iceoryx2.
    /// Install these first, by linux/bench/peers/install of a checkout
    #[arg(long, conflicts_with_all = ["quick", "quiet", "waits"])]
    python: bool,
    /// Where they are installed, other than in ~/.cache/pageferry/peers or $PAGEFERRY_PEERS
    #[arg(long, value_name = "FOLDER", requires = "python")]
    peers: Option<PathBuf>,
    /// Print JSON: times in nanoseconds
    #[arg(long)]
    json: bool,
    /// Write a line for each method and cell to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the ratios to the floor into this file, and with --python the times
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Keep other programs off the CPUs during a turn, for which this user needs the right to be a realtime process
    #[arg(long)]
    quiet: bool,
    /// Only these sizes, in kilobytes
    #[arg(long, value_name = "KB", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Only these methods, by their words in the JSON (loan, copy-buffer, ...), and the floor
    #[arg(long, value_name = "METHOD", value_delimiter = ',', value_parser = word::<Method>)]
    methods: Vec<Method>,
    /// Only what is done to messages: untouched, read, refilled, one-word, all-pages
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', value_parser = word::<Pattern>)]
    patterns: Vec<Pattern>,
    /// Only sides that wait like this: spin, sleep
    #[arg(long, value_name = "WAIT", value_delimiter = ',', value_parser = word::<Wait>)]
    waits: Vec<Wait>,
    /// Times that each method has its turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(7..=1000))]
    repetitions: Option<u16>,
    /// Milliseconds of a turn, about
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    turn: Option<u64>,
}

fn word<T: for<'a> serde::Deserialize<'a>>(text: &str) -> core::result::Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

impl Arguments {
    fn options(&self, peer: Vec<OsString>) -> Options {
        let mut options = if self.python { Options::python(peer) } else { Options::new(peer) };
        if self.quick {
            options = options.quick();
        }
        options.realtime = self.quiet;
        if !self.sizes.is_empty() {
            options.sizes = self.sizes.iter().map(|kilobytes| kilobytes << 10).collect();
        }
        if !self.methods.is_empty() {
            options.methods.clone_from(&self.methods);
        }
        if !self.patterns.is_empty() {
            options.patterns.clone_from(&self.patterns);
            options.max_written = usize::MAX;
        }
        if !self.waits.is_empty() {
            options.waits.clone_from(&self.waits);
            options.max_slept = usize::MAX;
        }
        options.repetitions = self.repetitions.map_or(options.repetitions, usize::from);
        options.turn = self.turn.map_or(options.turn, Duration::from_millis);
        options
    }

    /// Whether a signal is heard here, and ends the run in good order.
    pub fn hears_signals(&self) -> bool {
        self.python
    }

    /// Measures and prints. `peer`: the arguments with which this program calls [`crate::PeerArguments::run`].
    pub fn run(&self, peer: Vec<OsString>) -> Result<()> {
        let options = self.options(peer);
        if options.sizes.iter().any(|&bytes| bytes == 0 || bytes > 1 << 30) {
            return Err(BenchError::Usage("a size is 1 to 1048576 KB".to_owned()));
        }
        let report = if self.python {
            let folder = self.peers.clone();
            compare(&options, &folder.map_or_else(Peers::usual, Peers::at), &mut progress)?
        } else {
            if let Some(method) = options.methods.iter().find(|method| method.carrier() != Carrier::Own) {
                let name = method.name();
                return Err(BenchError::Usage(format!("{name} is measured with --python")));
            }
            bench(&options, &mut progress)?
        };
        clear();
        if let Some(path) = &self.csv {
            fs::File::create(path)
                .and_then(|file| report.csv(file))
                .map_err(|error| in_file(path, &error))?;
        }
        if let Some(path) = &self.svg {
            fs::write(path, crate::picture::svg(&report)).map_err(|error| in_file(path, &error))?;
        }
        let text = if self.json { report.json() + "\n" } else { report.text() };
        say(&text)
    }
}

/// A reader that has gone away is no error.
pub(crate) fn say(text: &str) -> Result<()> {
    match stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.call("write to standard output"),
    }
}

pub(crate) fn in_file(path: &Path, error: &std::io::Error) -> BenchError {
    BenchError::Usage(format!("{}: {error}", path.display()))
}

/// On a terminal, a line that is overwritten.
pub(crate) fn progress(step: Step) {
    let Step { done, all, bytes, pattern, wait } = step;
    let (begin, end) = if stderr().is_terminal() { ("\r\u{1b}[K", "") } else { ("", "\n") };
    let mut err = stderr().lock();
    let what = pattern.name();
    let _ = write!(err, "{begin}{}/{all}: {}, {what}, {}{end}", done + 1, size(bytes), wait.name());
    let _ = err.flush();
}

pub(crate) fn clear() {
    if stderr().is_terminal() {
        let _ = write!(stderr().lock(), "\r\u{1b}[K");
    }
}
