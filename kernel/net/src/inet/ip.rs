//! IPv4 (4.4BSD, `ip_input.c`, `ip_output.c`).
//!
//! Packets for this host are handed up, those in fragments once they are whole ([`reass`](super::reass)); others are
//! dropped: this is no router. Nothing that is sent is in fragments. What TCP sends fits the way that it goes; a
//! datagram of UDP that does not is refused.

use super::fragments::{Fragment, PacketKey};
use super::stack::Ip;
use super::wire::{self, Addresses, IP_BYTES, SumBy};
use core::net::Ipv4Addr;
use core::sync::atomic::Ordering::Relaxed;
use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4HeaderSlice};
use pageferry_abi::Errno;
use pageferry_core::counter::KernelCounter;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Machine, NicVerdict};

/// The longest header with options.
const MAX_IP_BYTES: usize = 60;

impl<M: Machine> Ip<'_, M> {
    /// Sends a transport header and what is behind it. The header's sum is put in at `sum_at`, where it is zero before,
    /// by the CPU or by the card.
    ///
    /// # Errors
    /// [`Errno::NetUnreachable`], [`Errno::MessageSize`] for what does not fit one packet, [`Errno::NoMemory`]. The
    /// packet is freed then.
    pub(super) fn ip_output(
        &self,
        addresses: Addresses,
        protocol: IpNumber,
        mut packet: Chain,
        sum_at: Option<usize>,
    ) -> Result<(), Errno> {
        self.m().execute(self.config().paths.ip_output);
        let (route, len) = match self.route(addresses.destination) {
            Ok(route) if packet.len() + IP_BYTES <= self.mtu(route) => (route, packet.len()),
            other => {
                self.free(packet);
                return Err(other.err().unwrap_or(Errno::MessageSize));
            }
        };
        let mut by = SumBy::Nothing;
        if let Some(at) = sum_at {
            let pseudo = match protocol {
                IpNumber::ICMP => Sum16BitWords::new(),
                _ => addresses.pseudo_sum(protocol, len),
            };
            let sum = if self.sums_by_card(route) && protocol != IpNumber::ICMP {
                by = SumBy::Card { from: IP_BYTES, at: IP_BYTES + at };
                !pseudo.ones_complement()
            } else {
                match packet.sum(self.pool(), pseudo, self.config().paths.checksum) {
                    Ok(sum) => sum.to_ones_complement_with_no_zero(),
                    Err(e) => {
                        self.net.tally.no_room.add(1);
                        self.free(packet);
                        return Err(e);
                    }
                }
            };
            packet.overwrite(self.pool(), at, &sum.to_ne_bytes());
        }
        let id = self.net.next_ip_id.fetch_add(1, Relaxed);
        if let Err(e) = packet.prepend(self.pool(), &wire::ip(addresses, protocol, len, id)) {
            self.net.tally.no_room.add(1);
            self.free(packet);
            return Err(e);
        }
        self.transmit(route, packet, by);
        Ok(())
    }

    /// Takes in an IP packet. `verdict` is what the card says of its sums; nothing on loopback.
    pub(super) fn ip_input(&self, mut packet: Chain, verdict: Option<NicVerdict>) {
        self.m().execute(self.config().paths.ip_input);
        self.m().count(KernelCounter::PacketsReceived, 1);
        self.net.tally.received.add(1);
        let mut front = [0; MAX_IP_BYTES];
        let bytes = wire::front(&packet, self.pool(), &mut front);
        let from_card = verdict.is_some();
        let verdict = verdict.filter(|_| self.config().checksum_offload).unwrap_or(NicVerdict::Unchecked);
        let sound = self.sound_header(bytes, packet.len(), verdict);
        let Some(header) = sound.filter(|header| !from_card || self.is_from_outside(header.addresses)) else {
            self.net.tally.malformed.add(1);
            return self.free(packet);
        };
        let (header_bytes, total, protocol) = header.lengths;
        packet.keep_front(self.pool(), total);
        packet.drop_front(self.pool(), header_bytes);
        let mut summed = verdict == NicVerdict::Good || self.has(NetDefect::SumsIgnored);
        if let Some((id, fragment)) = header.fragment {
            let key = PacketKey { addresses: header.addresses, protocol, id };
            let Some(whole) = self.reassemble(key, fragment, packet) else { return };
            // What a card has summed was a part.
            (packet, summed) = (whole, false);
        }
        match protocol {
            IpNumber::TCP => self.tcp_input(header.addresses, packet, summed),
            IpNumber::UDP => self.udp_input(header.addresses, packet, summed, &front[..header_bytes]),
            IpNumber::ICMP => self.icmp_input(header.addresses, packet),
            _ => {
                self.net.tally.no_socket.add(1);
                self.free(packet);
            }
        }
    }

    /// The sum over a packet that has arrived, and what `pseudo` has already, is right. One that is not, or that cannot
    /// be found out, is counted.
    pub(super) fn sum_is_right(&self, packet: &Chain, pseudo: Sum16BitWords) -> bool {
        match packet.sum(self.pool(), pseudo, self.config().paths.checksum) {
            Ok(sum) if sum.ones_complement() == 0 => true,
            Ok(_) => {
                self.net.tally.malformed.add(1);
                false
            }
            Err(_) => {
                self.net.found_no_memory();
                false
            }
        }
    }

    /// What comes by the card does not come from this host, and does not go to loopback (RFC 1122, 3.2.1.3).
    fn is_from_outside(&self, addresses: Addresses) -> bool {
        !self.is_own(addresses.source) && !addresses.destination.is_loopback()
    }

    /// The header of a packet of `len` bytes that begins with `bytes`, if it is sound and the packet is for this host.
    fn sound_header(&self, bytes: &[u8], len: usize, verdict: NicVerdict) -> Option<SoundHeader> {
        let header = Ipv4HeaderSlice::from_slice(bytes).ok()?;
        let (header_bytes, total) = (header.slice().len(), usize::from(header.total_len()));
        let sum_is_right = || header.header_checksum() == header.to_header().calc_header_checksum();
        let sound = (header_bytes..=len).contains(&total)
            && (verdict != NicVerdict::Bad || self.has(NetDefect::SumsIgnored))
            && (verdict == NicVerdict::Good || sum_is_right());
        let addresses = Addresses { source: header.source_addr(), destination: header.destination_addr() };
        let sane = sound && self.is_own(addresses.destination) && is_a_station(addresses.source);
        let fragment = header.is_fragmenting_payload().then(|| {
            let offset = usize::from(header.fragments_offset().byte_offset());
            (header.identification(), Fragment { offset, more: header.more_fragments() })
        });
        sane.then_some(SoundHeader { addresses, lengths: (header_bytes, total, header.protocol()), fragment })
    }
}

struct SoundHeader {
    addresses: Addresses,
    /// Of the header, and of the packet; and what is in it.
    lengths: (usize, usize, IpNumber),
    /// Which packet it is a part of, and where.
    fragment: Option<(u16, Fragment)>,
}

/// An address that one station can have.
fn is_a_station(address: Ipv4Addr) -> bool {
    !address.is_broadcast() && !address.is_multicast() && !address.is_unspecified()
}
