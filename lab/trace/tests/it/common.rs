//! Traces made for tests.

use pageferry_trace::{Header, Kind, Reader, Record, Recorder, Rules, SystemCall, TraceError, Writer};
use proptest::prelude::*;

pub fn header(rules: Rules) -> Header {
    Header {
        architecture: "ppc".to_owned(),
        rules,
        recorder: "a test".to_owned(),
        command: vec!["cc1".to_owned(), "-O2".to_owned(), "né.i".to_owned()],
    }
}

/// One of all references of a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reference {
    pub kind: Kind,
    pub address: u64,
}

/// What walks over some lines of some pages, with loops and returns: repetitions for a filter to leave out.
pub fn program() -> impl Strategy<Value = Vec<Reference>> {
    let burst = (0..40_u64, 0..128_u64, 1..12_usize, 0..60_u64, 0..128_u64, any::<u16>());
    prop::collection::vec(burst, 1..150).prop_map(|bursts| {
        let mut all = Vec::new();
        for (code, line, repeated, data, at, mix) in bursts {
            for round in 0..repeated as u64 {
                let address = code * 0x7000 + (line * 32 + round % 5 * 4) % 4096;
                all.push(Reference { kind: Kind::Fetch, address });
                let kind = if mix >> (round % 16) & 1 == 1 { Kind::Store } else { Kind::Load };
                let far = if mix & 0x100 == 0 { 0 } else { round % 3 * 0x20_000 };
                let address = 0x100_0000 + data * 0x1000 + (at * 32 + round * 12) % 4096 + far;
                match mix >> 12 & 3 {
                    0 => {}
                    1 => all.push(Reference { kind, address }),
                    _ => {
                        all.push(Reference { kind: Kind::Load, address });
                        all.push(Reference { kind, address: address ^ 0x8000 });
                    }
                }
            }
        }
        all
    })
}

/// What refers again and again to a few lines of a few pages, most of which are in each other's way.
pub fn crowded() -> impl Strategy<Value = Vec<Reference>> {
    let kind = prop_oneof![Just(Kind::Fetch), Just(Kind::Load), Just(Kind::Store)];
    let one = (kind, 0..3_u64, 0..2_u64, 0..3_u64);
    prop::collection::vec(one, 1..300).prop_map(|all| {
        let refer = |(kind, far, page, line)| Reference { kind, address: far << 17 | page << 12 | line << 5 };
        // A program begins with a fetch.
        let first = Reference { kind: Kind::Fetch, address: 0 };
        std::iter::once(first).chain(all.into_iter().map(refer)).collect()
    })
}

/// The program's trace.
pub fn recorded(program: &[Reference], rules: Rules) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, &header(rules)).expect("written");
    for r in program {
        match r.kind {
            Kind::Fetch => recorder.fetch(r.address, 4),
            Kind::Load => recorder.load(r.address, 4),
            Kind::Store => recorder.store(r.address, 4),
            Kind::Call => recorder.call(4, [0; 6]),
        }
        .expect("written");
    }
    recorder.finish().expect("written");
    bytes
}

/// Records of any kind, a call beside each that is one.
pub fn records() -> impl Strategy<Value = Vec<(Record, SystemCall)>> {
    let kind = prop_oneof![Just(Kind::Fetch), Just(Kind::Load), Just(Kind::Store), Just(Kind::Call)];
    let number = prop_oneof![0..20_u32, any::<u32>()];
    let address = prop_oneof![4 => 0..0x10_0000_u64, 1 => any::<u64>()];
    let call = (any::<u32>(), any::<[u64; 6]>(), any::<Option<i64>>());
    let one = (kind, number, address, call).prop_map(|(kind, instructions, address, call)| {
        let address = if kind == Kind::Call { 0 } else { address };
        let (number, arguments, result) = call;
        (Record { kind, instructions, address }, SystemCall { number, arguments, result })
    });
    prop::collection::vec(one, 0..300)
}

pub fn written(records: &[(Record, SystemCall)], rules: Rules) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header(rules)).expect("written");
    for (record, call) in records {
        match record.kind {
            Kind::Call => writer.call(record.instructions, call),
            _ => writer.reference(*record),
        }
        .expect("written");
    }
    writer.finish(3, 1, 2).expect("written");
    bytes
}

/// Reads everything. The number of records, or the error.
pub fn read(bytes: &[u8], limit: u64) -> Result<usize, TraceError> {
    let mut count = 0;
    for record in Reader::new(bytes, limit)? {
        record?;
        count += 1;
    }
    Ok(count)
}

/// Where the header's checksum ends, and so the first block begins.
pub fn first_block(bytes: &[u8]) -> usize {
    14 + u32::from_le_bytes(bytes[10..14].try_into().expect("4 bytes")) as usize + 4
}

/// Where each part begins and where its checksum does, as far as the parts are to be found.
pub fn parts(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let header = first_block(bytes).min(bytes.len());
    parts.push((0, header.saturating_sub(4)));
    let mut at = header;
    while at + 9 <= bytes.len() && bytes[at] == b'B' {
        let length = u32::from_le_bytes(bytes[at + 5..at + 9].try_into().expect("4 bytes")) as usize;
        parts.push((at, (at + 9 + length).min(bytes.len())));
        at = at.saturating_add(13 + length);
    }
    parts.push((at.min(bytes.len()), (at + 41).min(bytes.len())));
    parts
}

/// Makes all checksums right again, as far as the parts are to be found.
pub fn reseal(bytes: &mut [u8]) {
    for (from, to) in parts(bytes) {
        if to + 4 <= bytes.len() {
            let sum = crc32fast::hash(&bytes[from..to]);
            bytes[to..to + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}
