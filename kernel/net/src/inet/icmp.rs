//! ICMP: answers to echo requests, and "port unreachable" for datagrams that no socket is for (4.4BSD, `ip_icmp.c`).
//! Everything else is dropped: TCP finds out by its timers.

use super::stack::Ip;
use super::wire::Addresses;
use etherparse::checksum::Sum16BitWords;
use etherparse::{Icmpv4Header, Icmpv4Type, IpNumber, icmpv4};
use pageferry_core::mbuf::{Chain, from_bytes};
use pageferry_hal::Machine;

/// Bytes of the header of an echo.
const ECHO_BYTES: usize = 8;
/// Where in a header the sum is.
const SUM_AT: usize = 2;

impl<M: Machine> Ip<'_, M> {
    /// Takes in an ICMP packet, without its IP header.
    pub(super) fn icmp_input(&self, addresses: Addresses, mut packet: Chain) {
        let mut bytes = [0; ECHO_BYTES];
        if packet.load(self.pool(), 0, &mut bytes) < ECHO_BYTES {
            self.net.tally.malformed.add(1);
            return self.free(packet);
        }
        if !self.sum_is_right(&packet, Sum16BitWords::new()) {
            return self.free(packet);
        }
        let kind = Icmpv4Header::from_slice(&bytes).map(|(header, _)| header.icmp_type);
        let Ok(Icmpv4Type::EchoRequest(echo)) = kind else {
            self.net.tally.no_socket.add(1);
            return self.free(packet);
        };
        let reply = Icmpv4Header { icmp_type: Icmpv4Type::EchoReply(echo), checksum: 0 };
        packet.drop_front(self.pool(), ECHO_BYTES);
        self.icmp_output(addresses.reversed(), reply, packet);
    }

    /// Says that no socket is for a datagram; `original` is what it began with.
    pub(super) fn port_unreachable(&self, addresses: Addresses, original: &[u8]) {
        let kind = Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Port);
        match from_bytes(self.pool(), original) {
            Ok(packet) => {
                let header = Icmpv4Header { icmp_type: kind, checksum: 0 };
                self.icmp_output(addresses.reversed(), header, packet);
            }
            Err(_) => self.net.tally.no_room.add(1),
        }
    }

    fn icmp_output(&self, addresses: Addresses, header: Icmpv4Header, mut packet: Chain) {
        if packet.put_in_front(self.pool(), &header.to_bytes()).is_err() {
            self.net.tally.no_room.add(1);
            return self.free(packet);
        }
        // Lost, if it is: whoever asked asks again.
        let _ = self.ip_output(addresses, IpNumber::ICMP, packet, Some(SUM_AT));
    }
}
