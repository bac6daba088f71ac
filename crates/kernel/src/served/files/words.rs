//! Requests, as they are written in a control piece.
//!
//! A request is eight words and one or two names behind them. The data piece has bytes only: those to write, those read, or the entries
//! of a directory.

use super::super::answer::{bytes_of, words};
use crate::error::Errno;
use crate::fs::Create;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use pageferry_fs::{Entry, Ino, Kind};
use pageferry_hal::PAGE_SIZE;

const WORDS: usize = 8;
const HEADER_BYTES: usize = WORDS * 8;
/// Names that fit behind the words.
pub(super) const MOST_NAME_BYTES: usize = PAGE_SIZE - HEADER_BYTES;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// `name`, by [`Asked::at`] flags; answers a handle.
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
    /// Answers the length, and links and whether it is a directory.
    Stat,
    Link,
    Rename,
    /// Entries from number `at` on; answers how many, in how many bytes, and [whether these are the last](LAST_ENTRIES).
    List,
    /// Unmounts the volume and ends, whatever is open if `at` is not 0.
    End,
}

const OPS: [Op; 19] = [
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
        bytes.push(u8::from(entry.kind == Kind::Directory));
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
        let kind = if head[4] == 0 { Kind::File } else { Kind::Directory };
        let len = usize::from(u16::from_le_bytes([head[5], head[6]]));
        let (name, rest) = rest.split_at_checked(len).ok_or(Errno::Io)?;
        entries.push(Entry { name: name.to_vec(), ino, kind });
        bytes = rest;
    }
    Ok(entries)
}

// --------------------------------------------------------------------------------------------------- opening

/// How a file is opened, in a word.
pub(super) fn open_flags(create: Create, truncate: bool, appends: bool) -> u64 {
    let create = match create {
        Create::No => 0,
        Create::IfMissing => 1,
        Create::New => 2,
    };
    create | u64::from(truncate) << 8 | u64::from(appends) << 9
}

/// The same again: what is made, whether it is emptied, whether each write is at its end.
pub(super) fn open_flags_of(word: u64) -> (Create, bool, bool) {
    let create = match word & 0xff {
        0 => Create::No,
        1 => Create::IfMissing,
        _ => Create::New,
    };
    (create, word & 1 << 8 != 0, word & 1 << 9 != 0)
}
