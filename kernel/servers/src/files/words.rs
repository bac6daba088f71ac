//! Requests, as they are written in a control piece.
//!
//! A request is eight words and one or two names behind them. With a name goes how many symbolic links it has led
//! through already. The data piece has bytes only: those to write, those read, or the entries of a directory.
//!
//! # What can fail
//! Reading what is no request, or has a word or a name that no value has.

use super::super::word::{Word, at_place, bytes_of, place_of, requests, words};
use alloc::string::String;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_core::fs::{Create, Links, Opening};
use pageferry_fs::{Entry, Ino, Kind, Stat};
use pageferry_hal::PAGE_SIZE;

const WORDS: usize = 8;
const HEADER_BYTES: usize = WORDS * 8;
/// Names that fit behind the words.
pub(super) const MAX_NAME_BYTES: usize = PAGE_SIZE - HEADER_BYTES;

requests! {
    /// What is to be done.
    pub(super) enum Request in Envelope {
        /// Answers a handle.
        Open { name: String = first, followed: usize = of, mode: OpenMode = at },
        Close { handle: u64 = handle },
        /// From where the file is. Answers how many bytes are in the data piece.
        Read { handle: u64 = handle, len: usize = len },
        /// Where the file is: `len` bytes of the `of` that the call is about. Answers how many were written.
        Write { handle: u64 = handle, len: usize = len, of: usize = of },
        ReadAt { handle: u64 = handle, at: u64 = at, len: usize = len },
        WriteAt { handle: u64 = handle, at: u64 = at, len: usize = len, of: usize = of },
        Seek { handle: u64 = handle, to: u64 = at },
        /// The next read begins so many bytes before where it would: they were not taken.
        Unread { handle: u64 = handle, by: u64 = at },
        /// Answers it.
        Size { handle: u64 = handle },
        Truncate { handle: u64 = handle, size_bytes: u64 = at },
        Sync { handle: u64 = handle },
        MakeDirectory { name: String = first, followed: usize = of },
        RemoveDirectory { name: String = first, followed: usize = of },
        Unlink { name: String = first, followed: usize = of },
        /// Of what the name leads to, or of a symbolic link itself. Answers the length, and [links and
        /// kind](stat_word).
        Stat { name: String = first, followed: usize = of, links: Links = at },
        Link { from: String = first, from_followed: usize = of, to: String = second, to_followed: usize = at },
        Rename { from: String = first, from_followed: usize = of, to: String = second, to_followed: usize = at },
        MakeLink { path: String = first, name: String = second, followed: usize = of },
        /// Answers how long the path of a symbolic link is, which is in the data piece.
        ReadLink { name: String = first, followed: usize = of, len: usize = len },
        /// Entries from a number on. Answers how many, in how many bytes, and [whether these are the
        /// last](LAST_ENTRIES).
        List { name: String = first, followed: usize = of, from: usize = at, len: usize = len },
        /// Where a name leads off the volume, after an answer that it does. Answers [whether it still
        /// does](LEADS_OFF) and how many symbolic links it has led through; the path is in the data piece.
        WayOff { name: String = first, followed: usize = of, links: Links = at, len: usize = len },
        /// Unmounts the volume and ends.
        End { whatever_is_open: bool = at },
    }
}

/// A request as words and names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Envelope {
    number: u64,
    handle: u64,
    at: u64,
    len: u64,
    of: u64,
    first: String,
    second: String,
}

impl Envelope {
    /// The same, with other bytes in the data piece than the request says.
    pub(super) fn with_len(self, len: usize) -> Envelope {
        Envelope { len: len as u64, ..self }
    }

    /// As it is written.
    ///
    /// # Errors
    /// [`Errno::NameTooLong`]: the names do not fit.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, Errno> {
        let Envelope { number, handle, at, len, of, first, second } = self;
        if first.len() + second.len() > MAX_NAME_BYTES {
            return Err(Errno::NameTooLong);
        }
        let names = [first.len() as u64, second.len() as u64];
        let mut bytes = bytes_of(&[*number, *handle, *at, *len, *of, names[0], names[1], 0]);
        bytes.extend(first.bytes().chain(second.bytes()));
        Ok(bytes)
    }

    /// What is written, by what `load` finds at `(from, bytes)`.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: the names are none.
    fn read(mut load: impl FnMut(usize, &mut [u8])) -> Result<Envelope, Errno> {
        let mut header = [0; HEADER_BYTES];
        load(0, &mut header);
        let [number, handle, at, len, of, first, second, _] = words::<WORDS>(&header);
        if first.saturating_add(second) > MAX_NAME_BYTES as u64 {
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
        Ok(Envelope { number, handle, at, len, of, first: name(first)?, second: name(second)? })
    }
}

impl Request {
    /// What is written, by what `load` finds at `(from, bytes)`.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: that is no request.
    pub(super) fn read(load: impl FnMut(usize, &mut [u8])) -> Result<Request, Errno> {
        Request::of_envelope(Envelope::read(load)?)
    }
}

// --------------------------------------------------------------------------------------------------- entries

/// In an answer's first value: the name leads off the volume, having led through as many symbolic links as the lower
/// half says.
pub(super) const LEADS_OFF: u64 = 1 << 32;

/// In an answer's second value: there are no entries behind these.
pub(super) const LAST_ENTRIES: u64 = 1 << 32;

/// As many of the entries as fit into so many bytes, and how many those are.
pub(super) fn entries_to_bytes(entries: &[Entry], max_bytes: usize) -> (Vec<u8>, usize) {
    let (mut bytes, mut count) = (Vec::new(), 0);
    for entry in entries {
        if bytes.len() + 7 + entry.name.len() > max_bytes {
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
    u64::from(stat.links) | u64::from(kind_byte(stat.kind)) << 16 | u64::from(stat.fragments) << 32
}

/// What is known of a name again.
pub(super) fn stat_of(size_bytes: u64, word: u64) -> Stat {
    Stat { kind: kind_of((word >> 16) as u8), links: word as u16, size_bytes, fragments: (word >> 32) as u32 }
}

// --------------------------------------------------------------------------------------------------- opening

/// How a file is opened, and whether each write is at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenMode {
    pub(super) how: Opening,
    pub(super) appends: bool,
}

const CREATES: [Create; 3] = [Create::No, Create::IfMissing, Create::New];
const LINKS: [Links; 2] = [Links::Followed, Links::Taken];

impl Word for OpenMode {
    fn word(&self) -> u64 {
        let OpenMode { how: Opening { create, truncate, links }, appends } = self;
        place_of(&CREATES, create) | truncate.word() << 8 | appends.word() << 9 | links.word() << 10
    }

    fn of_word(word: u64) -> Result<OpenMode, Errno> {
        let bit = |bit: u32| word & 1 << bit != 0;
        let how = Opening {
            create: at_place(&CREATES, word & 0xff)?,
            truncate: bit(8),
            links: Links::of_word(word >> 10)?,
        };
        Ok(OpenMode { how, appends: bit(9) })
    }
}

impl Word for Links {
    fn word(&self) -> u64 {
        place_of(&LINKS, self)
    }

    fn of_word(word: u64) -> Result<Links, Errno> {
        at_place(&LINKS, word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = String> {
        "[a-zä/]{0,40}".prop_map(|name| name.to_string())
    }

    fn links() -> impl Strategy<Value = Links> {
        prop::sample::select(LINKS.to_vec())
    }

    fn mode() -> impl Strategy<Value = OpenMode> {
        (prop::sample::select(CREATES.to_vec()), links(), any::<[bool; 2]>()).prop_map(
            |(create, links, [truncate, appends])| OpenMode {
                how: Opening { create, truncate, links },
                appends,
            },
        )
    }

    /// Every request, with words of any value.
    fn request() -> impl Strategy<Value = Request> {
        let numbers = (any::<[u64; 2]>(), any::<[usize; 3]>(), 0..REQUESTS);
        (numbers, name(), name(), links(), mode(), any::<bool>()).prop_map(
            |(([handle, at], [len, of, from], number), first, second, links, mode, whatever_is_open)| {
                let (name, size_bytes, followed) = (first.clone(), at, of);
                let (from_followed, to_followed) = (of, len);
                match number {
                    0 => Request::Open { name, followed, mode },
                    1 => Request::Close { handle },
                    2 => Request::Read { handle, len },
                    3 => Request::Write { handle, len, of },
                    4 => Request::ReadAt { handle, at, len },
                    5 => Request::WriteAt { handle, at, len, of },
                    6 => Request::Seek { handle, to: at },
                    7 => Request::Unread { handle, by: at },
                    8 => Request::Size { handle },
                    9 => Request::Truncate { handle, size_bytes },
                    10 => Request::Sync { handle },
                    11 => Request::MakeDirectory { name, followed },
                    12 => Request::RemoveDirectory { name, followed },
                    13 => Request::Unlink { name, followed },
                    14 => Request::Stat { name, followed, links },
                    15 => Request::Link { from: first, from_followed, to: second, to_followed },
                    16 => Request::Rename { from: first, from_followed, to: second, to_followed },
                    17 => Request::MakeLink { path: first, name: second, followed },
                    18 => Request::ReadLink { name, followed, len },
                    19 => Request::List { name, followed, from, len },
                    20 => Request::WayOff { name, followed, links, len },
                    _ => Request::End { whatever_is_open },
                }
            },
        )
    }

    const REQUESTS: u64 = 22;

    fn load(all: &[u8]) -> impl FnMut(usize, &mut [u8]) {
        |from, bytes| {
            let found = all.get(from..).unwrap_or_default();
            bytes.fill(0);
            let len = found.len().min(bytes.len());
            bytes[..len].copy_from_slice(&found[..len]);
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(request in request()) {
            let bytes = request.envelope().bytes().unwrap();
            prop_assert_eq!(words::<1>(&bytes)[0], request.envelope().number);
            prop_assert_eq!(Request::read(load(&bytes)), Ok(request));
        }

        /// Whatever a client writes, it is a request that is written the same again, or refused.
        #[test]
        fn other_bytes_are_refused(
            number in 0..REQUESTS + 3, numbers in any::<[u64; 4]>(), small in any::<[u8; 4]>(),
            names in any::<[u8; 2]>(), mask in 0..16_usize, rest in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let word = |i: usize| if mask & 1 << i == 0 { u64::from(small[i]) } else { numbers[i] };
            let [first, second] = names.map(u64::from);
            let mut bytes = bytes_of(&[number, word(0), word(1), word(2), word(3), first, second, 0]);
            bytes.extend(rest);
            if let Ok(request) = Request::read(load(&bytes)) {
                prop_assert!(number < REQUESTS);
                let again = request.envelope().bytes().unwrap();
                prop_assert_eq!(Request::read(load(&again)), Ok(request));
            }
        }

        #[test]
        fn no_bytes_at_all_are_too_wild(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0..9_usize) {
            _ = Request::read(load(&bytes));
            _ = entries_of_bytes(&bytes, count);
        }
    }

    #[test]
    fn names_that_do_not_fit_are_refused() {
        let name = "n".repeat(MAX_NAME_BYTES);
        assert!(Request::Unlink { name: name.clone(), followed: 0 }.envelope().bytes().is_ok());
        let two = Request::Link { from: name, from_followed: 0, to: "m".to_string(), to_followed: 0 };
        assert_eq!(two.envelope().bytes(), Err(Errno::NameTooLong));
    }
}
