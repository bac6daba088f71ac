//! What can go wrong.

use std::io;

/// A benchmark that could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A call of the kernel failed.
    #[error("{what}: {error}")]
    Call {
        /// Which.
        what: &'static str,
        /// What the kernel answered.
        error: io::Error,
    },
    /// The library failed.
    #[error(transparent)]
    Library(#[from] pageferry::Error),
    /// The other process failed, or says what it must not.
    #[error("the other process: {0}")]
    Peer(String),
    /// The other process does not answer.
    #[error("the other process has not answered for {0} s")]
    Silent(u64),
    /// Bytes arrived changed.
    #[error("{method}, {bytes} bytes: what arrived is not what was sent")]
    Payload {
        /// By which method.
        method: &'static str,
        /// Bytes of the message.
        bytes: usize,
    },
    /// This process was started for something else.
    #[error("this is the other half of `host bench`, which starts it")]
    NotAPeer,
    /// No size that was asked for fits into the memory that is free.
    #[error("the host has too little free memory for messages of {0} bytes")]
    Memory(usize),
    /// A program that carries out one method failed, or died.
    #[error("{0}")]
    Method(String),
    /// A signal asked for the end.
    #[error("interrupted")]
    Interrupted,
    /// There is no Python to compare with.
    #[error(
        "no Python to compare with in {}: run linux/bench/peers/install of a checkout first, which makes it there",
        .0.display()
    )]
    NoPeers(std::path::PathBuf),
    /// Something that was asked for cannot be.
    #[error("{0}")]
    Usage(String),
}

pub(crate) type Result<T> = core::result::Result<T, BenchError>;

pub(crate) trait Calls<T> {
    fn call(self, what: &'static str) -> Result<T>;
}

impl<T, E: Into<io::Error>> Calls<T> for core::result::Result<T, E> {
    fn call(self, what: &'static str) -> Result<T> {
        self.map_err(|error| BenchError::Call { what, error: error.into() })
    }
}
