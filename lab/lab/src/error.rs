//! What can go wrong here, and whether the input or a law is to blame.
//!
//! There are two kinds. *Input*: a name, key, value, file or path that was given cannot be used; nothing was run, or
//! nothing was kept. *A law*: a run finished and one of the laws that every run obeys does not hold; the numbers are
//! not to be trusted. The command turns the first into exit code 2 and the second into exit code 1.

use pageferry_sourced::ConfigError;
use std::fmt;
use std::path::PathBuf;

/// What is to blame for an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// What was asked for, or the place where the result was to go.
    Input,
    /// The model or the kernel: a law does not hold.
    Law,
}

/// An error of this crate. As what a `main` returns, too, it is told in words.
#[derive(thiserror::Error)]
pub enum LabError {
    /// A name that nothing has.
    #[error("there is no {kind} `{name}`{}", hint(.nearest, .known))]
    Unknown {
        /// What was looked for.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The known name most like it.
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// A configuration file that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A scenario or a program that contradicts itself.
    #[error("{file}: {problem}")]
    Input {
        /// Its file.
        file: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// A trace that cannot be replayed.
    #[error("{file}: {problem}")]
    Trace {
        /// Its file, or its name if it comes with the program.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A `key=value` that cannot be used.
    #[error("--set {key}: {problem}")]
    Setting {
        /// The key given.
        key: String,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// An option whose value cannot be used.
    #[error("{option}: {problem}")]
    Option {
        /// The option, with what it was given for where that tells more.
        option: String,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// A file or directory that cannot be read or written.
    #[error("cannot {action} {}: {error}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the operating system says.
        error: std::io::Error,
    },
    /// Host threads that cannot be had.
    #[error("cannot run on {threads} threads: {problem}; try fewer with --jobs")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the host says, or how many are allowed.
        problem: String,
    },
    /// The machine and the kernel do not fit each other or the experiment.
    #[error("{machine} under {kernel}: {problem}")]
    Incompatible {
        /// The machine's name.
        machine: String,
        /// The kernel's name.
        kernel: String,
        /// What does not fit.
        problem: String,
    },
    /// A run broke laws.
    #[error("{run}: {}", .broken.join("; "))]
    Law {
        /// The run.
        run: String,
        /// What does not hold, one text each.
        broken: Vec<String>,
    },
}

impl fmt::Debug for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl LabError {
    /// What is to blame.
    pub fn blame(&self) -> Blame {
        match self {
            LabError::Law { .. } => Blame::Law,
            _ => Blame::Input,
        }
    }

    /// An [`LabError::Io`].
    pub fn io(action: &'static str, path: impl Into<PathBuf>, error: std::io::Error) -> LabError {
        LabError::Io { action, path: path.into(), error }
    }
}

fn hint(nearest: &Option<String>, known: &[String]) -> String {
    match nearest {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!("; there are: {}", known.join(", ")),
    }
}
