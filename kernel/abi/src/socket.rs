//! Sockets of the Internet protocols, as programs ask for them.

/// The protocol of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketKind {
    /// TCP (`SOCK_STREAM`).
    Stream,
    /// UDP (`SOCK_DGRAM`).
    Datagram,
}

/// Which directions of a connection end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Nothing more is received (`SHUT_RD`).
    Receive,
    /// Nothing more is sent: the other end comes to the end of the stream (`SHUT_WR`).
    Send,
    /// Both.
    Both,
}

/// An option of a socket, and its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketOption {
    /// Bytes of the buffer for sending, from the next connection on (`SO_SNDBUF`).
    SendBuffer(usize),
    /// Bytes of the buffer for receiving, likewise (`SO_RCVBUF`).
    ReceiveBuffer(usize),
    /// Bytes that a reader of a stream waits for, if it wants so many (`SO_RCVLOWAT`); no more than half the buffer.
    /// One that does not wait gets what there is.
    ReceiveLowWater(usize),
    /// The port may be bound to although connections from it are left (`SO_REUSEADDR`).
    ReuseAddress(bool),
    /// Small segments are not held back (`TCP_NODELAY`).
    NoDelay(bool),
    /// A close resets the connection at once (`SO_LINGER` with a time of zero).
    ResetOnClose(bool),
}
