//! Frames of a host of infinite speed: ARP, and TCP over IPv4, made and read by `etherparse`.

use super::config::LineConfig;
use etherparse::{IpNumber, Ipv4Header, NetSlice, SlicedPacket, TcpHeader, TcpOptionElement, TransportSlice};
use pageferry_hal::{ETHERNET_HEADER_BYTES, ETHERNET_MIN_BYTES, MacAddress};
use std::net::{Ipv4Addr, SocketAddrV4};

/// What has arrived.
pub(super) enum Frame<'a> {
    /// Who has our address? So asks the one at `address`.
    Question {
        station: MacAddress,
        address: Ipv4Addr,
    },
    /// The machine's station.
    Answer {
        station: MacAddress,
    },
    Packet(Packet<'a>),
}

/// A segment, and where it comes from.
pub(super) struct Packet<'a> {
    pub(super) station: MacAddress,
    pub(super) from: SocketAddrV4,
    pub(super) segment: InSegment<'a>,
}

/// A segment of the machine's.
pub(super) struct InSegment<'a> {
    pub(super) to_port: u16,
    pub(super) seq: u32,
    pub(super) ack: Option<u32>,
    pub(super) window: u16,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) rst: bool,
    pub(super) push: bool,
    pub(super) max_bytes: Option<u16>,
    pub(super) scale: Option<u8>,
    pub(super) timestamps: Option<(u32, u32)>,
    pub(super) bytes: &'a [u8],
}

/// A segment to be sent.
pub(super) struct Segment {
    pub(super) seq: u32,
    pub(super) ack: Option<u32>,
    pub(super) window: u16,
    /// The most bytes of a segment, and the window's shift.
    pub(super) syn: Option<(u16, Option<u8>)>,
    pub(super) fin: bool,
    pub(super) push: bool,
    pub(super) timestamps: Option<(u32, u32)>,
    pub(super) bytes: Vec<u8>,
}

fn ethernet(to: MacAddress, config: &LineConfig, kind: u16, room: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_HEADER_BYTES + room);
    frame.extend(to.0);
    frame.extend(config.mac.0);
    frame.extend(kind.to_be_bytes());
    frame
}

fn arp(
    config: &LineConfig,
    operation: u16,
    to: MacAddress,
    station: MacAddress,
    address: Ipv4Addr,
) -> Vec<u8> {
    let mut frame = ethernet(to, config, 0x0806, 46);
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend(operation.to_be_bytes());
    frame.extend(config.mac.0);
    frame.extend(config.ip.octets());
    frame.extend(station.0);
    frame.extend(address.octets());
    frame.resize(ETHERNET_MIN_BYTES, 0);
    frame
}

/// Our answer to the one at `address`.
pub(super) fn answer(config: &LineConfig, station: MacAddress, address: Ipv4Addr) -> Vec<u8> {
    arp(config, 2, station, station, address)
}

/// Who has `address`?
pub(super) fn question(config: &LineConfig, address: Ipv4Addr) -> Vec<u8> {
    arp(config, 1, MacAddress::BROADCAST, MacAddress::default(), address)
}

/// A segment in a frame.
pub(super) fn segment(
    config: &LineConfig,
    station: MacAddress,
    to: SocketAddrV4,
    from_port: u16,
    segment: &Segment,
) -> Vec<u8> {
    let mut header = TcpHeader::new(from_port, to.port(), segment.seq, segment.window);
    header.ack = segment.ack.is_some();
    header.acknowledgment_number = segment.ack.unwrap_or(0);
    (header.syn, header.fin, header.psh) = (segment.syn.is_some(), segment.fin, segment.push);
    let mut options = Vec::with_capacity(6);
    if let Some((max, scale)) = segment.syn {
        options.push(TcpOptionElement::MaximumSegmentSize(max));
        if let Some(scale) = scale {
            options.extend([TcpOptionElement::Noop, TcpOptionElement::WindowScale(scale)]);
        }
    }
    if let Some((now, echo)) = segment.timestamps {
        options.extend([
            TcpOptionElement::Noop,
            TcpOptionElement::Noop,
            TcpOptionElement::Timestamp(now, echo),
        ]);
    }
    header.set_options(&options).expect("they fit");
    framed(config, station, to, header, &segment.bytes)
}

fn framed(
    config: &LineConfig,
    station: MacAddress,
    to: SocketAddrV4,
    mut header: TcpHeader,
    bytes: &[u8],
) -> Vec<u8> {
    let len = header.header_len() + bytes.len();
    let mut ip = Ipv4Header::new(len as u16, 64, IpNumber::TCP, config.ip.octets(), to.ip().octets())
        .expect("no segment is longer than a packet");
    ip.header_checksum = ip.calc_header_checksum();
    header.checksum = header.calc_checksum_ipv4(&ip, bytes).expect("no segment is longer than a packet");
    let mut frame = ethernet(station, config, 0x0800, 20 + len);
    frame.extend(ip.to_bytes());
    frame.extend(header.to_bytes());
    frame.extend(bytes);
    frame.resize(frame.len().max(ETHERNET_MIN_BYTES), 0);
    frame
}

/// A reset in answer to a segment.
pub(super) fn reset(config: &LineConfig, packet: &Packet<'_>) -> Vec<u8> {
    let s = &packet.segment;
    let mut header = TcpHeader::new(s.to_port, packet.from.port(), s.ack.unwrap_or(0), 0);
    header.rst = true;
    header.ack = s.ack.is_none();
    header.acknowledgment_number =
        s.seq.wrapping_add(s.bytes.len() as u32 + u32::from(s.syn) + u32::from(s.fin));
    framed(config, packet.station, packet.from, header, &[])
}

/// What a frame is to this host, if it is anything.
pub(super) fn read<'a>(config: &LineConfig, bytes: &'a [u8]) -> Option<Frame<'a>> {
    let station = MacAddress(bytes.get(6..12)?.try_into().ok()?);
    if bytes.get(12..14)? == [8, 6] {
        let asked = *bytes.get(38..42)? == config.ip.octets();
        let sender: [u8; 4] = bytes.get(28..32)?.try_into().ok()?;
        return match bytes.get(20..22)? {
            [0, 1] if asked => Some(Frame::Question { station, address: sender.into() }),
            [0, 2] => Some(Frame::Answer { station }),
            _ => None,
        };
    }
    let packet = SlicedPacket::from_ethernet(bytes).ok()?;
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) = (&packet.net, &packet.transport) else {
        return None;
    };
    if ip.header().destination_addr() != config.ip {
        return None;
    }
    let mut segment = InSegment {
        to_port: tcp.destination_port(),
        seq: tcp.sequence_number(),
        ack: tcp.ack().then(|| tcp.acknowledgment_number()),
        window: tcp.window_size(),
        syn: tcp.syn(),
        fin: tcp.fin(),
        rst: tcp.rst(),
        push: tcp.psh(),
        max_bytes: None,
        scale: None,
        timestamps: None,
        bytes: &[],
    };
    for option in tcp.options_iterator().flatten() {
        match option {
            TcpOptionElement::MaximumSegmentSize(max) => segment.max_bytes = Some(max),
            TcpOptionElement::WindowScale(scale) => segment.scale = Some(scale),
            TcpOptionElement::Timestamp(theirs, ours) => segment.timestamps = Some((theirs, ours)),
            _ => {}
        }
    }
    // Behind a short packet a frame is padded.
    let header_bytes = ETHERNET_HEADER_BYTES + ip.header().slice().len() + tcp.header_slice().len();
    let end = ETHERNET_HEADER_BYTES + usize::from(ip.header().total_len());
    segment.bytes = bytes.get(header_bytes..end)?;
    let from = SocketAddrV4::new(ip.header().source_addr(), tcp.source_port());
    Some(Frame::Packet(Packet { station, from, segment }))
}
