//! The host at the far end of the wire.

use pageferry_model::net::smol::{Service, SmolConfig, SmolFarEnd};
use std::net::{Ipv4Addr, SocketAddrV4};

const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Where everything is sent back.
pub(super) const ECHO: SocketAddrV4 = SocketAddrV4::new(THEIRS, 7);
/// Where a file comes from, and its bytes.
pub(super) const SOURCE: SocketAddrV4 = SocketAddrV4::new(THEIRS, 19);
pub(super) const SOURCE_BYTES: usize = 24_000;

/// The host, with its random numbers from `seed`.
pub(super) fn far_end(seed: u64) -> SmolFarEnd {
    let mut host = SmolFarEnd::new(SmolConfig { ip: THEIRS, seed, ..SmolConfig::default() });
    host.listen(ECHO.port(), Service::Echo);
    host.listen(SOURCE.port(), Service::HastySource(SOURCE_BYTES as u64));
    host
}
