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
    /// Where what goes over the wire is written to, as pcap.
    pub pcap: Option<PathBuf>,
}
