//! What a host is.

use pageferry_hal::MacAddress;
use std::net::Ipv4Addr;

/// What a host is.
#[derive(Clone, Debug)]
pub struct SmolConfig {
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Its IP address.
    pub ip: Ipv4Addr,
    /// How many bits of it are those of the network.
    pub prefix_len: u8,
    /// The most bytes behind an Ethernet header.
    pub mtu_bytes: usize,
    /// Bytes that a connection buffers, each way; more than 65535 makes it scale its window.
    pub buffer_bytes: usize,
    /// A connection whose peer says nothing for so long is given up.
    pub timeout_ms: u64,
    /// Where its sequence numbers come from.
    pub seed: u64,
}

impl Default for SmolConfig {
    /// 10.0.0.2/24 at 02:00:00:00:00:02, with an MTU of 1500.
    fn default() -> SmolConfig {
        SmolConfig {
            mac: MacAddress([0x02, 0, 0, 0, 0, 0x02]),
            ip: Ipv4Addr::new(10, 0, 0, 2),
            prefix_len: 24,
            mtu_bytes: 1500,
            buffer_bytes: 65535,
            timeout_ms: 120_000,
            seed: 0,
        }
    }
}
