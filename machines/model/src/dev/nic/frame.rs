//! Frames as a card sees them: where their headers end, and what their checksums are worth.
//!
//! Nothing that a frame says of itself is believed beyond its end: what is cut off, or says that it is longer than it
//! is, is not understood, and that is all that comes of it.

use pageferry_hal::{ETHERNET_HEADER_BYTES, NicChecksum, NicFlow, NicVerdict};
use std::ops::Range;

/// Where the header of IP begins.
const IP_AT: usize = ETHERNET_HEADER_BYTES;
const IPV4: [u8; 2] = [0x08, 0x00];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What a card understands of a frame: IPv4 without fragments, and TCP or UDP in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Headers {
    protocol: u8,
    /// The header of IP.
    ip: Range<usize>,
    /// The header of TCP or UDP.
    transport: Range<usize>,
    /// Where what IP carries ends: padding may follow.
    ends_at: usize,
}

impl Headers {
    /// Those of `frame`; `None` when it is not understood.
    pub(crate) fn of(frame: &[u8]) -> Option<Headers> {
        let ip_at = IP_AT;
        let first = *frame.get(ip_at)?;
        if frame[ip_at - 2..ip_at] != IPV4 || first >> 4 != 4 {
            return None;
        }
        let ip_len = usize::from(first & 15) * 4;
        let total = usize::from(word(frame, ip_at + 2)?);
        let is_fragment = word(frame, ip_at + 6)? & 0x3fff != 0;
        let protocol = *frame.get(ip_at + 9)?;
        let (at, ends_at) = (ip_at + ip_len, ip_at + total);
        if ip_len < 20 || ends_at > frame.len() || is_fragment {
            return None;
        }
        let min = match protocol {
            TCP => 20,
            UDP => 8,
            _ => return None,
        };
        if at + min > ends_at {
            return None;
        }
        let len = if protocol == TCP { usize::from(frame[at + 12] >> 4) * 4 } else { min };
        if len < min || at + len > ends_at {
            return None;
        }
        Some(Headers { protocol, ip: ip_at..at, transport: at..at + len, ends_at })
    }

    /// Where they end, in bytes from the start of the frame.
    pub(crate) fn end(&self) -> usize {
        self.transport.end
    }

    /// What tells this flow of TCP from others: the addresses and ports of both ends.
    pub(crate) fn flow(&self, frame: &[u8]) -> Option<[u8; 12]> {
        let mut flow = [0; 12];
        flow[..8].copy_from_slice(&frame[self.ip.start + 12..self.ip.start + 20]);
        flow[8..].copy_from_slice(&frame[self.transport.start..self.transport.start + 4]);
        (self.protocol == TCP).then_some(flow)
    }

    /// The same, of what the kernel calls so.
    pub(crate) fn flow_of(NicFlow { remote, local }: NicFlow) -> [u8; 12] {
        let mut flow = [0; 12];
        flow[..4].copy_from_slice(&remote.ip().octets());
        flow[4..8].copy_from_slice(&local.ip().octets());
        flow[8..10].copy_from_slice(&remote.port().to_be_bytes());
        flow[10..].copy_from_slice(&local.port().to_be_bytes());
        flow
    }

    /// Whether the checksums of the frame are right.
    fn verdict(&self, frame: &[u8]) -> NicVerdict {
        if fold(sum(&frame[self.ip.clone()])) != 0xffff {
            return NicVerdict::Bad;
        }
        let carried = &frame[self.transport.start..self.ends_at];
        if self.protocol == UDP {
            if carried[6..8] == [0, 0] {
                return NicVerdict::Unchecked;
            }
            if usize::from(u16::from_be_bytes([carried[4], carried[5]])) != carried.len() {
                return NicVerdict::Unchecked;
            }
        }
        let addresses = &frame[self.ip.start + 12..self.ip.start + 20];
        let pseudo = sum(addresses) + u64::from(self.protocol) + carried.len() as u64;
        if fold(pseudo + sum(carried)) == 0xffff { NicVerdict::Good } else { NicVerdict::Bad }
    }
}

/// A segment of TCP that carries data and has nothing else to say, with right sums: one that can be joined to others.
pub(crate) struct Segment<'a> {
    /// Up to its data.
    pub(crate) header: &'a [u8],
    pub(crate) data: &'a [u8],
    /// What tells its flow from others.
    pub(crate) flow: [u8; 12],
    /// Where the header of TCP begins.
    tcp_at: usize,
}

const TCP_FLAGS: usize = 13;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

impl<'a> Segment<'a> {
    pub(crate) fn of(headers: &Headers, frame: &'a [u8]) -> Option<Segment<'a>> {
        let flow = headers.flow(frame)?;
        let (header, tcp_at) = (&frame[..headers.end()], headers.transport.start);
        let data = &frame[headers.end()..headers.ends_at];
        let says_nothing_else = header[tcp_at + TCP_FLAGS] & !PSH == ACK;
        let is_right = says_nothing_else && !data.is_empty() && headers.verdict(frame) == NicVerdict::Good;
        is_right.then_some(Segment { header, data, flow, tcp_at })
    }

    /// The sequence number of its first byte.
    pub(crate) fn seq(&self) -> u32 {
        let at = self.tcp_at + 4;
        u32::from_be_bytes(self.header[at..at + 4].try_into().expect("four bytes"))
    }

    pub(crate) fn is_pushed(&self) -> bool {
        self.header[self.tcp_at + TCP_FLAGS] & PSH != 0
    }

    /// Its header, as if it began with the byte that has this number.
    pub(crate) fn header_at(&self, seq: u32) -> Vec<u8> {
        let (mut header, at) = (self.header.to_vec(), self.tcp_at + 4);
        header[at..at + 4].copy_from_slice(&seq.to_be_bytes());
        header
    }

    /// Whether another segment's header says the same, but for what is where in the stream.
    pub(crate) fn says_the_same(&self, other: &[u8]) -> bool {
        self.header.len() == other.len() && self.without_place(self.header) == self.without_place(other)
    }

    /// A header of the same layout without lengths, identification, sums, sequence number and PSH.
    fn without_place(&self, header: &[u8]) -> Vec<u8> {
        let (mut header, tcp_at) = (header.to_vec(), self.tcp_at);
        header[IP_AT + 2..IP_AT + 6].fill(0);
        header[IP_AT + 10..IP_AT + 12].fill(0);
        header[tcp_at + 4..tcp_at + 8].fill(0);
        header[tcp_at + 16..tcp_at + 18].fill(0);
        header[tcp_at + TCP_FLAGS] &= !PSH;
        header
    }

    /// Makes a header one over so many bytes of data, of which the last are pushed or not.
    pub(crate) fn put_over(header: &mut [u8], data_bytes: usize, is_pushed: bool) {
        let tcp_at = IP_AT + usize::from(header[IP_AT] & 15) * 4;
        let total = (header.len() - IP_AT + data_bytes) as u16;
        header[IP_AT + 2..IP_AT + 4].copy_from_slice(&total.to_be_bytes());
        header[IP_AT + 10..IP_AT + 12].fill(0);
        let sum = !fold(sum(&header[IP_AT..tcp_at]));
        header[IP_AT + 10..IP_AT + 12].copy_from_slice(&sum.to_be_bytes());
        let flags = &mut header[tcp_at + TCP_FLAGS];
        *flags = if is_pushed { *flags | PSH } else { *flags & !PSH };
    }
}

/// What is to be thought of a frame's checksums.
pub(crate) fn verdict(frame: &[u8]) -> NicVerdict {
    Headers::of(frame).map_or(NicVerdict::Unchecked, |headers| headers.verdict(frame))
}

/// Puts a checksum into a frame.
pub(crate) fn put_checksum(frame: &mut [u8], NicChecksum { from, at }: NicChecksum) {
    let sum = !fold(sum(&frame[from..]));
    // UDP says with zero that there is none; to all who add them up, the two are the same.
    let sum = if sum == 0 { 0xffff } else { sum };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

/// The sum of the words of `bytes`; a last one that is half is filled with zeros.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let half = rest.first().map_or(0, |&byte| u64::from(byte) << 8);
    words.iter().map(|&pair| u64::from(u16::from_be_bytes(pair))).sum::<u64>() + half
}

/// A sum with its carries added in.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of UDP or TCP with right checksums.
    fn frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let head = if protocol == TCP { 20 } else { 8 };
        let total = 20 + head + payload.len();
        let mut f = vec![2; 12];
        f.extend(IPV4);
        f.extend([0x45, 0, (total >> 8) as u8, total as u8, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
        f.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        put_checksum(&mut f, NicChecksum { from: 14, at: 24 });
        let mut transport = vec![0; head];
        transport[..4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
        let at = if protocol == TCP {
            transport[12] = 0x50;
            16
        } else {
            let len = (head + payload.len()) as u16;
            transport[4..6].copy_from_slice(&len.to_be_bytes());
            6
        };
        let len = head + payload.len();
        let pseudo = fold(sum(&f[26..34]) + u64::from(protocol) + len as u64);
        transport[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        f.extend(transport);
        f.extend(payload);
        put_checksum(&mut f, NicChecksum { from: 34, at: 34 + at });
        f
    }

    #[test]
    fn headers_end_where_they_say() {
        assert_eq!(Headers::of(&frame(UDP, b"hello")).expect("understood").end(), 42);
        let mut tcp = frame(TCP, &[7; 100]);
        assert_eq!(Headers::of(&tcp).expect("understood").end(), 54);
        tcp[46] = 0x80;
        assert_eq!(Headers::of(&tcp).expect("understood").end(), 66);
    }

    #[test]
    fn lies_are_not_understood() {
        let good = frame(TCP, &[7; 8]);
        let lie = |at: usize, byte: u8| {
            let mut frame = good.clone();
            frame[at] = byte;
            Headers::of(&frame)
        };
        assert!(Headers::of(&good).is_some());
        assert_eq!(lie(46, 0xf0), None, "a header of TCP beyond the end");
        assert_eq!(lie(46, 0x40), None, "a header of TCP that is too short");
        assert_eq!(lie(14, 0x4f), None, "a header of IP beyond the end");
        assert_eq!(lie(14, 0x44), None, "a header of IP that is too short");
        assert_eq!(lie(14, 0x65), None, "IPv6 in the clothes of IPv4");
        assert_eq!(lie(17, 200), None, "longer than the frame");
        assert_eq!(lie(17, 30), None, "too short for its headers");
        assert_eq!(lie(20, 0x20), None, "a fragment");
        assert_eq!(lie(23, 50), None, "another protocol");
        assert_eq!(lie(12, 0x86), None, "another type");
    }

    #[test]
    fn sums_are_right_or_wrong() {
        for (protocol, len) in [(UDP, 0), (UDP, 5), (TCP, 0), (TCP, 1001)] {
            let mut f = frame(protocol, &vec![0xa5; len]);
            assert_eq!(verdict(&f), NicVerdict::Good, "{protocol} {len}");
            // Padding is no part of it.
            f.extend([1, 2, 3]);
            assert_eq!(verdict(&f), NicVerdict::Good, "{protocol} {len}, padded");
            for at in [22, 30, 35] {
                let mut bad = f.clone();
                bad[at] ^= 0x10;
                assert_eq!(verdict(&bad), NicVerdict::Bad, "{protocol} {len}, byte {at}");
            }
        }
        let mut none = frame(UDP, b"no sum");
        none[40..42].fill(0);
        assert_eq!(verdict(&none), NicVerdict::Unchecked);
        assert_eq!(verdict(&[0xff; 60]), NicVerdict::Unchecked);
        assert_eq!(verdict(&[]), NicVerdict::Unchecked);
    }

    proptest! {
        #[test]
        fn headers_of_anything_lie_within_it(
            start in proptest::collection::vec(any::<u8>(), 0..80),
            looks in any::<bool>(),
            protocol in prop_oneof![Just(TCP), Just(UDP), any::<u8>()],
        ) {
            let mut frame = start;
            // So that more than one in millions gets past the first look.
            if looks && frame.len() > 23 {
                frame[12..14].copy_from_slice(&IPV4);
                frame[14] = 0x40 | (frame[14] & 15);
                frame[16] = 0;
                frame[20..22].fill(0);
                frame[23] = protocol;
            }
            if let Some(headers) = Headers::of(&frame) {
                prop_assert!(headers.end() <= headers.ends_at && headers.ends_at <= frame.len());
            }
            verdict(&frame);
        }
    }
}
