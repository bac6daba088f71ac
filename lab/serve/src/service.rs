//! What is served how: what the programs in the machine and the links to it know of each other.

use pageferry_kernel::{ReceiveMode, SendMode};
use std::path::PathBuf;

/// The server's port on the machine.
pub(crate) const HTTP: u16 = 80;

/// How a directory is served.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// How files are sent.
    pub send: SendMode,
    /// How uploads are received.
    pub receive: ReceiveMode,
    /// Where uploads are written to, which otherwise end with the machine.
    pub uploads: Option<PathBuf>,
    /// Where a line is written to for each request.
    pub log: Option<PathBuf>,
    /// Where what goes over the wire is written to, as pcap.
    pub pcap: Option<PathBuf>,
}

/// How far a server has come that has not served anything yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// So many bytes of so many are in the machine's memory.
    Loaded {
        /// Those.
        bytes: u64,
        /// Of those.
        of: u64,
    },
    /// Nothing that was given can be wrong any more: clients are served.
    Ready {
        /// What is not served, and why.
        left_out: &'a [String],
    },
}
