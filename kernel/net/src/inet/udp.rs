//! UDP: datagrams (4.4BSD, `udp_usrreq.c`).
//!
//! A socket keeps datagrams until they are received, up to so many bytes of memory; what comes when there is no room is
//! lost. A datagram is received whole or cut, never in parts.

use super::conn::Conn;
use super::datagrams::Datagram;
use super::pcb::{Kind, Protocol};
use super::stack::{Ip, PCB_USED_BYTES};
use super::wire::{Addresses, UDP_BYTES};
use core::net::SocketAddrV4;
use etherparse::{IpNumber, UdpHeader, UdpHeaderSlice};
use pageferry_abi::Errno;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Access, Machine};

/// Where in a header the sum is.
const SUM_AT: usize = 6;

impl<M: Machine> Ip<'_, M> {
    /// Sends a datagram.
    ///
    /// # Errors
    /// As [`Ip::ip_output`]. The bytes are freed then.
    pub(super) fn udp_output(
        &self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        mut bytes: Chain,
    ) -> Result<(), Errno> {
        self.m().execute(self.config().paths.udp_output);
        let len = bytes.len() + UDP_BYTES;
        let source = match self.source_for(*remote.ip()) {
            Ok(source) if local.ip().is_unspecified() => source,
            Ok(_) => *local.ip(),
            Err(e) => {
                self.free(bytes);
                return Err(e);
            }
        };
        let Ok(length) = u16::try_from(len) else {
            self.free(bytes);
            return Err(Errno::MessageSize);
        };
        let header =
            UdpHeader { source_port: local.port(), destination_port: remote.port(), length, checksum: 0 };
        if let Err(e) = bytes.put_in_front(self.pool(), &header.to_bytes()) {
            self.free(bytes);
            return Err(e);
        }
        let addresses = Addresses { source, destination: *remote.ip() };
        self.ip_output(addresses, IpNumber::UDP, bytes, Some(SUM_AT))
    }

    /// Takes in a datagram, without its IP header `ip`.
    pub(super) fn udp_input(&self, addresses: Addresses, mut packet: Chain, summed: bool, ip: &[u8]) {
        self.m().execute(self.config().paths.udp_input);
        let mut front = [0; UDP_BYTES];
        let len = packet.load(self.pool(), 0, &mut front);
        let header = UdpHeaderSlice::from_slice(&front[..len]).ok();
        let fits = |h: &UdpHeaderSlice<'_>| (UDP_BYTES..=packet.len()).contains(&usize::from(h.length()));
        let Some(header) = header.filter(fits) else {
            self.net.tally.malformed.add(1);
            return self.free(packet);
        };
        packet.keep_front(self.pool(), usize::from(header.length()));
        if !summed && header.checksum() != 0 {
            let pseudo = addresses.pseudo_sum(IpNumber::UDP, packet.len());
            if !self.sum_is_right(&packet, pseudo) {
                return self.free(packet);
            }
        }
        let local = SocketAddrV4::new(addresses.destination, header.destination_port());
        let from = SocketAddrV4::new(addresses.source, header.source_port());
        let unclaimed = self.net.with(self.threads, |stack| {
            let Some(id) = stack.table().pcbs.lookup(Protocol::Udp, local, from) else { return Some(packet) };
            packet.drop_front(self.pool(), UDP_BYTES);
            stack.on(id, |conn| {
                conn.release_table();
                conn.deliver_datagram(from, packet);
            });
            None
        });
        if let Some(packet) = unclaimed {
            self.net.tally.no_socket.add(1);
            let mut original = [0; 60 + UDP_BYTES];
            original[..ip.len()].copy_from_slice(ip);
            original[ip.len()..ip.len() + UDP_BYTES].copy_from_slice(&front);
            self.free(packet);
            self.port_unreachable(addresses, &original[..ip.len() + UDP_BYTES]);
        }
    }
}

impl<M: Machine> Conn<'_, '_, M> {
    fn deliver_datagram(&mut self, from: SocketAddrV4, bytes: Chain) {
        self.m().touch(self.pcb.at, PCB_USED_BYTES, Access::Write);
        let channel = self.pcb.channel();
        let Kind::Udp(udp) = &mut self.pcb.kind else { panic!("a block of TCP was found for UDP") };
        let memory_bytes = bytes.iter().map(|mbuf| mbuf.memory_bytes()).sum();
        if udp.ended || udp.memory_bytes + memory_bytes > udp.limit_bytes {
            self.ip.net.tally.no_room.add(1);
            return self.free(bytes);
        }
        udp.memory_bytes += memory_bytes;
        udp.waiting.push_back(Datagram { from, bytes, memory_bytes });
        self.wake(self.id, channel);
    }
}
