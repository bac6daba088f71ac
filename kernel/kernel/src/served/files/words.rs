//! Requests, as they are written in a control piece.
//!
//! A request is eight words and one or two names behind them. The data piece has bytes only: those to write, those
//! read, or the entries of a directory.

use super::super::answer::{bytes_of, words};
use crate::fs::{Create, Links, Opening};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_fs::{Entry, Ino, Kind, Stat};
use pageferry_hal::PAGE_SIZE;

const WORDS: usize = 8;
const HEADER_BYTES: usize = WORDS * 8;
/// Names that fit behind the words.
pub(super) const MOST_NAME_BYTES: usize = PAGE_SIZE - HEADER_BYTES;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// `name`, by [`Asked::at`] [flags](open_flags); answers a handle.
    Open,
    Close,
    Read,
    Write,
    ReadAt,
    WriteAt,
    Seek,
    /// The next read begins so many bytes before where it would: they were not taken.
    Unread,
    Size,
    Truncate,
    Sync,
    MakeDirectory,
    RemoveDirectory,
    Unlink,
    /// Of what the name leads to, or of a symbolic link itself if `at` is not 0; answers the length, and [links and
    /// kind](stat_word).
    Stat,
    Link,
    Rename,
    /// A symbolic link that has the first name as its path.
    MakeLink,
    /// Answers how long the path of a symbolic link is, which is in the data piece.
    ReadLink,
    /// Entries from number `at` on; answers how many, in how many bytes, and [whether these are the
    /// last](LAST_ENTRIES).
    List,
    /// Unmounts the volume and ends, whatever is open if `at` is not 0.
    End,
}

const OPS: [Op; 21] = [
    Op::Open,
    Op::Close,
    Op::Read,
    Op::Write,
    Op::ReadAt,
    Op::WriteAt,
    Op::Seek,
    Op::Unread,
    Op::Size,
    Op::Truncate,
    Op::Sync,
    Op::MakeDirectory,
    Op::RemoveDirectory,
    Op::Unlink,
    Op::Stat,
    Op::Link,
    Op::Rename,
    Op::MakeLink,
    Op::ReadLink,
    Op::List,
    Op::End,
];

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) op: Op,
    pub(super) handle: u64,
    pub(super) at: u64,
    pub(super) len: usize,
    /// How many bytes the call is about, of which `len` come with this request.
    pub(super) of: usize,
    pub(super) names: [String; 2],
}

impl Asked {
    pub(super) fn new(op: Op) -> Asked {
        Asked { op, handle: 0, at: 0, len: 0, of: 0, names: Default::default() }
    }

    pub(super) fn of_file(op: Op, handle: u64) -> Asked {
        Asked { handle, ..Asked::new(op) }
    }

    pub(super) fn named(op: Op, name: &str) -> Asked {
        Asked { names: [name.to_string(), String::new()], ..Asked::new(op) }
    }

    /// As it is written.
    ///
    /// # Errors
    /// [`Errno::NameTooLong`]: the names do not fit.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, Errno> {
        let op = OPS.iter().position(|op| *op == self.op).expect("it is one of them") as u64;
        let [first, second] = &self.names;
        if first.len() + second.len() > MOST_NAME_BYTES {
            return Err(Errno::NameTooLong);
        }
        let (len, of) = (self.len as u64, self.of as u64);
        let words = [op, self.handle, self.at, len, of, first.len() as u64, second.len() as u64, 0];
        let mut bytes = bytes_of(&words);
        bytes.extend(first.bytes().chain(second.bytes()));
        Ok(bytes)
    }

    /// What is written, by what `load` finds at `(from, bytes)`.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: that is no request.
    pub(super) fn read(mut load: impl FnMut(usize, &mut [u8])) -> Result<Asked, Errno> {
        let mut header = [0; HEADER_BYTES];
        load(0, &mut header);
        let words = words::<WORDS>(&header);
        let [op, handle, at, len, of, first, second, _] = words;
        let op = *usize::try_from(op).ok().and_then(|op| OPS.get(op)).ok_or(Errno::Invalid)?;
        if first.saturating_add(second) > MOST_NAME_BYTES as u64 {
            return Err(Errno::Invalid);
        }
        let mut from = HEADER_BYTES;
        let mut name = |len: u64| {
            let mut bytes = alloc::vec![0; len as usize];
            if len > 0 {
                load(from, &mut bytes);
            }
            from += bytes.len();
            String::from_utf8(bytes).map_err(|_| Errno::Invalid)
        };
        Ok(Asked { op, handle, at, len: len as usize, of: of as usize, names: [name(first)?, name(second)?] })
    }
}

// --------------------------------------------------------------------------------------------------- entries

/// In an answer's second value: there are no entries behind these.
pub(super) const LAST_ENTRIES: u64 = 1 << 32;

/// As many of the entries as fit into so many bytes, and how many those are.
pub(super) fn entries_to_bytes(entries: &[Entry], most_bytes: usize) -> (Vec<u8>, usize) {
    let (mut bytes, mut count) = (Vec::new(), 0);
    for entry in entries {
        if bytes.len() + 7 + entry.name.len() > most_bytes {
            break;
        }
        bytes.extend(entry.ino.0.to_le_bytes());
        bytes.push(kind_byte(entry.kind));
        bytes.extend((entry.name.len() as u16).to_le_bytes());
        bytes.extend(&entry.name);
        count += 1;
    }
    (bytes, count)
}

/// The entries again.
///
/// # Errors
/// [`Errno::Io`]: that are none.
pub(super) fn entries_of_bytes(mut bytes: &[u8], count: usize) -> Result<Vec<Entry>, Errno> {
    let mut entries = Vec::new();
    for _ in 0..count {
        let (head, rest) = bytes.split_at_checked(7).ok_or(Errno::Io)?;
        let ino = Ino(u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
        let kind = kind_of(head[4]);
        let len = usize::from(u16::from_le_bytes([head[5], head[6]]));
        let (name, rest) = rest.split_at_checked(len).ok_or(Errno::Io)?;
        entries.push(Entry { name: name.to_vec(), ino, kind });
        bytes = rest;
    }
    Ok(entries)
}

// --------------------------------------------------------------------------------------------------- kinds

fn kind_byte(kind: Kind) -> u8 {
    match kind {
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Link => 2,
    }
}

fn kind_of(byte: u8) -> Kind {
    match byte {
        0 => Kind::File,
        1 => Kind::Directory,
        _ => Kind::Link,
    }
}

/// The second value of what is known of a name.
pub(super) fn stat_word(stat: &Stat) -> u64 {
    u64::from(stat.links) | u64::from(kind_byte(stat.kind)) << 16 | u64::from(stat.blocks) << 32
}

/// What is known of a name again.
pub(super) fn stat_of(size_bytes: u64, word: u64) -> Stat {
    Stat { kind: kind_of((word >> 16) as u8), links: word as u16, size_bytes, blocks: (word >> 32) as u32 }
}

// --------------------------------------------------------------------------------------------------- opening

/// How a file is opened, in a word.
pub(super) fn open_flags(Opening { create, truncate, links }: Opening, appends: bool) -> u64 {
    let create = match create {
        Create::No => 0,
        Create::IfMissing => 1,
        Create::New => 2,
    };
    let takes_links = u64::from(links == Links::Taken);
    create | u64::from(truncate) << 8 | u64::from(appends) << 9 | takes_links << 10
}

/// The same again, and whether each write is at the file's end.
pub(super) fn open_flags_of(word: u64) -> (Opening, bool) {
    let create = match word & 0xff {
        0 => Create::No,
        1 => Create::IfMissing,
        _ => Create::New,
    };
    let links = if word & 1 << 10 == 0 { Links::Followed } else { Links::Taken };
    (Opening { create, truncate: word & 1 << 8 != 0, links }, word & 1 << 9 != 0)
}
