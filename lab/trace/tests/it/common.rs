//! Traces made for tests.

use pageferry_trace::{Header, Kind, Record, Recorder, Rules, SystemCall, Writer};
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
