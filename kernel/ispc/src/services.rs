//! What a kernel is told of its servers: plain data.

use pageferry_defects::{Planted, defects};
use pageferry_hal::paths;

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

paths! {
    /// Path lengths of a card that a server drives, beside those of [`IspcPaths`](super::IspcPaths).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct NetServicePaths {
        /// Handing a buffer to the card for the driver, to receive into,
        pub card_post: CodePath,
        /// and taking a frame that has arrived.
        pub card_take: CodePath,
    }
}

/// A kernel whose protocols and network card are servers'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetServiceConfig {
    /// Pages of the data piece of a request: a call on a stream for more bytes is several requests, and no datagram is
    /// longer. At least one, and no more than can be attached at a time.
    pub data_pages: usize,
    /// The most frames that are on their way from the protocol server to the card.
    pub frames: usize,
    /// Pieces that the card has to receive into, as far as its ring takes them.
    pub buffers: usize,
    /// Path lengths.
    pub paths: NetServicePaths,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<NetServiceDefect>,
}

defects! {
    /// What can be wrong with a protocol server and its client.
    pub enum NetServiceDefect {
        ServerNotAsked: "What a dead server's sockets are asked is asked of the next one.",
        WaiterForgotten: "Who waits for a socket is not told that something has changed.",
        DeathUntold: "Who waits for a socket is not told that its server has died.",
        CloseUntold: "The server is not told that the last descriptor of a socket is gone.",
        ReadTooFar: "What the program's memory did not take of a stream is lost.",
        FrameLetGo: "A frame's request is answered before the card has read the frame.",
        ConnectionsKept: "The connections of a dead server are kept.",
        DriverNotReplaced: "A driver's server that has died is not replaced.",
        TimeUntold: "What is due is not done.",
    }
}
