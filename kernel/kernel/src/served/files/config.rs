//! What a kernel with a file server chooses.

use pageferry_defects::{Planted, defects};

/// A kernel whose file system is a server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileServiceConfig {
    /// Pages of the data piece of a request: a call for more bytes is several requests. At least one, and no more than
    /// can be attached at a time.
    pub data_pages: usize,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<FileServiceDefect>,
}

defects! {
    /// What can be wrong with a file server and its client.
    pub enum FileServiceDefect {
        ServerNotAsked: "What a dead server has opened is asked of the next one.",
        PiecesKeptAttached: "Pieces stay attached to a process between its calls.",
        CloseUntold: "The server is not told that the last descriptor of a file is gone.",
        ReadTooFar: "What the program's memory did not take stays read.",
        FullUntold: "A server that is full says that all was written.",
    }
}
