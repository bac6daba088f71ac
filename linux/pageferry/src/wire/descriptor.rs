//! A message in the ring.

use super::Level;
use crate::ring::DESCRIPTOR_WORDS;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What happens to the memory of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Verb {
    /// The bytes are in the ring.
    Inline = 1,
    /// The receiver copies the bytes out of the slots, and gives them back at once.
    Copy = 2,
    /// The receiver reads the slots until it gives them back.
    Loan = 3,
    /// The receiver alone has the slots until it gives them back.
    Donate = 4,
    /// Both have the slots, and see what the other writes.
    Share = 5,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 5] = [Verb::Inline, Verb::Copy, Verb::Loan, Verb::Donate, Verb::Share];

    pub(crate) fn bit(self) -> u32 {
        1 << self as u8
    }

    fn from_u8(number: u8) -> Option<Verb> {
        Verb::ALL.into_iter().find(|&verb| verb as u8 == number)
    }
}

/// A message: what happens to which bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// How many messages came before. Also what an acknowledgement names, so a slot needs no generation of its own.
    pub sequence: u64,
    /// What happens.
    pub verb: Verb,
    /// What is promised.
    pub level: Level,
    /// Pieces that the message lies in, which are listed in the inline bytes of its cell; 0 where it is one,
    /// in the fields below.
    pub extents: u16,
    /// The first slot.
    pub first_slot: u32,
    /// Slots.
    pub slots: u32,
    /// Where the bytes start, from the first slot on.
    pub offset: u64,
    /// Bytes. Of a message of several pieces: with the holes.
    pub len: u64,
    /// For the user.
    pub tag: u64,
    /// Of sealed memory: which memfd, counted by the sender. 0 otherwise.
    pub object: u64,
}

impl Descriptor {
    /// A message of `len` bytes, in no slots, and of no number yet.
    pub(crate) fn new(verb: Verb, level: Level, len: usize, tag: u64) -> Descriptor {
        let len = len as u64;
        Descriptor {
            sequence: 0,
            verb,
            level,
            extents: 0,
            first_slot: 0,
            slots: 0,
            offset: 0,
            len,
            tag,
            object: 0,
        }
    }

    /// The same, at the start of these slots.
    pub(crate) fn in_slots(self, (first_slot, slots): (u32, u32)) -> Descriptor {
        Descriptor { first_slot, slots, ..self }
    }

    /// As words of the ring.
    pub fn words(&self) -> [u64; DESCRIPTOR_WORDS] {
        [
            self.sequence,
            u64::from(self.verb as u8) | u64::from(self.level as u8) << 8 | u64::from(self.extents) << 16,
            u64::from(self.first_slot) | u64::from(self.slots) << 32,
            self.offset,
            self.len,
            self.tag,
            self.object,
            0,
        ]
    }

    /// From words that were read once. The error says what has no meaning.
    pub fn parse(words: &[u64; DESCRIPTOR_WORDS]) -> Result<Descriptor, &'static str> {
        let kind = words[1];
        if kind >> 32 != 0 || words[7] != 0 {
            return Err("bits that must be zero are not");
        }
        Ok(Descriptor {
            sequence: words[0],
            verb: Verb::from_u8(kind as u8).ok_or("the verb is unknown")?,
            level: Level::from_u8((kind >> 8) as u8).ok_or("the level is unknown")?,
            extents: (kind >> 16) as u16,
            first_slot: words[2] as u32,
            slots: (words[2] >> 32) as u32,
            offset: words[3],
            len: words[4],
            tag: words[5],
            object: words[6],
        })
    }
}

/// A piece of a message that lies in several runs of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Extent {
    /// Where the piece is in the message, in bytes.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Where it starts, from the first slot on.
    pub offset: u64,
    /// The first slot.
    pub first_slot: u32,
    /// Slots.
    pub slots: u32,
}

const _: () = assert!(size_of::<Extent>() == 32);
