//! What a kernel with Internet protocols chooses: addresses, buffers, timers, and path lengths.

use core::net::Ipv4Addr;
use pageferry_core::defect::NetDefect;
use pageferry_defects::Planted;
use pageferry_hal::{Cycles, paths};

paths! {
    /// Path lengths of the Internet protocols and the card's driver, likewise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct NetPaths {
        /// `tcp_output`, for each segment.
        pub tcp_output: CodePath,
        /// `tcp_input`, for each segment.
        pub tcp_input: CodePath,
        /// `udp_output`, for each datagram.
        pub udp_output: CodePath,
        /// `udp_input`, for each datagram.
        pub udp_input: CodePath,
        /// `ip_output`, for each packet.
        pub ip_output: CodePath,
        /// `ip_input`, for each packet.
        pub ip_input: CodePath,
        /// `ether_output`, for each frame.
        pub ether_output: CodePath,
        /// `ether_input`, for each frame.
        pub ether_input: CodePath,
        /// Queueing a packet on loopback.
        pub loopback: CodePath,
        /// Handing a frame to the card.
        pub driver_output: CodePath,
        /// One interrupt of the card, apart from the frames.
        pub driver_interrupt: CodePath,
        /// Taking a frame from the card.
        pub driver_input: CodePath,
        /// Giving the card a buffer to receive into.
        pub receive_buffer: CodePath,
        /// One timer of one connection.
        pub timer: CodePath,
        /// One step of 32 bytes of a checksum that the CPU computes.
        pub checksum: CodePath,
    }
}

/// A driver copies segments as a card with header split would deliver them (page-flip paper, Appendix B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repack {
    /// And flushes the copy from the caches, where the card's bytes would not be either.
    pub flushes: bool,
}

/// How the kernel comes by addresses for the pages that its card receives into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReceiveMapping {
    /// They are clusters, whose addresses are for ever. A page that a receiver takes over is unmapped, and another
    /// takes its place.
    #[default]
    Permanent,
    /// Each is a disposable page with an ephemeral mapping that any CPU may use, until its mbuf's storage is freed
    /// (sf_buf paper, 2.3: zero-copy receive).
    Ephemeral,
}

/// The Internet protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetConfig {
    /// The card's address.
    pub address: Ipv4Addr,
    /// Bits of it that its neighbours share.
    pub prefix_bits: u8,
    /// The neighbour that leads to all others.
    pub gateway: Option<Ipv4Addr>,
    /// Control blocks at a time: one for each socket, and for each connection that outlives its own.
    pub sockets: usize,
    /// The most bytes of a packet on loopback (`LOMTU`).
    pub loopback_mtu_bytes: usize,
    /// Packets that may wait on loopback.
    pub loopback_packets: usize,
    /// The buffer for sending of a stream socket, unless it asks for another.
    pub send_buffer_bytes: usize,
    /// That for receiving, likewise.
    pub receive_buffer_bytes: usize,
    /// Memory of the datagrams that a socket keeps, likewise.
    pub datagram_buffer_bytes: usize,
    /// The driver copies what arrives into pages of its own, where the card does not split headers off.
    pub repack: Option<Repack>,
    /// How the kernel comes by addresses for what its card receives into.
    pub receive_mapping: ReceiveMapping,
    /// What the card can do about checksums, it does.
    pub checksum_offload: bool,
    /// Cycles of a millisecond.
    pub ms_cycles: Cycles,
    /// How long an acknowledgement may wait for other segments.
    pub delayed_ack_ms: u64,
    /// So many segments in order are acknowledged at once; one means that no acknowledgement waits.
    pub ack_segments: u32,
    /// A segment with more data is cut to a multiple of it; 0 where none is.
    pub segment_unit_bytes: usize,
    /// What may be under way at first: so many segments, but no more than `initial_window_bytes` unless that is less
    /// than two.
    pub initial_window_segments: usize,
    /// See there (RFC 3390).
    pub initial_window_bytes: usize,
    /// The timeout that a connection begins with (RFC 6298: a second).
    pub initial_rto_ms: u64,
    /// The shortest timeout.
    pub min_rto_ms: u64,
    /// The longest.
    pub max_rto_ms: u64,
    /// The least time between two probes of a window that is closed.
    pub min_persist_ms: u64,
    /// The most.
    pub max_persist_ms: u64,
    /// A segment is sent again so many times before the connection is given up (4.4BSD: 12, `TCP_MAXRXTSHIFT`); a SYN
    /// half as often.
    pub retransmissions: u32,
    /// How long TIME_WAIT lasts: twice the life of a segment.
    pub time_wait_ms: u64,
    /// The sequence number that the first connection begins with; others begin farther on.
    pub initial_sequence: u32,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<NetDefect>,
    /// Path lengths.
    pub paths: NetPaths,
}
