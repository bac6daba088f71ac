//! What the card does with headers and checksums.

use super::*;

/// A frame of UDP or TCP from the far end, with right checksums.
pub(super) fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let head = if protocol == 6 { 20 } else { 8 };
    let total = (20 + head + payload.len()) as u16;
    let mut f = frame_to(CARD, 14, 0);
    f[12..14].copy_from_slice(&[8, 0]);
    f.extend([&[0x45, 0], &total.to_be_bytes()[..], &[0, 1, 0x40, 0, 64, protocol, 0, 0]].concat());
    f.extend([10, 0, 0, 2, 10, 0, 0, 1]);
    let sum = !ones(&[&f[14..34]]);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    let len = (head + payload.len()) as u16;
    let mut transport = vec![0; head];
    transport[..4].copy_from_slice(&[0, 7, 0x30, 0x39]);
    if protocol == 6 {
        transport[12] = 0x50;
    } else {
        transport[4..6].copy_from_slice(&len.to_be_bytes());
    }
    let pseudo = [&f[26..34], &[0, protocol], &len.to_be_bytes()].concat();
    let sum = !ones(&[&pseudo, &transport, payload]);
    let at = if protocol == 6 { 16 } else { 6 };
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    f.extend(transport);
    f.extend(payload);
    f
}

/// The ones' complement sum of parts of even length, but for the last.
fn ones(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// What becomes of frames that arrive at a card with buffers for headers of so many bytes.
fn split(frames: Vec<Vec<u8>>, header_bytes: usize, check: impl Fn(&Driver, usize, NicArrival) + 'static) {
    let count = frames.len();
    let script = Script::of(frames.into_iter().map(|frame| (100_000, frame)));
    run(&config("today"), Some(script), move |d| {
        for i in 0..count as u32 {
            for frame in [300 + i, 400 + i] {
                d.m.poke_frame(Pfn(frame), 0, &[0xee; PAGE_SIZE]);
            }
            let header = Some(Fragment { frame: Pfn(300 + i), offset: 64, len_bytes: header_bytes });
            let data = vec![Fragment { frame: Pfn(400 + i), offset: 0, len_bytes: PAGE_SIZE }];
            d.nic.post_receive(NicRing::Main, NicReceive { tag: u64::from(i), header, data });
        }
        d.nic.start_receive(NicRing::Main);
        for i in 0..count {
            let NicReceived { tag, result } = d.received();
            assert_eq!(tag, i as u64);
            check(d, i, result.expect("a frame"));
        }
    });
}

#[test]
fn headers_are_split_off_and_what_follows_begins_a_page() {
    let payloads: Vec<Vec<u8>> = (0..4).map(|i| vec![i as u8; [1400, 100, 1400, 33][i]]).collect();
    let frames: Vec<_> = payloads.iter().zip([6, 17, 17, 6]).map(|(p, kind)| packet(kind, p)).collect();
    let (sent, heads) = (frames.clone(), [54, 42, 42, 54]);
    split(frames, 128, move |d, i, arrival| {
        let (head, frame) = (heads[i], &sent[i]);
        assert_eq!((arrival.header_bytes, arrival.data_bytes), (head, frame.len() - head));
        assert_eq!(arrival.verdict, NicVerdict::Good);
        let header = d.m.frame_bytes(Pfn(300 + i as u32));
        assert_eq!(header[64..64 + head], frame[..head]);
        assert!(header[..64].iter().chain(&header[64 + head..]).all(|&b| b == 0xee));
        let data = d.m.frame_bytes(Pfn(400 + i as u32));
        assert_eq!(data[..payloads[i].len()], payloads[i]);
        assert!(data[payloads[i].len()..].iter().all(|&b| b == 0xee));
    });
}

#[test]
fn headers_that_lie_or_do_not_fit_are_not_split_off() {
    let good = packet(6, &[5; 100]);
    let lie = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    // Lengths of TCP, of IP, of all; another protocol; IPv6; a fragment.
    let lies = [lie(46, 0xf0), lie(14, 0x4f), lie(16, 0x10), lie(23, 99), lie(12, 0x86), lie(20, 0x20)];
    let sent = lies.clone();
    split(lies.to_vec(), 128, move |d, i, arrival| {
        let len = sent[i].len();
        let split = arrival.header_bytes;
        assert!(split == 0 || split <= len, "{i}: {arrival:?}");
        assert_eq!(split + arrival.data_bytes, len);
        let header = d.m.frame_bytes(Pfn(300 + i as u32));
        let data = d.m.frame_bytes(Pfn(400 + i as u32));
        assert_eq!([&header[64..64 + split], &data[..len - split]].concat(), sent[i]);
        assert!(header[64 + split..].iter().chain(&data[len - split..]).all(|&b| b == 0xee));
    });
    let whole = good.clone();
    split(vec![good], 53, move |d, _, arrival| {
        assert_eq!((arrival.header_bytes, arrival.data_bytes), (0, whole.len()));
        assert_eq!(d.bytes(400, whole.len()), whole);
    });
}

#[test]
fn checksums_are_judged() {
    let good = packet(17, b"some bytes and one more");
    let flipped = |at: usize| {
        let mut frame = good.clone();
        frame[at] ^= 4;
        frame
    };
    let frames = vec![good.clone(), flipped(60), flipped(24), flipped(15), frame_to(CARD, 100, 0)];
    split(frames, 128, |_, i, arrival| {
        use NicVerdict::{Bad, Good, Unchecked};
        assert_eq!(arrival.verdict, [Good, Bad, Bad, Bad, Unchecked][i]);
    });
    // One that cannot says nothing.
    run(&config("pentium-pro"), Some(Script::of([(100_000, flipped(60))])), |d| {
        d.post(1, 300);
        assert_eq!(d.received().result.expect("a frame").verdict, NicVerdict::Unchecked);
    });
}

#[test]
fn checksums_are_put_in_where_they_belong() {
    for (protocol, at) in [(6, 50), (17, 40)] {
        for len in [0, 1, 2, 777, 1400] {
            let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let expected = packet(protocol, &payload);
            let mut frame = expected.clone();
            let carried = (frame.len() - 34) as u16;
            let pseudo = ones(&[&frame[26..34], &[0, protocol], &carried.to_be_bytes()]);
            frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            let sink = Sink::default();
            let seen = sink.clone();
            run(&config("xeon-mp"), Some(Box::new(sink)), move |d| {
                d.m.poke_frame(Pfn(200), 100, &frame[..37]);
                d.m.poke_frame(Pfn(201), 0, &frame[37..]);
                let part = |frame, offset, len_bytes| Fragment { frame: Pfn(frame), offset, len_bytes };
                let fragments = vec![part(200, 100, 37), part(201, 0, frame.len() - 37)];
                let checksum = Some(NicChecksum { from: 34, at });
                d.nic.post_transmit(NicTransmit { tag: 1, fragments, checksum });
                d.nic.start_transmit();
                assert_eq!(d.transmitted().result, Ok(()));
            });
            assert_eq!(seen.sunk().last[..expected.len()], expected, "{protocol}, {len}");
        }
    }
}
