//! The layout of a file, and its parts in bytes. All numbers are little-endian.
//!
//! | part | bytes |
//! |---|---|
//! | beginning | [`MAGIC`] (8), version (2) |
//! | header | its length (4), architecture, the five numbers of [`Rules`] (4 each), recorder, the command |
//! | the command | number of its words (4), the words |
//! | checksum | of all before (4) |
//! | block, any number of times | `B` (1), records (4; up to [`BLOCK_RECORDS`]), length of what follows (4), body |
//! | body of a block | packed records, checksum of the block (4) |
//! | end | `E` (1), instructions, loads, stores, records, calls (8 each), checksum of the end (4) |
//!
//! A text is its length (4) and UTF-8. Checksums are CRC-32. Packed records are the bits of one model (`src/model.rs`),
//! which goes on from block to block, so blocks are read in order. Nothing follows the end.
//!
//! The writer and the reader own what is read and written here; a part that is not as it should be is a [`TraceError`].

use crate::error::TraceError;
use crate::record::{Header, Rules, Totals};

/// How a trace begins.
pub const MAGIC: [u8; 8] = *b"\x89PFTRC\r\n";
/// The version that is written and read.
pub const VERSION: u16 = 1;
/// No block has more records.
pub const BLOCK_RECORDS: usize = 1 << 16;
pub(crate) const BLOCK: u8 = b'B';
pub(crate) const END: u8 = b'E';

pub(crate) fn header_bytes(header: &Header) -> Vec<u8> {
    let mut body = Vec::new();
    let text = |body: &mut Vec<u8>, text: &str| {
        body.extend((text.len() as u32).to_le_bytes());
        body.extend(text.as_bytes());
    };
    text(&mut body, &header.architecture);
    let Rules { line_bytes, line_sets, page_bytes, page_sets, reset_every } = header.rules;
    for number in [line_bytes, line_sets, page_bytes, page_sets, reset_every] {
        body.extend(number.to_le_bytes());
    }
    text(&mut body, &header.recorder);
    body.extend((header.command.len() as u32).to_le_bytes());
    for word in &header.command {
        text(&mut body, word);
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(body);
    seal(bytes)
}

pub(crate) fn block_bytes(records: u32, packed: &[u8]) -> Vec<u8> {
    let mut bytes = vec![BLOCK];
    bytes.extend(records.to_le_bytes());
    bytes.extend((packed.len() as u32).to_le_bytes());
    bytes.extend(packed);
    seal(bytes)
}

pub(crate) fn end_bytes(totals: &Totals) -> Vec<u8> {
    let mut bytes = vec![END];
    let Totals { instructions, loads, stores, records, calls } = *totals;
    for number in [instructions, loads, stores, records, calls] {
        bytes.extend(number.to_le_bytes());
    }
    seal(bytes)
}

/// Adds the checksum.
fn seal(mut part: Vec<u8>) -> Vec<u8> {
    let sum = crc32fast::hash(&part);
    part.extend(sum.to_le_bytes());
    part
}

/// Bytes, and where reading has come to.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub(crate) fn take(&mut self, count: usize, expected: &'static str) -> Result<&'a [u8], TraceError> {
        let found = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or(TraceError::Truncated { offset: self.at, expected })?;
        self.at += count;
        Ok(found)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], TraceError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, expected)?);
        Ok(array)
    }

    pub(crate) fn u32(&mut self, expected: &'static str) -> Result<u32, TraceError> {
        self.array(expected).map(u32::from_le_bytes)
    }

    fn u64(&mut self, expected: &'static str) -> Result<u64, TraceError> {
        self.array(expected).map(u64::from_le_bytes)
    }

    fn text(&mut self, expected: &'static str) -> Result<String, TraceError> {
        let count = self.u32(expected)? as usize;
        let offset = self.at;
        let text = std::str::from_utf8(self.take(count, expected)?);
        text.map(str::to_owned).map_err(|_| TraceError::Malformed {
            offset,
            found: "text that is not UTF-8".to_owned(),
            expected: expected.to_owned(),
        })
    }

    /// The checksum of what was read since `start`.
    fn sealed(&mut self, start: usize, part: &'static str) -> Result<(), TraceError> {
        let found = crc32fast::hash(&self.bytes[start..self.at]);
        let expected = self.u32("a checksum")?;
        if found == expected {
            Ok(())
        } else {
            Err(TraceError::Checksum { offset: start, part, expected, found })
        }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn header(&mut self) -> Result<Header, TraceError> {
        let begins = &self.bytes[..self.bytes.len().min(MAGIC.len())];
        if begins != MAGIC {
            // What is cut off within the first bytes is a trace as far as it goes, but nothing is not.
            if begins.is_empty() || !MAGIC.starts_with(begins) {
                return Err(TraceError::NotATrace { expected: MAGIC, found: begins.to_vec() });
            }
            return Err(TraceError::Truncated {
                offset: begins.len(),
                expected: "the first 8 bytes of a trace",
            });
        }
        self.at = MAGIC.len();
        let offset = self.at;
        let found = self.array("the version").map(u16::from_le_bytes)?;
        if found != VERSION {
            return Err(TraceError::Version { offset, expected: VERSION, found });
        }
        let length = self.u32("the length of the header")? as usize;
        let start = self.at;
        self.take(length, "the header")?;
        let end = self.at;
        self.sealed(0, "the header")?;
        let mut inside = Cursor { bytes: &self.bytes[..end], at: start };
        let architecture = inside.text("the architecture")?;
        let offset = inside.at;
        let mut number = || inside.u32("a number of the filter's rules");
        let rules = Rules {
            line_bytes: number()?,
            line_sets: number()?,
            page_bytes: number()?,
            page_sets: number()?,
            reset_every: number()?,
        };
        if let Some(found) = rules.problem() {
            return Err(TraceError::Malformed { offset, found, expected: "rules of a filter".to_owned() });
        }
        let recorder = inside.text("the recorder")?;
        let words = inside.u32("the number of words of the command")?;
        let command = (0..words).map(|_| inside.text("a word of the command")).collect::<Result<_, _>>()?;
        Ok(Header { architecture, rules, recorder, command })
    }

    /// A block, behind its tag: records, and what they are packed in.
    pub(crate) fn block(&mut self) -> Result<(u32, &'a [u8]), TraceError> {
        let start = self.at;
        self.take(1, "a block")?;
        let records = self.u32("the records of a block")?;
        let length = self.u32("the length of a block")? as usize;
        let packed = self.take(length, "the rest of a block")?;
        self.sealed(start, "a block")?;
        if records == 0 || records as usize > BLOCK_RECORDS {
            return Err(TraceError::Malformed {
                offset: start,
                found: format!("a block of {records} records"),
                expected: format!("1 to {BLOCK_RECORDS}"),
            });
        }
        Ok((records, packed))
    }

    pub(crate) fn end(&mut self) -> Result<Totals, TraceError> {
        let start = self.at;
        self.take(1, "the end")?;
        let mut number = || self.u64("totals");
        let totals = Totals {
            instructions: number()?,
            loads: number()?,
            stores: number()?,
            records: number()?,
            calls: number()?,
        };
        self.sealed(start, "the end")?;
        Ok(totals)
    }

    /// What comes next: a block's or the end's tag.
    pub(crate) fn tag(&self) -> Result<u8, TraceError> {
        match self.bytes.get(self.at) {
            Some(&tag @ (BLOCK | END)) => Ok(tag),
            Some(&other) => Err(TraceError::Malformed {
                offset: self.at,
                found: format!("{other:#04x}"),
                expected: "the beginning of a block (0x42) or the end (0x45)".to_owned(),
            }),
            None => Err(TraceError::Truncated { offset: self.at, expected: "a block or the end" }),
        }
    }
}
