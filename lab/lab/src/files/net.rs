//! The Internet protocols of a kernel: `[net]` of its file.
//!
//! A kernel without this table has none, and cannot serve. What belongs to the network rather than to the kernel
//! (addresses, neighbours) is not in it: that is said where a kernel is put on a network.

use super::paths::paths;
use super::words::ReceiveMappingName;
use pageferry_hal::{CodePath, Cycles};
use pageferry_kernel::{NetConfig, NetPaths, Planted};
use pageferry_sourced::{Fault, Sourced};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// The sequence number that a machine's first connection begins with. Real kernels begin anywhere; here every run is
/// the same.
const FIRST_SEQUENCE: u32 = 0x1357_9bdf;

/// The Internet protocols. See [`NetConfig`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetFile {
    /// Control blocks at a time: one for each socket, and for each connection that outlives its own.
    pub sockets: Sourced<u64>,
    /// The most bytes of a packet on loopback.
    pub loopback_mtu_bytes: Sourced<u64>,
    /// Packets that may wait on loopback.
    pub loopback_packets: Sourced<u64>,
    /// The buffer for sending of a stream socket, unless it asks for another.
    pub send_buffer_bytes: Sourced<u64>,
    /// That for receiving, likewise.
    pub receive_buffer_bytes: Sourced<u64>,
    /// Memory of the datagrams that a socket keeps, likewise.
    pub datagram_buffer_bytes: Sourced<u64>,
    /// How the kernel comes by addresses for what its card receives into. See [`pageferry_kernel::ReceiveMapping`].
    pub receive_mapping: Sourced<ReceiveMappingName>,
    /// What the card can do about checksums, it does.
    pub checksum_offload: Sourced<bool>,
    /// A segment with more data is cut to a multiple of it; 0 where none is.
    pub segment_unit_bytes: Sourced<u64>,
    /// How long an acknowledgement may wait for other segments.
    pub delayed_ack_ms: Sourced<u64>,
    /// So many segments in order are acknowledged at once.
    pub ack_segments: Sourced<u32>,
    /// What may be under way at first: so many segments,
    pub initial_window_segments: Sourced<u64>,
    /// but no more than this, unless it is less than two.
    pub initial_window_bytes: Sourced<u64>,
    /// The timeout that a connection begins with (initial RTO).
    pub initial_rto_ms: Sourced<u64>,
    /// The shortest timeout (minimum RTO).
    pub min_rto_ms: Sourced<u64>,
    /// The longest (maximum RTO).
    pub max_rto_ms: Sourced<u64>,
    /// A segment is sent again so many times before the connection is given up.
    pub retransmissions: Sourced<u32>,
    /// The least time between two probes of a closed window.
    pub min_persist_ms: Sourced<u64>,
    /// The most time between them.
    pub max_persist_ms: Sourced<u64>,
    /// How long a connection that is over is remembered.
    pub time_wait_ms: Sourced<u64>,
    /// Path lengths in instructions.
    pub paths: NetPathsFile,
}

paths! {
    /// See [`NetPaths`].
    NetPathsFile for NetPaths {
        tcp_output, tcp_input, udp_output, udp_input, ip_output, ip_input, ether_output, ether_input, loopback,
        driver_output, driver_interrupt, driver_input, receive_buffer, timer, checksum,
    }
}

impl NetFile {
    /// The protocols of a host with `address`, whose first `prefix_bits` bits its neighbours share, on a machine of
    /// `clock_mhz`.
    pub fn config(&self, clock_mhz: u64, address: Ipv4Addr, prefix_bits: u8) -> NetConfig {
        let bytes = |of: &Sourced<u64>| of.value as usize;
        NetConfig {
            address,
            prefix_bits,
            gateway: None,
            sockets: self.sockets.value as usize,
            loopback_mtu_bytes: bytes(&self.loopback_mtu_bytes),
            loopback_packets: self.loopback_packets.value as usize,
            send_buffer_bytes: bytes(&self.send_buffer_bytes),
            receive_buffer_bytes: bytes(&self.receive_buffer_bytes),
            datagram_buffer_bytes: bytes(&self.datagram_buffer_bytes),
            repack: None,
            receive_mapping: self.receive_mapping.value.into(),
            checksum_offload: self.checksum_offload.value,
            ms_cycles: Cycles(clock_mhz * 1000),
            delayed_ack_ms: self.delayed_ack_ms.value,
            ack_segments: self.ack_segments.value,
            segment_unit_bytes: bytes(&self.segment_unit_bytes),
            initial_window_segments: self.initial_window_segments.value as usize,
            initial_window_bytes: bytes(&self.initial_window_bytes),
            initial_rto_ms: self.initial_rto_ms.value,
            min_rto_ms: self.min_rto_ms.value,
            max_rto_ms: self.max_rto_ms.value,
            min_persist_ms: self.min_persist_ms.value,
            max_persist_ms: self.max_persist_ms.value,
            retransmissions: self.retransmissions.value,
            time_wait_ms: self.time_wait_ms.value,
            initial_sequence: FIRST_SEQUENCE,
            defect: Planted::NONE,
            paths: self.paths.lengths(),
        }
    }

    /// Refuses what no kernel could be.
    ///
    /// # Errors
    /// The first offending key, and what is expected there.
    pub(super) fn validate(&self) -> Result<(), Fault> {
        let pairs = [
            ("net.max_rto_ms", &self.min_rto_ms, &self.max_rto_ms),
            ("net.max_persist_ms", &self.min_persist_ms, &self.max_persist_ms),
        ];
        for (key, min, max) in pairs {
            if max.value < min.value {
                let problem = format!("{}, expected at least the {} of the least", max.value, min.value);
                return Err(Fault { key: key.to_owned(), problem, suggestion: None });
            }
        }
        Ok(())
    }
}

/// Reads the table, or the word `false`: a kernel that extends another may have no protocols where that has some.
///
/// # Errors
/// As for any table; and for `true`.
pub(super) fn table_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NetFile>, D::Error> {
    struct TableOrNone;

    impl<'de> Visitor<'de> for TableOrNone {
        type Value = Option<NetFile>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of the Internet protocols, or `false` for a kernel that has none")
        }
        fn visit_bool<E: de::Error>(self, has: bool) -> Result<Option<NetFile>, E> {
            match has {
                false => Ok(None),
                true => Err(E::invalid_value(de::Unexpected::Bool(true), &self)),
            }
        }
        fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Option<NetFile>, A::Error> {
            NetFile::deserialize(MapAccessDeserializer::new(table)).map(Some)
        }
    }

    deserializer.deserialize_any(TableOrNone)
}
