//! The handshake, and the notes that go over the socket after it.
//!
//! Four messages: the sender offers ([`Kind::Hello`], with its area of the ring and its pool), the receiver
//! accepts ([`Kind::Welcome`], with its area), the sender says what it will be ([`Kind::Settled`], after it
//! has sealed what it had left open for the receiver to map), and the receiver, which has looked at all of
//! it, says that it is ready ([`Kind::Ready`]). Where slots are to be leased, the receiver's follow its welcome
//! ([`Kind::Slots`]). Either says [`Kind::Refuse`] with a reason instead.

use super::{Level, Verb};
use crate::ring::RingGeometry;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of everything in this folder.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"PGFERRY\n";

/// Which message of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The sender's offer.
    Hello = 1,
    /// The receiver's answer.
    Welcome = 2,
    /// What the sender has made of both.
    Settled = 3,
    /// The receiver has looked at it.
    Ready = 4,
    /// No channel will be. A reason in UTF-8 follows the fixed part.
    Refuse = 5,
    /// The receiver's memory, for channels whose slots it leases.
    Slots = 6,
}

/// A message of the handshake. All of them have all fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Greeting {
    magic: [u8; 8],
    /// [`Kind`].
    pub kind: u8,
    /// 1 where this side trusts the other as it trusts itself.
    pub trusting: u8,
    /// The lowest version that this side speaks.
    pub min_version: u16,
    /// The highest.
    pub max_version: u16,
    /// The machine's number in ELF.
    pub machine: u16,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes that slots are multiples of.
    pub slot_align: u32,
    /// Levels: offered, accepted, settled. A bit each.
    pub levels: u32,
    /// Verbs, likewise.
    pub verbs: u32,
    /// Cells of the ring.
    pub capacity: u32,
    /// Bytes of a message in the ring, at most.
    pub inline_bytes: u32,
    /// Slots of the pool; or which slot is the first of those that come.
    pub slots: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
}

const _: () = assert!(size_of::<Greeting>() == 56);

/// What follows a handshake over the socket: one byte, and a number. Descriptors may come with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Look at the ring.
    Wake,
    /// I shall send no more, or take no more. What is out stays out.
    Bye,
    /// You took too long: I shall send you no more. What is out stays out.
    Evicted,
    /// The memfd of sealed memory, which messages name by this number.
    Object(u64),
}

impl Note {
    /// Bytes of a note.
    pub const BYTES: usize = 9;
    /// Notes that a side takes from the socket before it looks at the ring again.
    pub(crate) const MAX_AT_A_TIME: usize = 64;

    /// As it goes over the socket.
    pub fn bytes(self) -> [u8; Note::BYTES] {
        let (kind, number) = match self {
            Note::Wake => (b'w', 0),
            Note::Bye => (b'b', 0),
            Note::Evicted => (b'e', 0),
            Note::Object(number) => (b'o', number),
        };
        let mut bytes = [kind; Note::BYTES];
        bytes[1..].copy_from_slice(&u64::to_ne_bytes(number));
        bytes
    }

    /// What came.
    pub fn parse(bytes: &[u8]) -> Option<Note> {
        let (&kind, number) = bytes.split_first()?;
        let number = u64::from_ne_bytes(number.try_into().ok()?);
        match (kind, number) {
            (b'w', 0) => Some(Note::Wake),
            (b'b', 0) => Some(Note::Bye),
            (b'e', 0) => Some(Note::Evicted),
            (b'o', number) => Some(Note::Object(number)),
            _ => None,
        }
    }
}

impl Greeting {
    /// A greeting with what every greeting of this side says.
    pub(crate) fn new(kind: Kind, page_bytes: usize) -> Greeting {
        Greeting {
            magic: MAGIC,
            kind: kind as u8,
            trusting: 0,
            min_version: VERSION,
            max_version: VERSION,
            machine: MACHINE,
            page_bytes: page_bytes as u32,
            slot_align: 0,
            levels: 0,
            verbs: 0,
            capacity: 0,
            inline_bytes: 0,
            slots: 0,
            reserved: 0,
            slot_bytes: 0,
        }
    }

    /// What came, if it is a greeting at all; with the reason of a refusal.
    pub fn parse(bytes: &[u8]) -> Result<(Greeting, String), &'static str> {
        let (greeting, rest) =
            Greeting::read_from_prefix(bytes).map_err(|_| "a message is shorter than a greeting")?;
        if greeting.magic != MAGIC {
            return Err("it does not speak pageferry: the magic differs");
        }
        if greeting.reserved != 0 {
            return Err("bits that must be zero are not");
        }
        let (levels, verbs) = (Level::ALL.map(Level::bit), Verb::ALL.map(Verb::bit));
        let unknown = |set: u32, all: &[u32]| set & !all.iter().sum::<u32>() != 0;
        if greeting.trusting > 1 || unknown(greeting.levels, &levels) || unknown(greeting.verbs, &verbs) {
            return Err("it says what has no meaning: a level, a verb or a trust that there is not");
        }
        let refusal = greeting.kind == Kind::Refuse as u8;
        if !refusal && !rest.is_empty() {
            return Err("a greeting is longer than it may be");
        }
        // A reason is told to people: no control characters, no novel.
        let text = String::from_utf8_lossy(rest);
        Ok((greeting, text.chars().filter(|c| !c.is_control()).take(200).collect()))
    }

    /// The shape of the ring.
    pub(crate) fn ring(&self) -> RingGeometry {
        RingGeometry { capacity: self.capacity, inline_bytes: self.inline_bytes }
    }

    /// The highest version that both speak.
    pub(crate) fn common_version(&self) -> Result<u16, String> {
        let highest = self.max_version.min(VERSION);
        if highest < self.min_version.max(VERSION) {
            let (low, high) = (self.min_version, self.max_version);
            return Err(format!("no version in common: {low} to {high} there, {VERSION} here"));
        }
        Ok(highest)
    }

    /// Whether the other side runs on the same kind of machine.
    pub(crate) fn same_machine(&self, page_bytes: usize) -> Result<(), String> {
        if self.machine != MACHINE || self.page_bytes != page_bytes as u32 {
            let (machine, page) = (self.machine, self.page_bytes);
            return Err(format!(
                "another machine: ELF number {machine} with pages of {page} bytes there, {MACHINE} with {page_bytes} \
                 here"
            ));
        }
        Ok(())
    }
}

/// The machine's number in ELF: EM_X86_64, EM_AARCH64.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
