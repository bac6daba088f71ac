//! What a host is.

use pageferry_hal::MacAddress;
use std::net::Ipv4Addr;

/// What a host is.
#[derive(Clone, Copy, Debug)]
pub struct LineConfig {
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Its IP address.
    pub ip: Ipv4Addr,
    /// The most bytes behind an Ethernet header.
    pub mtu_bytes: usize,
    /// What it lets the machine have under way.
    pub window_bytes: usize,
    /// It offers timestamps (RFC 7323), which take 12 bytes of each segment.
    pub timestamps: bool,
    /// What is not acknowledged for so long is sent again.
    pub again_ms: u64,
}

impl Default for LineConfig {
    /// 10.0.0.1 at 02:00:00:00:00:02, with an MTU of 1500, a window of 1 MB, timestamps, and 200 ms.
    fn default() -> LineConfig {
        LineConfig {
            mac: MacAddress([0x02, 0, 0, 0, 0, 0x02]),
            ip: Ipv4Addr::new(10, 0, 0, 1),
            mtu_bytes: 1500,
            window_bytes: 1 << 20,
            timestamps: true,
            again_ms: 200,
        }
    }
}
