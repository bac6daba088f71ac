//! What a kernel with a file server chooses.

/// A kernel whose file system is a server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileServiceConfig {
    /// Pages of the data piece of a request: a call for more bytes is several requests. At least one, and no more than
    /// can be attached at a time.
    pub data_pages: usize,
    /// A defect to plant; [`FileServiceDefect::None`] but in tests.
    pub defect: FileServiceDefect,
}

/// A defect to plant: a kernel with one of these must be caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FileServiceDefect {
    /// Sound.
    #[default]
    None,
    /// What a dead server has opened is asked of the next one.
    ServerNotAsked,
    /// Pieces stay attached to a process between its calls.
    PiecesKeptAttached,
    /// The server is not told that the last descriptor of a file is gone.
    CloseUntold,
    /// What the program's memory did not take stays read.
    ReadTooFar,
    /// A server that is full says that all was written.
    FullUntold,
}

impl FileServiceDefect {
    /// All that can be planted.
    pub const ALL: &[FileServiceDefect] = &[
        FileServiceDefect::ServerNotAsked,
        FileServiceDefect::PiecesKeptAttached,
        FileServiceDefect::CloseUntold,
        FileServiceDefect::ReadTooFar,
        FileServiceDefect::FullUntold,
    ];
}
