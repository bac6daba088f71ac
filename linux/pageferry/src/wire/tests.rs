//! Golden bytes of everything in `WIRE.md`, and that no bytes make a parser panic.

use super::*;
use crate::ring::DESCRIPTOR_WORDS;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

/// The pages of `WIRE.md` say so; both machines are little-endian.
const HELLO: [u8; 56] = [
    b'P', b'G', b'F', b'E', b'R', b'R', b'Y', b'\n', // magic
    1, 1, // kind, trusting
    1, 0, 1, 0, // versions
    MACHINE, 0, // machine
    0, 0x10, 0, 0, // page_bytes
    0, 0, 0x20, 0, // slot_align
    0b10_1010, 0, 0, 0, // levels: copy, mmu, sealed
    0b11_1110, 0, 0, 0, // verbs: all
    64, 0, 0, 0, // capacity
    0, 0x40, 0, 0, // inline_bytes
    8, 0, 0, 0, // slots
    0, 0, 0, 0, // reserved
    0, 0, 0x40, 0, 0, 0, 0, 0, // slot_bytes
];

const MACHINE: u8 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

fn hello() -> Greeting {
    let mut greeting = Greeting::new(Kind::Hello, 4096);
    greeting.trusting = 1;
    greeting.slot_align = 2 << 20;
    greeting.levels = Level::Copy.bit() | Level::Mmu.bit() | Level::Sealed.bit();
    greeting.verbs = Verb::ALL.into_iter().map(Verb::bit).sum();
    greeting.capacity = 64;
    greeting.inline_bytes = 16 << 10;
    greeting.slots = 8;
    greeting.slot_bytes = 4 << 20;
    greeting
}

#[test]
fn a_greeting_has_its_golden_bytes() {
    assert_eq!(hello().as_bytes(), HELLO);
    assert_eq!(Greeting::parse(&HELLO), Ok((hello(), String::new())));
    assert_eq!(
        [Kind::Hello, Kind::Welcome, Kind::Settled, Kind::Ready, Kind::Refuse, Kind::Slots].map(|k| k as u8),
        [1, 2, 3, 4, 5, 6]
    );
}

#[test]
fn slots_that_come_have_their_golden_bytes() {
    let mut bytes = [0; 56];
    bytes[..24].copy_from_slice(&HELLO[..24]);
    bytes[8..10].copy_from_slice(&[6, 0]);
    bytes[20..24].fill(0);
    bytes[40] = 8;
    let mut slots = Greeting::new(Kind::Slots, 4096);
    slots.slots = 8;
    assert_eq!(slots.as_bytes(), bytes);
    assert_eq!(Greeting::parse(&bytes), Ok((slots, String::new())));
}

#[test]
fn a_refusal_has_a_reason_behind_its_fixed_part() {
    let mut bytes = Greeting::new(Kind::Refuse, 4096).as_bytes().to_vec();
    bytes.extend_from_slice("no\x1b[31m room\0, \u{fc}ber all\n\u{ff}".as_bytes());
    bytes.push(0xff);
    let (greeting, reason) = Greeting::parse(&bytes).unwrap();
    assert_eq!(greeting.kind, Kind::Refuse as u8);
    assert_eq!(reason, "no[31m room, \u{fc}ber all\u{ff}\u{fffd}");
    bytes.extend(core::iter::repeat_n(b'x', 400));
    assert_eq!(Greeting::parse(&bytes).unwrap().1.chars().count(), 200);
}

#[test]
fn a_greeting_that_cannot_be_is_refused() {
    assert!(Greeting::parse(&HELLO[..55]).is_err());
    assert!(Greeting::parse(&[&HELLO[..], &[0]].concat()).is_err(), "only a refusal is longer");
    for at in 0..8 {
        let mut bytes = HELLO;
        bytes[at] ^= 0x20;
        assert!(Greeting::parse(&bytes).unwrap_err().contains("magic"), "{at}");
    }
    for at in 44..48 {
        let mut bytes = HELLO;
        bytes[at] = 1;
        assert!(Greeting::parse(&bytes).unwrap_err().contains("must be zero"), "{at}");
    }
}

#[test]
fn the_highest_common_version_is_taken() {
    let common = |min_version, max_version| {
        let mut greeting = hello();
        (greeting.min_version, greeting.max_version) = (min_version, max_version);
        greeting.common_version()
    };
    assert_eq!(common(VERSION, VERSION), Ok(VERSION));
    assert_eq!(common(0, u16::MAX), Ok(VERSION));
    assert!(common(VERSION + 1, VERSION + 9).unwrap_err().contains("2 to 10 there, 1 here"));
    assert!(common(0, 0).is_err());
    assert!(common(VERSION, 0).is_err(), "a range that is upside down");
    assert!(common(u16::MAX, 0).is_err());
}

#[test]
fn another_machine_is_told_apart() {
    assert_eq!(hello().same_machine(4096), Ok(()));
    assert!(hello().same_machine(65536).is_err());
    let mut other = hello();
    other.machine = 0;
    assert!(other.same_machine(4096).is_err());
}

#[test]
fn levels_and_verbs_have_their_golden_numbers() {
    assert_eq!(Level::ALL.map(|level| level as u8), [1, 2, 3, 4, 5]);
    assert_eq!(Level::ALL.map(|level| level.to_string()), ["copy", "typed", "mmu", "leased", "sealed"]);
    assert_eq!(Level::ALL.map(Level::bit), [2, 4, 8, 16, 32]);
    assert_eq!(Verb::ALL.map(|verb| verb as u8), [1, 2, 3, 4, 5]);
    assert_eq!(Verb::ALL.map(Verb::bit), [2, 4, 8, 16, 32]);
    assert_eq!(Verb::ALL, [Verb::Inline, Verb::Copy, Verb::Loan, Verb::Donate, Verb::Share]);
}

#[test]
fn a_descriptor_has_its_golden_words() {
    let descriptor = Descriptor {
        sequence: 0x0102_0304_0506_0708,
        verb: Verb::Loan,
        level: Level::Mmu,
        extents: 0x1122,
        first_slot: 0x0a0b_0c0d,
        slots: 0x1a1b_1c1d,
        offset: 0x2122_2324_2526_2728,
        len: 0x3132_3334_3536_3738,
        tag: 0x4142_4344_4546_4748,
        object: 0x5152_5354_5556_5758,
    };
    let words = [
        0x0102_0304_0506_0708,
        0x1122_0303,
        0x1a1b_1c1d_0a0b_0c0d,
        0x2122_2324_2526_2728,
        0x3132_3334_3536_3738,
        0x4142_4344_4546_4748,
        0x5152_5354_5556_5758,
        0,
    ];
    assert_eq!(descriptor.words(), words);
    assert_eq!(Descriptor::parse(&words), Ok(descriptor));
}

#[test]
fn a_descriptor_without_a_meaning_is_refused() {
    let good = [0, 0x0303, 1 << 32, 0, 1, 0, 0, 0];
    assert!(Descriptor::parse(&good).is_ok());
    for bit in 32..64 {
        let mut words = good;
        words[1] |= 1 << bit;
        assert_eq!(Descriptor::parse(&words), Err("bits that must be zero are not"), "{bit}");
    }
    for bit in 0..64 {
        let mut words = good;
        words[7] = 1 << bit;
        assert_eq!(Descriptor::parse(&words), Err("bits that must be zero are not"), "{bit}");
    }
    for number in (0..=255).filter(|number| !(1..=5).contains(number)) {
        let mut words = good;
        words[1] = 0x0300 | number;
        assert_eq!(Descriptor::parse(&words), Err("the verb is unknown"));
        words[1] = number << 8 | 3;
        assert_eq!(Descriptor::parse(&words), Err("the level is unknown"));
    }
}

#[test]
fn an_extent_has_its_golden_bytes() {
    let extent = Extent { at: 0x0102, len: 0x0304, offset: 0x0506, first_slot: 0x0708, slots: 0x090a };
    let bytes =
        [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0x0a, 9, 0, 0];
    assert_eq!(extent.as_bytes(), bytes);
    assert_eq!(Extent::read_from_bytes(&bytes).unwrap(), extent);
}

#[test]
fn notes_have_their_golden_bytes() {
    let object = [b'o', 8, 7, 6, 5, 4, 3, 2, 1];
    for (note, bytes) in [
        (Note::Wake, [b'w', 0, 0, 0, 0, 0, 0, 0, 0]),
        (Note::Bye, [b'b', 0, 0, 0, 0, 0, 0, 0, 0]),
        (Note::Evicted, [b'e', 0, 0, 0, 0, 0, 0, 0, 0]),
        (Note::Object(0x0102_0304_0506_0708), object),
    ] {
        assert_eq!(note.bytes(), bytes);
        assert_eq!(Note::parse(&bytes), Some(note));
        assert_eq!(Note::parse(&bytes[..8]), None);
        assert_eq!(Note::parse(&[&bytes[..], &[0]].concat()), None);
    }
    assert_eq!(Note::parse(&[]), None);
    assert_eq!(Note::parse(&[b'w', 1, 0, 0, 0, 0, 0, 0, 0]), None, "a number that must be zero");
    assert_eq!(Note::parse(&[b'b', 0, 0, 0, 0, 0, 0, 0, 1]), None);
}

fn any_descriptor() -> impl Strategy<Value = Descriptor> {
    let kind = (0..5usize, 0..5usize, any::<u16>(), any::<u32>(), any::<u32>());
    (kind, any::<[u64; 5]>()).prop_map(|((verb, level, extents, first_slot, slots), words)| Descriptor {
        sequence: words[0],
        verb: Verb::ALL[verb],
        level: Level::ALL[level],
        extents,
        first_slot,
        slots,
        offset: words[1],
        len: words[2],
        tag: words[3],
        object: words[4],
    })
}

proptest! {
    #[test]
    fn descriptors_come_back_as_they_went(descriptor in any_descriptor()) {
        prop_assert_eq!(Descriptor::parse(&descriptor.words()), Ok(descriptor));
    }

    #[test]
    fn what_is_parsed_is_all_there_was(
        words in any::<[u64; DESCRIPTOR_WORDS]>(),
        kind in 0..0x0606u64,
        cut in any::<bool>(),
    ) {
        let mut words = words;
        if cut {
            // Else hardly any would be parsed.
            words[1] = kind | words[1] & 0xffff_0000;
            words[7] = 0;
        }
        if let Ok(descriptor) = Descriptor::parse(&words) {
            prop_assert_eq!(descriptor.words(), words);
        }
    }

    #[test]
    fn no_bytes_make_a_greeting_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        magic in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 56 {
            bytes[..8].copy_from_slice(b"PGFERRY\n");
            bytes[44..48].fill(0);
        }
        if let Ok((greeting, reason)) = Greeting::parse(&bytes) {
            prop_assert_eq!(greeting.as_bytes(), &bytes[..56]);
            prop_assert!(bytes.len() == 56 || greeting.kind == Kind::Refuse as u8);
            prop_assert!(reason.chars().count() <= 200 && !reason.chars().any(char::is_control));
            let _ = (greeting.common_version(), greeting.same_machine(4096), greeting.ring().is_valid());
        }
    }

    #[test]
    fn a_note_is_parsed_from_its_own_bytes_only(
        bytes in proptest::collection::vec(any::<u8>(), 0..20),
        kind in 0..4usize,
    ) {
        let mut bytes = bytes;
        if let (Some(first), Some(&known)) = (bytes.first_mut(), b"wbo".get(kind)) {
            *first = known;
        }
        if let Some(note) = Note::parse(&bytes) {
            prop_assert_eq!(&note.bytes()[..], &bytes[..]);
        }
    }

    #[test]
    fn objects_come_back_as_they_went(number in any::<u64>()) {
        prop_assert_eq!(Note::parse(&Note::Object(number).bytes()), Some(Note::Object(number)));
    }
}
