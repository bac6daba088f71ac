//! What a check finds.

use std::fmt;

/// A place where the source is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The file, from the root of the repository.
    pub path: String,
    /// The line, counted from 1; 0 where the whole file is meant.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl Fault {
    /// A fault of a line, or with 0 of the whole file.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}
