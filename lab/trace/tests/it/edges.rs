//! Numbers at, before and behind the limits of each part of a trace.

use crate::common::{Reference, parts};
use crate::common::{first_block, header, read, recorded, reseal, written};
use pageferry_trace::{
    Architecture, Header, Kind, Lru, Reader, Record, Recorder, Rules, SystemCall, TraceError,
};
use proptest::prelude::*;

const ANY: u64 = u64::MAX;

fn said(bytes: &[u8]) -> String {
    read(bytes, ANY).expect_err("refused").to_string()
}

/// A trace of so many loads, a page each.
fn loads(count: u64) -> Vec<u8> {
    let load = |n| (Record { kind: Kind::Load, instructions: 1, address: n << 12 }, SystemCall::default());
    written(&(0..count).map(load).collect::<Vec<_>>(), Rules::STANDARD)
}

#[test]
fn rules_are_good_up_to_their_limits() {
    type Change = fn(&mut Rules, u32);
    let fields: [(&str, u32, u32, Change); 4] = [
        ("bytes of a line", 8, 1 << 16, |rules, n| (rules.line_bytes, rules.page_bytes) = (n, 1 << 20)),
        ("sets of lines", 1, 1 << 16, |rules, n| rules.line_sets = n),
        ("bytes of a page", 8, 1 << 30, |rules, n| (rules.line_bytes, rules.page_bytes) = (8, n)),
        ("sets of pages", 1, 1 << 16, |rules, n| rules.page_sets = n),
    ];
    for (what, min, max, change) in fields {
        for (value, is_good) in
            [(min, true), (max, true), (min / 2, false), (max * 2, false), (0, false), (min * 2 + 1, false)]
        {
            let mut rules = Rules::STANDARD;
            change(&mut rules, value);
            let expected = format!("{value} {what}, expected a power of two from {min} to {max}");
            assert_eq!(rules.problem(), (!is_good).then_some(expected));
        }
    }
    let small = |page_bytes| Rules { page_bytes, line_bytes: 64, ..Rules::STANDARD }.problem();
    assert_eq!(small(64), None);
    assert_eq!(small(32).as_deref(), Some("32 bytes of a page, expected at least the 64 bytes of a line"));
    let every = |reset_every| Rules { reset_every, ..Rules::STANDARD }.problem();
    assert_eq!((every(1), every(u32::MAX)), (None, None));
    assert_eq!(every(0).as_deref(), Some("0 instructions between resets, expected at least 1"));
}

#[test]
fn a_block_has_as_many_records_as_it_may_and_no_fewer_than_one() {
    const MOST: u64 = 1 << 16;
    for (count, blocks) in [(0, vec![]), (1, vec![1]), (MOST, vec![MOST]), (MOST + 1, vec![MOST, 1])] {
        let bytes = loads(count);
        assert_eq!(read(&bytes, ANY), Ok(count as usize));
        let found: Vec<u64> = parts(&bytes)
            .into_iter()
            .filter(|&(at, _)| bytes[at] == b'B')
            .map(|(at, _)| u32::from_le_bytes(bytes[at + 1..at + 5].try_into().expect("4 bytes")).into())
            .collect();
        assert_eq!(found, blocks);
    }
    let bytes = loads(3);
    let block = first_block(&bytes);
    for wrong in [0_u32, 65537] {
        let mut bytes = bytes.clone();
        bytes[block + 1..block + 5].copy_from_slice(&wrong.to_le_bytes());
        reseal(&mut bytes);
        assert_eq!(said(&bytes), format!("byte {block}: a block of {wrong} records, expected 1 to 65536"));
    }
}

/// Totals that a trace cannot have, with its checksums in order; and those that it can just have.
#[test]
fn totals_are_those_of_the_records() {
    let call = (Record { kind: Kind::Call, instructions: 1, address: 0 }, SystemCall::default());
    let bytes = written(&[call, call], Rules::STANDARD);
    let end = bytes.len() - 45;
    let with = |place: usize, value: u64| {
        let mut bytes = bytes.clone();
        bytes[end + 1 + 8 * place..][..8].copy_from_slice(&value.to_le_bytes());
        reseal(&mut bytes);
        read(&bytes, ANY).map_err(|error| error.to_string())
    };
    let max_counted = u64::MAX / 4;
    for counted in 0..3 {
        assert_eq!(with(counted, max_counted), Ok(2));
        let said = format!("byte {end}: more references than can be counted, expected up to {max_counted}");
        assert_eq!(with(counted, max_counted + 1), Err(said.clone()));
        assert_eq!(with(counted, u64::MAX), Err(said));
    }
    assert_eq!(with(0, 2), Ok(2));
    let few = format!("byte {end}: 1 instructions in all, expected at least the 2 of the records");
    assert_eq!(with(0, 1), Err(few));
    for records in [1, 3] {
        assert_eq!(with(3, records), Err(format!("byte {end}: {records} records in all, expected 2")));
    }
    for calls in [0, 1, 3] {
        assert_eq!(with(4, calls), Err(format!("byte {end}: {calls} system calls in all, expected 2")));
    }
}

#[test]
fn behind_an_error_there_is_nothing() {
    let bytes = loads(100);
    let mut reader = Reader::new(&bytes, 50 << 12).expect("sound");
    assert_eq!(reader.by_ref().take_while(Result::is_ok).count(), 50);
    assert_eq!((reader.next(), reader.position()), (None, 50));
}

#[test]
fn what_begins_as_a_trace_is_cut_off_and_what_does_not_is_none() {
    let bytes = loads(1);
    assert!(matches!(read(&[], ANY), Err(TraceError::NotATrace { found, .. }) if found.is_empty()));
    for cut in 1..8 {
        let expected = "the first 8 bytes of a trace";
        assert_eq!(read(&bytes[..cut], ANY), Err(TraceError::Truncated { offset: cut, expected }));
        let mut other = bytes[..cut].to_vec();
        other[cut - 1] ^= 1;
        assert!(matches!(read(&other, ANY), Err(TraceError::NotATrace { found, .. }) if found == other));
    }
}

#[test]
fn a_reference_is_to_all_lines_that_its_bytes_lie_on() {
    for (address, bytes) in [(0x40, 32), (0x40, 1), (0x5f, 1), (0x5f, 2), (0x41, 32), (0x40, 0), (0x30, 97)] {
        let mut trace = Vec::new();
        let mut recorder = Recorder::new(&mut trace, &header(Rules::STANDARD)).expect("written");
        recorder.load(address, bytes).expect("written");
        recorder.finish().expect("written");
        let found: Vec<u64> =
            Reader::new(&trace, ANY).expect("sound").map(|record| record.expect("sound").address).collect();
        let mut expected: Vec<u64> =
            (address..address + u64::from(bytes.max(1))).map(|at| at & !31).collect();
        expected.dedup();
        assert_eq!(found, expected, "{bytes} bytes at {address:#x}");
    }
}

/// What comes behind the last record counts, too.
#[test]
fn instructions_that_are_left_out_are_counted() {
    for left_out in [0, 1, 50] {
        let fetch = |n| Reference { kind: Kind::Fetch, address: 0x1000 + n % 8 * 4 };
        let bytes = recorded(&(0..=left_out).map(fetch).collect::<Vec<_>>(), Rules::STANDARD);
        let mut reader = Reader::new(&bytes, ANY).expect("sound");
        assert_eq!(reader.by_ref().count(), 1);
        assert_eq!((reader.position(), reader.totals().instructions), (1, left_out + 1));
    }
}

/// Lines and instructions about the limits of what is guessed in one word.
fn hard_to_guess() -> impl Strategy<Value = Vec<(Record, SystemCall)>> {
    let kind = prop_oneof![Just(Kind::Fetch), Just(Kind::Load), Just(Kind::Store)];
    let instructions = prop_oneof![
        Just(0),
        Just(1),
        Just((1 << 14) - 1),
        Just(1 << 14),
        Just((1 << 14) + 1),
        Just(1 << 30),
        Just(u32::MAX)
    ];
    // In lines of eight bytes; those above have all that there can be.
    let line = prop_oneof![
        4 => 0..2_u64,
        3 => (44..47_u32, 0..3_u64).prop_map(|(bits, more)| (1 << bits) - 1 + more),
        1 => (0..2_u64).prop_map(|less| (1 << 61) - 1 - less),
    ];
    // Few different ones, again and again: so what is guessed is often right.
    prop::collection::vec((kind, instructions, line), 1..4).prop_flat_map(|few| {
        prop::collection::vec(prop::sample::select(few), 1..40).prop_map(|all| {
            let record = |(kind, instructions, line)| {
                (Record { kind, instructions, address: line << 3 }, SystemCall::default())
            };
            all.into_iter().map(record).collect()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_does_not_fit_a_guess_comes_back(records in hard_to_guess()) {
        let bytes = written(&records, Rules { line_bytes: 8, ..Rules::STANDARD });
        let found: Result<Vec<_>, _> = Reader::new(&bytes, ANY).expect("sound").collect();
        prop_assert_eq!(found.expect("sound"), records.iter().map(|(record, _)| *record).collect::<Vec<_>>());
    }
}

#[test]
fn an_architecture_is_told_by_the_first_twenty_bytes() {
    let elf = |bits: u8, order: u8, machine: [u8; 2]| {
        let mut begin = [&b"\x7fELF"[..], &[bits, order], &[0; 12]].concat();
        begin.extend(machine);
        begin
    };
    let name = |begin: &[u8]| Architecture::of_elf(begin).map(|architecture| architecture.name);
    for (begin, expected) in [
        (elf(1, 2, [0, 20]), Some("ppc")),
        (elf(2, 2, [0, 21]), Some("ppc64")),
        (elf(2, 1, [21, 0]), Some("ppc64le")),
        (elf(2, 1, [62, 0]), Some("x86_64")),
        (elf(1, 1, [243, 0]), Some("riscv32")),
        (elf(2, 1, [243, 0]), Some("riscv64")),
        (elf(1, 1, [20, 0]), None),
        (elf(2, 2, [0, 20]), None),
        (elf(2, 1, [0, 62]), None),
    ] {
        assert_eq!(name(&begin), expected);
        assert_eq!(name(&[&begin[..], &[7; 44]].concat()), expected);
        for cut in 0..begin.len() {
            assert_eq!(name(&begin[..cut]), None);
        }
        let mut other = begin;
        other[0] = 0x7e;
        assert_eq!(name(&other), None);
    }
}

#[test]
fn the_least_recently_used_goes() {
    // Two sets of two ways; even numbers share one.
    let mut lru = Lru::new(2, 2);
    for (tag, hits) in
        [(0, false), (2, false), (0, true), (1, false), (4, false), (2, false), (0, false), (1, true)]
    {
        assert_eq!(lru.hits(tag), hits, "{tag}");
    }
    lru.flush();
    assert!(![0, 1, 2].into_iter().any(|tag| lru.hits(tag)));
}

#[test]
fn a_header_may_say_anything() {
    for command in [vec![], vec![String::new()], vec!["a b".to_owned(), "\n\0é".to_owned()]] {
        let said = Header { command, recorder: String::new(), ..header(Rules::STANDARD) };
        let mut bytes = Vec::new();
        Recorder::new(&mut bytes, &said).and_then(Recorder::finish).expect("written");
        assert_eq!(Reader::new(&bytes, ANY).expect("sound").header(), &said);
    }
}
