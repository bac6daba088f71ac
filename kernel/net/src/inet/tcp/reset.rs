//! Segments without a connection: what comes for none is answered by a reset (RFC 9293, 3.10.7.1).

use super::super::conn::Conn;
use super::super::stack::Ip;
use super::super::wire::Addresses;
use super::input::Segment;
use super::output::SUM_AT;
use core::net::SocketAddrV4;
use etherparse::{IpNumber, TcpHeader};
use pageferry_core::mbuf::Chain;
use pageferry_hal::Machine;

impl<M: Machine> Ip<'_, M> {
    /// Answers a segment that is for no connection.
    pub(super) fn refuse(&self, segment: &Segment) {
        if segment.rst {
            return;
        }
        let (seq, ack) = match segment.ack {
            Some(ack) => (ack.0, None),
            None => (0, Some(segment.end().0)),
        };
        self.send_reset(segment.local, segment.remote, seq, ack);
    }

    fn send_reset(&self, local: SocketAddrV4, remote: SocketAddrV4, seq: u32, ack: Option<u32>) {
        let mut header = TcpHeader::new(local.port(), remote.port(), seq, 0);
        (header.rst, header.ack) = (true, ack.is_some());
        header.acknowledgment_number = ack.unwrap_or(0);
        let mut packet = Chain::new();
        if packet.put_in_front(self.pool(), &header.to_bytes()).is_err() {
            self.net.tally.no_room.add(1);
            return;
        }
        let addresses = Addresses { source: *local.ip(), destination: *remote.ip() };
        // Lost, if it is: the next segment is answered again.
        let _ = self.ip_output(addresses, IpNumber::TCP, packet, Some(SUM_AT));
    }
}

impl<M: Machine> Conn<'_, '_, M> {
    /// Tells the other end of a connection that it is over.
    pub(super) fn reset_peer(&mut self) {
        let t = self.tcb();
        let Some((local, remote)) = t.ends else { return };
        let (seq, ack) = (t.snd.next.0, t.rcv.next.0);
        self.send_reset(local, remote, seq, Some(ack));
    }
}
