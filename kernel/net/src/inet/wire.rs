//! What is in the headers of packets: values made from bytes and bytes made from values, by `etherparse`. Nothing here
//! knows of mbufs, and nothing can fail but the reading of what is no such header.

use core::net::Ipv4Addr;
use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4Header};
use pageferry_core::mbuf::{Chain, Mbuf, Pool};
use pageferry_hal::ETHERNET_HEADER_BYTES;
use pageferry_hal::NicChecksum;
use pageferry_hal::{MacAddress, Machine};

/// Bytes of an IPv4 header without options, which is all that is sent.
pub(super) const IP_BYTES: usize = 20;
/// Bytes of a TCP header without options.
pub(super) const TCP_BYTES: usize = 20;
/// Bytes of a UDP header.
pub(super) const UDP_BYTES: usize = 8;
/// The most bytes of IP and TCP headers with all their options.
pub(super) const MAX_HEADER_BYTES: usize = 60 + 60;

/// Types of what is in an Ethernet frame.
pub(super) const TYPE_IP: u16 = 0x0800;
pub(super) const TYPE_ARP: u16 = 0x0806;

/// Where a packet that arrived comes from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
}

impl Addresses {
    /// The other way.
    pub(super) fn reversed(self) -> Addresses {
        Addresses { source: self.destination, destination: self.source }
    }

    /// The sum of the pseudo header that TCP and UDP count in.
    pub(super) fn pseudo_sum(self, protocol: IpNumber, len_bytes: usize) -> Sum16BitWords {
        Sum16BitWords::new()
            .add_4bytes(self.source.octets())
            .add_4bytes(self.destination.octets())
            .add_2bytes([0, protocol.0])
            .add_2bytes((len_bytes as u16).to_be_bytes())
    }
}

/// An Ethernet header.
pub(super) fn ethernet(destination: MacAddress, source: MacAddress, kind: u16) -> [u8; 14] {
    let mut bytes = [0; 14];
    bytes[..6].copy_from_slice(&destination.0);
    bytes[6..12].copy_from_slice(&source.0);
    bytes[12..].copy_from_slice(&kind.to_be_bytes());
    bytes
}

/// An IPv4 header, its sum in it.
pub(super) fn ip(addresses: Addresses, protocol: IpNumber, payload_bytes: usize, id: u16) -> [u8; IP_BYTES] {
    let (source, destination) = (addresses.source.octets(), addresses.destination.octets());
    let header = Ipv4Header::new(payload_bytes as u16, 64, protocol, source, destination);
    let mut header = header.expect("no packet is longer than an IP header can say");
    header.identification = id;
    header.dont_fragment = true;
    header.header_checksum = header.calc_header_checksum();
    let mut bytes = [0; IP_BYTES];
    bytes.copy_from_slice(&header.to_bytes());
    bytes
}

/// The bytes at the front of a packet: as many of `buffer` as there are, up to the first that is in a receive area.
/// What a process may write meanwhile is no header.
pub(super) fn front<'b, M: Machine>(chain: &Chain, pool: &Pool<M>, buffer: &'b mut [u8]) -> &'b [u8] {
    let own = chain.iter().take_while(|mbuf| pool.area_of(mbuf).is_none());
    let len = own.map(Mbuf::len).sum::<usize>().min(buffer.len());
    let len = chain.load(pool, 0, &mut buffer[..len]);
    &buffer[..len]
}

/// How the sum of a packet's transport header comes to be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SumBy {
    /// It is, or there is none.
    Nothing,
    /// The card puts it in: over what begins at byte `from` of the IP packet, at byte `at`.
    Card { from: usize, at: usize },
}

impl SumBy {
    /// What the card is to put into the frame.
    pub(super) fn by_card(self) -> Option<NicChecksum> {
        match self {
            SumBy::Nothing => None,
            SumBy::Card { from, at } => {
                Some(NicChecksum { from: from + ETHERNET_HEADER_BYTES, at: at + ETHERNET_HEADER_BYTES })
            }
        }
    }
}
