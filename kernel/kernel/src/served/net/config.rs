//! What a kernel with a protocol server and a driver's server chooses.

use pageferry_defects::{Planted, defects};
use pageferry_hal::paths;

paths! {
    /// Path lengths of a card that a server drives, beside those of [`IspcPaths`](crate::IspcPaths).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct NetServicePaths {
        /// Handing a buffer to the card for the driver, to receive into,
        pub card_post: Path,
        /// and taking a frame that has arrived.
        pub card_take: Path,
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
