//! From records to bytes and back, and what other bytes are taken for.

use crate::common::{first_block, header, program, read, recorded, records, reseal, written};
use pageferry_trace::{Kind, Reader, Record, Recorder, Rules, SystemCall, TraceError, Writer, bundled};
use proptest::prelude::*;

const ANY: u64 = u64::MAX;

proptest! {
    #[test]
    fn records_come_back(records in records(), line in 3..8_u32) {
        let rules = Rules { line_bytes: 1 << line, ..Rules::STANDARD };
        let bytes = written(&records, rules);
        let mut reader = Reader::new(&bytes, ANY).expect("sound");
        prop_assert_eq!(reader.header(), &header(rules));
        let instructions: u64 = records.iter().map(|(r, _)| u64::from(r.instructions)).sum();
        for (record, call) in &records {
            // The topmost line is behind any limit.
            let found = match reader.next().expect("as many") {
                Err(TraceError::Outside { address, .. }) => {
                    prop_assert_eq!(address, record.address >> line << line);
                    return Ok(());
                }
                other => other.expect("sound"),
            };
            prop_assert_eq!(found, Record { address: record.address >> line << line, ..*record });
            if record.kind == Kind::Call {
                prop_assert_eq!(reader.call(), call);
            }
        }
        prop_assert_eq!(reader.next(), None);
        prop_assert_eq!(reader.position(), instructions);
        prop_assert_eq!(reader.totals().instructions, instructions + 3);
        prop_assert_eq!(reader.totals().records, records.len() as u64);
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        prop_assert!(read(&bytes, ANY).is_err());
        let mut like = bundled()[0].bytes[..14].to_vec();
        like.extend(&bytes);
        prop_assert!(read(&like, ANY).is_err());
        reseal(&mut like);
        let _ = read(&like, ANY);
    }

    #[test]
    fn what_is_changed_is_found(program in program(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = recorded(&program, Rules::STANDARD);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let error = read(&bytes, ANY).expect_err("a changed bit");
        if at >= 14 {
            use TraceError::{Checksum, Malformed, Truncated};
            let expected = matches!(error, Checksum { .. } | Truncated { .. } | Malformed { .. });
            prop_assert!(expected, "{}", error);
        }
    }

    #[test]
    fn what_is_changed_on_purpose_does_no_harm(
        program in program(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        limit in any::<u64>(),
    ) {
        let mut bytes = recorded(&program, Rules::STANDARD);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        reseal(&mut bytes);
        let _ = read(&bytes, limit);
    }

    #[test]
    fn what_is_cut_off_is_found(program in program(), at in any::<prop::sample::Index>()) {
        let bytes = recorded(&program, Rules::STANDARD);
        let at = at.index(bytes.len());
        let error = read(&bytes[..at], ANY).expect_err("cut off");
        if at == 0 {
            let not = matches!(error, TraceError::NotATrace { .. });
            prop_assert!(not, "{}", error);
        } else {
            let cut = matches!(error, TraceError::Truncated { offset, .. } if offset <= at);
            prop_assert!(cut, "{}", error);
        }
    }
}

#[test]
fn a_long_trace_has_blocks() {
    let records: Vec<_> = (0..200_000_u64)
        .map(|n| {
            let kind = [Kind::Fetch, Kind::Load, Kind::Store][(n % 3) as usize];
            (
                Record { kind, instructions: (n % 7) as u32, address: n * n % 100_003 * 32 },
                SystemCall::default(),
            )
        })
        .collect();
    let bytes = written(&records, Rules::STANDARD);
    let found: Result<Vec<_>, _> = Reader::new(&bytes, ANY).expect("sound").collect();
    assert_eq!(found.expect("sound"), records.iter().map(|(record, _)| *record).collect::<Vec<_>>());
    // A block that is missing.
    let block = first_block(&bytes);
    let length = 13 + u32::from_le_bytes(bytes[block + 5..block + 9].try_into().expect("4 bytes")) as usize;
    let short = [&bytes[..block], &bytes[block + length..]].concat();
    let said = read(&short, ANY).expect_err("a block is missing").to_string();
    assert!(said.contains("200000 records in all, expected 134464"), "{said}");
}

#[test]
fn each_error_says_where_and_what() {
    let program: Vec<_> =
        (0..50).map(|n| crate::common::Reference { kind: Kind::Fetch, address: n * 0x1_0000 }).collect();
    let bytes = recorded(&program, Rules::STANDARD);
    let said = |bytes: &[u8], limit| read(bytes, limit).expect_err("refused").to_string();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };

    let other = said(b"\x7fELF and so on", ANY);
    assert!(
        other.starts_with("byte 0: not a trace: expected [89, 50, 46, 54, 52, 43, 0d, 0a], found [7f, 45"),
        "{other}"
    );
    assert_eq!(said(&with(8, &[2, 0]), ANY), "byte 8: a trace of version 2, expected version 1");
    assert_eq!(said(&bytes[..12], ANY), "byte 10: the trace ends, expected the length of the header");
    let block = first_block(&bytes);
    assert_eq!(
        said(&bytes[..block], ANY),
        format!("byte {block}: the trace ends, expected a block or the end")
    );
    let changed = said(&with(block + 12, &[0xff, 0xff, 0xff]), ANY);
    assert!(changed.starts_with(&format!("byte {block}: a block has the checksum ")), "{changed}");
    let outside = said(&bytes, 0x20_0000);
    assert_eq!(outside, format!("byte {block}, record 32: address 0x200000, expected one below 0x200000"));
    let longer = said(&[&bytes[..], b"x"].concat(), ANY);
    assert_eq!(longer, format!("byte {}: 1 bytes behind the end, expected none", bytes.len()));

    let mut fewer = with(bytes.len() - 44, &[1]);
    reseal(&mut fewer);
    let end = bytes.len() - 45;
    assert_eq!(
        said(&fewer, ANY),
        format!("byte {end}: 1 instructions in all, expected at least the 50 of the records")
    );
    let mut sets = with(14 + 4 + 3 + 4, &[100]);
    reseal(&mut sets);
    assert_eq!(
        said(&sets, ANY),
        "byte 21: 100 sets of lines, expected a power of two from 1 to 65536, expected rules of a filter"
    );
}

#[test]
fn references_across_lines_are_two() {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, &header(Rules::STANDARD)).expect("written");
    recorder.fetch(0x101e, 4).expect("written");
    recorder.load(0x2ff8, 16).expect("written");
    recorder.store(u64::MAX - 3, 8).expect("written");
    recorder.call(3, [1, 2, 3, 4, 5, 6]).expect("written");
    recorder.returned(-2).expect("written");
    recorder.fetch(0x1022, 4).expect("written");
    recorder.call(234, [0; 6]).expect("written");
    let totals = recorder.finish().expect("written");
    assert_eq!((totals.instructions, totals.loads, totals.stores, totals.calls), (2, 1, 1, 2));
    let mut reader = Reader::new(&bytes, ANY).expect("sound");
    let mut found = Vec::new();
    while let Some(record) = reader.next() {
        let record = record.expect("sound");
        found.push((record.kind, record.instructions, record.address));
        if record.kind == Kind::Call {
            let expected = if reader.call().number == 3 { (1, Some(-2)) } else { (0, None) };
            assert_eq!((reader.call().arguments[0], reader.call().result), expected);
        }
    }
    let expected = [
        (Kind::Fetch, 1, 0x1000),
        (Kind::Fetch, 0, 0x1020),
        (Kind::Load, 0, 0x2fe0),
        (Kind::Load, 0, 0x3000),
        (Kind::Store, 0, u64::MAX - 31),
        (Kind::Call, 0, 0),
        (Kind::Fetch, 1, 0x1020),
        (Kind::Call, 0, 0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_unfinished_file_is_no_trace() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header(Rules::STANDARD)).expect("written");
    for n in 0..100_000 {
        writer.reference(Record { kind: Kind::Load, instructions: 1, address: n }).expect("written");
    }
    drop(writer);
    assert!(matches!(read(&bytes, ANY), Err(TraceError::Truncated { expected: "a block or the end", .. })));
}
